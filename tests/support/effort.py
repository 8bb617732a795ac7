# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures work in lines of code that are run, not in time, so that the result is the same on every machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class TooMuchWork(AssertionError):
    """More lines were run than a test allows."""


def lines_run(action: Callable[[], object], *, at_most: int) -> int:
    """Return how many lines of Python `action` runs, in whichever functions.

    Raises:
        TooMuchWork: they are more than `at_most`; the action is stopped.
    """
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count > at_most:
                raise TooMuchWork(f"more than {at_most} lines were run")
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # a collection calls back functions of the test tools, at any time
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    if count > at_most:  # what raised it may have caught it, too
        raise TooMuchWork(f"more than {at_most} lines were run")
    return count
