# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fewer requests for many tasks at once: one read of the cluster's list shows the ends of all of them, and the first
look at a task waits for as long as such tasks have taken so far.
"""

from __future__ import annotations

import re
import threading
import typing as t
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from ..errors import AuthenticationFailed
from .api.reader import Reader
from .inventory.rows import read_rows

SOONEST = 0.1
"""Seconds after which to look at a task at the earliest: none that starts a process ends sooner."""

LATEST = 10.0
"""Seconds after which to look at a task at the latest: it may fail sooner than others of its type end."""

WARNINGS = re.compile(r"WARNINGS: (\d{1,9})")
"""The exit text of a task that succeeded with so many warnings."""

# The list holds up to 25 tasks of each node. For fewer tasks than these, their own statuses are smaller.
_WORTH_A_LIST = 3


class Shown(Enum):
    """What the list shows of a task that has not ended well."""

    RUNNING = "running"
    UNKNOWN = "unknown"


class TaskList:
    """The cluster's list of tasks, read once for all tasks that are followed. May be used from many threads.

    The list of a node drops its oldest tasks, and a token without Sys.Audit on C(/) sees none: of a task that is not
    shown, nothing is known. The same goes for a task that is shown to have failed: its own status explains more.
    """

    def __init__(self, reader: Reader, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._clock = clock
        self._lock = threading.Lock()
        self._followed = 0
        self._read_at = float("-inf")
        self._rows: Mapping[str, Mapping[str, t.Any]] = {}
        self._helps = True
        self._has_helped = False

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count one more followed task within the block."""
        with self._lock:
            self._followed += 1
        try:
            yield
        finally:
            with self._lock:
                self._followed -= 1

    def look(self, upid: str, since: float) -> str | Shown:
        """Return the exit text of a task that succeeded, or whether it was running at since or later. Reads the list
        only if that is worth it.
        """
        with self._lock:
            row = self._rows.get(upid)
            if self._read_at < since and (row is None or "endtime" not in row):
                if not self._helps or self._followed < _WORTH_A_LIST:
                    return Shown.UNKNOWN
                self._read()
                row = self._rows.get(upid)
            if row is None:
                self._helps = self._helps and self._has_helped
                return Shown.UNKNOWN
            self._has_helped = True
            if "endtime" not in row:
                return Shown.RUNNING
            ended = str(row.get("status") or "")
            return ended if ended == "OK" or WARNINGS.fullmatch(ended) else Shown.UNKNOWN

    def _read(self) -> None:
        """Read the tasks of the whole cluster. A user who may not read them sees none."""
        began = self._clock()
        try:
            rows = read_rows(self._reader, "/cluster/tasks") or ()
        except AuthenticationFailed:
            rows = ()
        self._rows = {str(row.get("upid")): row for row in rows if isinstance(row, Mapping)}
        self._read_at = began


@dataclass(eq=False)
class Pace:
    """How long tasks take, by their types. May be used from many threads."""

    _usual: dict[str, float] = field(default_factory=dict)

    def first_look(self, kind: str) -> float:
        """Return the seconds after which to look at a task for the first time."""
        return min(max(self._usual.get(kind, 0.0), SOONEST), LATEST)

    def learn(self, kind: str, running: float, ended: float) -> None:
        """Learn from a task that was seen running after so many seconds, or 0, and seen at its end after so many.

        What is usual falls fast and rises slowly: a late look makes a run slower, an early one costs a request.
        """
        usual = self._usual.get(kind)
        if usual is None:
            self._usual[kind] = (running + ended) / 2
        elif not running:
            self._usual[kind] = min(usual, ended) * 0.98
        else:
            self._usual[kind] = min((running + ended) / 2, usual * 1.25)
