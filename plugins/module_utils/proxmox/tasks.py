# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes and their tasks: sent again after a lost answer or a lock timeout, refused without quorum, and followed to the
end of the task, from many threads at once.
"""

from __future__ import annotations

import re
import threading
import time
import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from ..engine.texts import whole_number
from ..errors import (
    ApiError,
    AuthenticationFailed,
    ConnectionFailed,
    Interrupted,
    NoQuorum,
    PermissionDenied,
    TaskFailed,
    TaskTimeout,
)
from .api.failures import UNREADABLE, AnswerLost
from .api.reader import Reader
from .inventory.rows import read_rows
from .outcomes import is_busy, is_lock_refusal, lacks_quorum
from .task_list import SOONEST, WARNINGS, Pace, Shown, TaskList

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_GROWTH = 1.25

R = t.TypeVar("R")


@dataclass(eq=False)
class Poller:
    """Polls with the given clock and sleep. May be used from many threads."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def until(self, look: Callable[[], R | None], seconds: float, pause: float = _FIRST_PAUSE) -> R | None:
        """Call look, once or more, until it returns something, and return that; None when seconds are over. pause is
        the first one; they become longer.
        """
        deadline = self.clock() + seconds
        while (result := look()) is None:
            left = deadline - self.clock()
            if left <= 0:
                return None
            self.sleep(min(pause, left))
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)
        return result


# So long, in seconds, the list of tasks may say that a task runs. Then its node is asked, which may have failed.
_BELIEVED = 10.0
# How old, as a part of the time for which a task has run, a list may be that still shows whether it has ended.
_OLD = 0.1
# After this many refusals in a row, over some seconds, the status counts as unreadable.
_REFUSALS = 10
_HEX = re.compile(r"[0-9A-Fa-f]{1,16}")
# After reads of a task have failed for so many seconds, the cluster is asked whether its node is offline.
_ASK_AFTER = 30.0
# A log comes in pages of 50 lines by default, and the cause of a failure is at its end.
_LOG_PAGE = 500
_LOG_TAIL = 10
# Seconds by which the clock of a task's node may be behind that of the node that answered.
_CLOCK_SLACK = 5.0

WORKERS = frozenset({"qmigrate", "vzmigrate"})
"""The types of tasks that move a guest: the HA manager starts such tasks as well."""

_DESTROYING = frozenset({"qmdestroy"})

_STOPPING = frozenset({"qmshutdown", "qmstop", "vzshutdown", "vzstop"})

MIGRATIONS = WORKERS | {"hamigrate"}
"""These, and the task that asks the HA manager to move a guest."""


class Upid(t.NamedTuple):
    """The name of a task, with its parts.

    Attributes:
        started: seconds since the epoch by the node's clock.
        id: what the task is about: usually a VMID; for a clone that of the source.
        user: the user who started it (C(root@pam), C(op@pve!token)).
    """

    text: str
    node: str
    started: int
    type: str
    id: str
    user: str

    @classmethod
    def parse(cls, text: object) -> Upid:
        """Return the parts of text.

        Raises:
            ApiError: text is no UPID.
        """
        parts = str(text).split(":")
        if len(parts) != 9 or parts[0] != "UPID" or not all(_HEX.fullmatch(part) for part in parts[3:5]):
            raise ApiError(f'expected the UPID of a task, got "{text}"')
        return cls(str(text), parts[1], int(parts[4], 16), parts[5], parts[6], parts[7])

    def began_before(self, other: Upid) -> bool:
        """Whether another task began later. Within a second, only the tasks of one node have an order: the UPID has the
        time of their process as well, in hundredths of a second since the node was booted.
        """
        if self.node != other.node or self.started != other.started:
            return self.started < other.started
        ticks, others = (int(each.text.split(":")[3], 16) for each in (self, other))
        return ticks < others


def task_rows(reader: Reader, node: str, about: int | str) -> list[Mapping[str, t.Any]]:
    """Return the latest tasks on node about a guest, as far as this user can see them. Raises ConnectionFailed."""
    try:
        rows: list[Mapping[str, t.Any]] = reader.get(f"/nodes/{node}/tasks", vmid=about, source="all", limit=50)
    except (ApiError, PermissionDenied):
        return []
    return rows


class Fate(Enum):
    """What has happened to a VM since it was made."""

    KEPT = "it is where it was made"
    MOVED = "it was moved, and may have returned"
    DESTROYED = "it was destroyed"


