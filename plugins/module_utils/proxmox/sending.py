# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sending a write whose answer may get lost or whose lock may be busy: looked for before it is sent again."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ..errors import ApiError, TaskFailed
from .failures import AnswerLost
from .outcomes import is_busy

SENDINGS = 3
BUSY_PAUSE = 3.0
_PAUSE = 1.0

R = t.TypeVar("R")


def nothing() -> None:
    """For a write that does no harm when it is done twice: there is nothing to look for."""


def sent(send: Callable[[], R], sleep: Callable[[float], None], done: Callable[[], R | None] = nothing) -> R:
    """Send a write; when its answer is lost or a lock timed out, and done does not return its result,
    send it again, three times in all.

    Raises AnswerLost when all answers were lost, and what send and done raise.
    """
    for tries_left in reversed(range(SENDINGS)):
        try:
            return send()
        except (AnswerLost, ApiError, TaskFailed) as error:
            lost = isinstance(error, AnswerLost)
            if not lost and not is_busy(error.message):
                raise
            sleep(_PAUSE if lost else BUSY_PAUSE)
            result = done()
            if result is not None:
                return result
            if not tries_left:
                raise
    raise AssertionError("the last try has returned or raised")
