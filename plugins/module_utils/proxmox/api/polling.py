# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Polling until a condition holds: frequently at first, then at longer intervals."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_GROWTH = 1.25

R = t.TypeVar("R")


class Poller:
    """Polls with the given clock and sleep. May be used from many threads."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.clock = clock
        self.sleep = sleep

    def until(self, look: Callable[[], R | None], seconds: float) -> R | None:
        """Call look until it returns something other than None, and return that; None when seconds are over. Calls it
        at least once.
        """
        deadline = self.clock() + seconds
        pause = _FIRST_PAUSE
        while (result := look()) is None:
            left = deadline - self.clock()
            if left <= 0:
                return None
            self.sleep(min(pause, left))
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)
        return result
