# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface for reading the cluster's API, one path or many at the same time. A live session, a recording and a
recorder implement it.
"""

from __future__ import annotations

import re
import threading
import typing as t
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from ...errors import CollectionError

_OF_GUEST = re.compile(r"/nodes/[^/]+(/(?:qemu|lxc)/(\d+))(?![^/])")


class Reader(t.Protocol):
    """Reads answers by API path, as written in Proxmox's API documentation (C(/nodes/pve1/qemu)).

    May be used from several threads.
    """

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        """Return the C(data) of the answer. Query parameters with a dash in their name go into params.

        Raises:
            PermissionDenied, ApiError, ConnectionFailed, ...: as the API answered.
            NotRecorded: a recording lacks this path.
        """

    def server_time(self) -> float | None:
        """Return the server's time (seconds since the epoch) at its latest answer; None if unknown."""

    def answer_time(self) -> float | None:
        """Return the server's time at its latest answer to this thread; None if unknown."""


@dataclass(frozen=True, eq=False)
class ReadWhereTheyAre:
    """A reader that reads guests on the nodes where they are, by VMID, although the paths name others."""

    reader: Reader
    nodes: Mapping[int, str]

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        guest = _OF_GUEST.match(path)
        node = None if guest is None else self.nodes.get(int(guest[2]))
        if guest is not None and node is not None:
            path = f"/nodes/{node}{guest[1]}{path[guest.end() :]}"
        return self.reader.get(path, params, **more)

    def server_time(self) -> float | None:
        return self.reader.server_time()

    def answer_time(self) -> float | None:
        return self.reader.answer_time()


@dataclass(frozen=True, eq=False)
class ReadOnce:
    """A reader that sends each request once and shares the answer between threads. For reads of one point in time."""

    reader: Reader
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _answers: dict[str, Future[t.Any]] = field(default_factory=dict, init=False)

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        """Return the first answer for this path, or raise its error."""
        question = repr((path, params, more))
        with self._lock:
            answer = self._answers.get(question)
            if answer is None:
                answer = Future()
                try:
                    answer.set_result(self.reader.get(path, params, **more))
                except CollectionError as error:
                    answer.set_exception(error)
                self._answers[question] = answer
        return answer.result()

    def server_time(self) -> float | None:
        return self.reader.server_time()

    def answer_time(self) -> float | None:
        return self.reader.answer_time()


@dataclass(frozen=True, slots=True)
class RememberingReader:
    """Wraps a reader, and reads only once what does not change within a run."""

    PATHS: t.ClassVar = frozenset({"/cluster/options", "/version"})
    _reader: Reader
    _answers: dict[str, t.Any] = field(default_factory=dict)

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        if path not in self.PATHS:
            return self._reader.get(path, params, **more)
        if path not in self._answers:
            self._answers[path] = self._reader.get(path, params, **more)
        return self._answers[path]

    def server_time(self) -> float | None:
        return self._reader.server_time()

    def answer_time(self) -> float | None:
        return self._reader.answer_time()


_THREADS = 8

T = t.TypeVar("T")
R = t.TypeVar("R")


def in_parallel(function: Callable[[T], R], items: Iterable[T]) -> dict[T, R]:
    """Return function's result for each item; the first exception in the order of items is raised."""
    wanted = list(dict.fromkeys(items))
    if len(wanted) < 2:
        return {item: function(item) for item in wanted}
    with ThreadPoolExecutor(max_workers=min(_THREADS, len(wanted))) as threads:
        return dict(zip(wanted, threads.map(function, wanted), strict=True))