def ask_fate_since(reader: Reader, node: str, vmid: int, made: str, since: float | None) -> Fate:
    """Return what has happened to the VM that a task made, on node or where it was moved from there. If it was
    destroyed, another one has its VMID if any has.

    made is the UPID of the task that made it; if that is not known, it was requested at since by the server's clock, or
    at any time. Tasks that this user cannot see do not count, nor those that a lock has refused. One request more, and
    one for each node, if the VM has left the node.
    """

    def has_later(rows: Iterable[Mapping[str, t.Any]], types: Collection[str]) -> bool:
        rows = [row for row in rows if not is_lock_refusal(str(row.get("status") or ""))]
        if not made:
            return bool(begun_since(rows, types, since or 0.0))
        own = Upid.parse(made)
        return any(own.began_before(Upid.parse(row["upid"])) for row in rows if row.get("type") in types)

    here = task_rows(reader, node, vmid)
    if has_later(here, _DESTROYING):
        return Fate.DESTROYED
    if not has_later(here, WORKERS):
        return Fate.KEPT
    names = [str(row["node"]) for row in read_rows(reader, "/nodes") or () if row.get("status") == "online"]
    others = [name for name in names if name != node]
    # The VM may have returned, and been destroyed here while the others were read.
    destroyed = any(has_later(task_rows(reader, name, vmid), _DESTROYING) for name in (*others, node))
    return Fate.DESTROYED if destroyed else Fate.MOVED


def migrating_guests(reader: Reader) -> frozenset[int]:
    """Return the VMIDs of the guests whose migration runs now, or is being requested of the HA manager, as far as this
    user may see that.
    """
    return _guests_with_task(reader, MIGRATIONS)


def stopping_guests(reader: Reader) -> frozenset[int]:
    """Return the VMIDs of the guests that are being shut down or stopped now, as far as this user may see that."""
    return _guests_with_task(reader, _STOPPING)


def _guests_with_task(reader: Reader, types: Collection[str]) -> frozenset[int]:
    rows = read_rows(reader, "/cluster/tasks") or ()
    running = (row.get("id") for row in rows if row.get("type") in types and "endtime" not in row)
    return frozenset(vmid for vmid in map(whole_number, running) if vmid is not None)


def latest_task(
    reader: Reader, node: str, about: int, types: Collection[str], since: float, user: str | None = None
) -> str | None:
    """Return the latest task on node about a guest, as begun_since does; None if there is none or it cannot be read.
    With a user, only the tasks of that user count.
    """
    try:
        rows = task_rows(reader, node, about)
    except ConnectionFailed:
        return None
    tasks = [task for task in begun_since(rows, types, since) if user in (None, task.user)]
    return max(tasks, key=lambda task: task.started).text if tasks else None


def begun_since(rows: Iterable[Mapping[str, t.Any]], types: Collection[str], since: float) -> list[Upid]:
    """Return the tasks of these types that began at since or later. since is a time on the clock of the server that
    answered, which may differ a little from the clock of the tasks' node.
    """
    tasks = [Upid.parse(row["upid"]) for row in rows if row.get("type") in types]
    return [task for task in tasks if task.started >= since - _CLOCK_SLACK]


class TaskResult(t.NamedTuple):
    """A task that succeeded. warnings is the number of its warnings; log holds its last lines if there were any."""

    upid: str
    node: str
    warnings: int = 0
    log: tuple[str, ...] = ()


class TaskFollower:
    """Waits for tasks, for each of them timeout seconds. May be used from many threads.

    Attributes:
        tasks: what the cluster's list showed of all of them.
    """

    def __init__(self, reader: Reader, timeout: float = 600.0, poller: Poller | None = None) -> None:
        self.reader = reader
        self.timeout = timeout
        self.poller = poller or Poller()
        self.tasks = TaskList(reader, self.poller.clock)
        self._pace = Pace()

    def wait(self, upid: str) -> TaskResult:
        """Return when the task has succeeded, perhaps with warnings.

        Broken connections and unreachable nodes are tolerated until the time is over or the cluster shows the node as
        offline, refusals for some seconds: the task may run to its end whether it can be watched or not.

        Raises:
            TaskFailed: it ended with an error; C(exitstatus) and C(log), its last lines, are in the details.
            TaskTimeout: it still runs after the timeout, or its node did not answer until then or is offline, or its
                status cannot be read.
            Interrupted: the poller's sleep ended the wait; the task continues.
            ApiError: upid is not the name of a task.
        """
        watch = _TaskWatch(self, Upid.parse(upid))
        first = self._pace.first_look(watch.task.type)
        try:
            with self.tasks.one_more():
                self.poller.sleep(min(first, self.timeout))
                ended = self.poller.until(watch.exitstatus, self.timeout - first, max(first / 4, SOONEST))
        except Interrupted as error:
            message = f"{error.message}: {watch.label} continues"
            raise Interrupted(message, upid=upid, node=watch.task.node) from None
        if ended is None:
            raise TaskTimeout(
                f"{watch.label} has not ended within {self.timeout:g} s{watch.unreachable}",
                upid=upid,
                node=watch.task.node,
            )
        if ended == "OK":
            self._pace.learn(watch.task.type, watch.running, self.poller.clock() - watch.began)
            return TaskResult(watch.task.text, watch.task.node)
        return self._result_of(watch.task, ended)

    def log_tail(self, upid: str) -> tuple[str, ...]:
        """Return the last lines of a task's log; nothing when it cannot be read."""
        task = Upid.parse(upid)
        lines: list[str] = []
        start = 0
        try:
            while True:
                path = f"/nodes/{task.node}/tasks/{upid}/log"
                page: list[dict[str, t.Any]] = self.reader.get(path, start=start, limit=_LOG_PAGE)
                lines = [*lines, *(str(row.get("t", "")) for row in page)][-_LOG_TAIL:]
                if len(page) < _LOG_PAGE:
                    return tuple(lines)
                start += _LOG_PAGE
        except UNREADABLE:
            return tuple(lines)

    def ask_if_offline(self, node: str) -> bool:
        """Whether a cluster with quorum shows the node as offline. A part without quorum sees the others as offline."""
        try:
            rows = read_rows(self.reader, "/cluster/status") or ()
        except AuthenticationFailed:
            return False
        quorate = any(row.get("type") == "cluster" and row.get("quorate") == 1 for row in rows)
        return quorate and any(row.get("name") == node and row.get("online") == 0 for row in rows)

    def _result_of(self, task: Upid, exitstatus: str) -> TaskResult:
        """Return the result of a task that has ended with warnings. Raises TaskFailed, with the end of its log, for one
        that has failed.
        """
        log = self.log_tail(task.text)
        warnings = WARNINGS.fullmatch(exitstatus)
        if warnings:
            return TaskResult(task.text, task.node, warnings=int(warnings[1]), log=log)
        told = [line for line in log if exitstatus not in line]
        raise TaskFailed(
            f"task {task.type} {task.id} on node {task.node} failed: {exitstatus or 'Proxmox VE gave no reason'}"
            + ("; the cluster has no quorum" if lacks_quorum(exitstatus) else "")
            + (f"; its log ends with: {' | '.join(told)}" if told else ""),
            upid=task.text,
            node=task.node,
            exitstatus=exitstatus,
            log=list(log),
        )


