# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends writes again after a lost answer or a lock timeout, but first checks whether they were carried out.
Checks the quorum, without which nothing can be written.
"""

from __future__ import annotations

import threading
import typing as t
from collections.abc import Callable

from ...errors import ApiError, NoQuorum, PermissionDenied, TaskFailed
from ..outcomes import is_busy
from .failures import AnswerLost
from .reader import Reader

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


# Seconds for which a result stays valid, so that many changes at the same time need one request.
_HOLDS = 2.0


class Quorum:
    """Checks that the cluster has quorum before writes that Proxmox begins without it but cannot complete.

    Without quorum, Proxmox refuses at once to create, clone, start and change VMs. But it does stop VMs and grow disks,
    and can then neither start the VMs again nor write the new sizes to their configs.

    Checks at most once in two seconds, and not after a write that proved quorum. May be used from many threads.
    """

    def __init__(self, reader: Reader, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._clock = clock
        self._lock = threading.Lock()
        self._holds_until = float("-inf")

    def shown(self) -> None:
        """Record that a write has just succeeded that Proxmox refuses without quorum."""
        with self._lock:
            self._holds_until = self._clock() + _HOLDS

    def require(self, otherwise: str, *, fresh: bool = False) -> None:
        """Raise NoQuorum unless the cluster has quorum. otherwise ends the message: it says what was not done. With
        fresh, ask again even if a result is still valid.

        A user without Sys.Audit on C(/) cannot read the quorum; then nothing is raised.
        """
        with self._lock:
            if not fresh and self._clock() < self._holds_until:
                return
            try:
                rows: list[dict[str, t.Any]] = self._reader.get("/cluster/status")
            except PermissionDenied:
                return
            if any(row.get("type") == "cluster" and row.get("quorate") == 0 for row in rows):
                raise NoQuorum(f"the cluster has no quorum: {otherwise}")
            self._holds_until = self._clock() + _HOLDS
