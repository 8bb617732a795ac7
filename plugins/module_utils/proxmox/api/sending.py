# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends writes again after a lost answer or a lock timeout, but first checks whether they were carried out."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ...errors import ApiError, TaskFailed
from ..outcomes import is_busy
from .failures import AnswerLost

SENDINGS = 3
BUSY_PAUSE = 3.0
_PAUSE = 1.0

R = t.TypeVar("R")


def nothing() -> None:
    """A done that always returns None, for writes that may be carried out twice."""


def sent(send: Callable[[], R], sleep: Callable[[float], None], done: Callable[[], R | None] = nothing) -> R:
    """Send a write and return its result. After a lost answer or a lock timeout, return what done returns, the result
    if the write was carried out; if that is None, send the write again, three times in total.

    Raises AnswerLost when the last answer was lost too, and what send and done raise.
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