class _TaskWatch:
    """A task that the run waits for, and what it has seen of it so far.

    Attributes:
        began: when the wait began, by the poller's clock.
        running: seconds after which the task was last seen to run.
        unreachable: words for an error about the last request, when it was not answered.
    """

    def __init__(self, follower: TaskFollower, task: Upid) -> None:
        self._follower = follower
        self.task = task
        self.label = f"task {task.text} on node {task.node}"
        self.began = self._asked_at = follower.poller.clock()
        self.running = 0.0
        self.unreachable = ""
        self._refusals = 0
        self._ask_cluster_at: float | None = None

    def exitstatus(self) -> str | None:
        """Return with what the task ended; None as long as it runs, or nobody says. The list of all tasks answers, and
        from time to time the task's own node.
        """
        now = self._follower.poller.clock()
        if now < self._asked_at + _BELIEVED:
            since = max(self.began, now - _OLD * (now - self.began))
            shown = self._follower.tasks.look(self.task.text, since)
            if shown is Shown.RUNNING:
                self.running = now - self.began
                return None
            if not isinstance(shown, Shown):
                return shown
        self._asked_at = now
        try:
            status = self._follower.reader.get(f"/nodes/{self.task.node}/tasks/{self.task.text}/status")
        except ConnectionFailed as error:
            self._note_unreachable(error)
            return None
        except (ApiError, AuthenticationFailed, PermissionDenied) as error:
            self._refusals += 1
            if self._refusals == _REFUSALS:
                raise self._timeout_without_end(error.message) from error
            return None
        self.unreachable, self._refusals, self._ask_cluster_at = "", 0, None
        if status.get("status") == "stopped":
            return str(status.get("exitstatus") or "")
        self.running = now - self.began
        return None

    def _note_unreachable(self, error: ConnectionFailed) -> None:
        """Note that the node did not answer. Raises TaskTimeout if the cluster shows it as offline."""
        self.unreachable = f"; the last status request failed: {error.message}"
        now = self._follower.poller.clock()
        if self._ask_cluster_at is None:
            self._ask_cluster_at = now + _ASK_AFTER
        elif now >= self._ask_cluster_at:
            self._ask_cluster_at = now + _ASK_AFTER
            if self._follower.ask_if_offline(self.task.node):
                raise self._timeout_without_end("the cluster shows the node as offline") from error

    def _timeout_without_end(self, why: str) -> TaskTimeout:
        message = f"{self.label} cannot be followed to its end: {why}"
        return TaskTimeout(message, upid=self.task.text, node=self.task.node)


# --- writes, which are sent again, and the quorum that they need ---

SENDINGS = 3
BUSY_PAUSE = 3.0
_PAUSE = 1.0


def no_result() -> None:
    """Return None: the default of done, for writes that may be carried out twice."""


def send_write(send: Callable[[], R], sleep: Callable[[float], None], done: Callable[[], R | None] = no_result) -> R:
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


class QuorumGuard:
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

    def note_success(self) -> None:
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
