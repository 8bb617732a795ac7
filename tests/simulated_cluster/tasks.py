# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Worker tasks: UPIDs, logs, exit texts, and the lists that show them."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from .access import Identity
from .clock import Clock
from .errors import ApiError, TaskError

LISTED_PER_NODE = 25
# The exit text of a worker that wrote none.
UNEXPECTED = "unexpected status"
# Proxmox seconds between asking a worker to end and killing it.
PATIENCE_SECONDS = 5.0


class OrderedFailure(TaskError):
    """A failure that a fault asked for; its text is the exit text as it stands."""


class Killed(BaseException):
    """The worker's process was killed without clean-up: incomplete work remains."""


@dataclass
class Orders:
    """How a fault changes the task that a call starts."""

    error: str | None = None
    seconds: float | None = None
    killed: bool = False
    until: asyncio.Event | None = None


@dataclass
class Task:
    upid: str
    node: str
    kind: str
    id: str
    who: Identity
    pid: int
    pstart: int
    starttime: int
    log: list[str] = field(default_factory=list)
    exitstatus: str | None = None
    endtime: int | None = None
    orders: Orders = field(default_factory=Orders)
    runner: asyncio.Task[None] | None = None
    killed: bool = False

    @property
    def running(self) -> bool:
        return self.exitstatus is None

    def say(self, line: str) -> None:
        self.log.append(line)

    async def work(self, clock: Clock, seconds: float) -> None:
        """Spend the time that the job takes. A fault may change that time, or let the job fail after it."""
        ordered, self.orders.seconds = self.orders.seconds, None
        if self.orders.until is not None:
            await self.orders.until.wait()
        await clock.sleep(seconds if ordered is None else ordered)
        if self.orders.killed:
            raise Killed
        if self.orders.error is not None:
            raise OrderedFailure(self.orders.error)

    def _identity(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "upid": self.upid, "node": self.node, "type": self.kind, "id": self.id, "user": self.who.user,
            "starttime": self.starttime,
        }
        if self.who.token:
            row["tokenid"] = self.who.token
        return row

    def status(self) -> dict[str, Any]:
        """The answer of ``/nodes/X/tasks/UPID/status``."""
        row = self._identity() | {"pid": self.pid, "pstart": self.pstart}
        row["status"] = "running" if self.running else "stopped"
        if not self.running:
            row["exitstatus"] = self.exitstatus
        return row

    def cluster_row(self) -> dict[str, Any]:
        """The row of ``/cluster/tasks``, where ``status`` is the exit text."""
        if self.running:
            return self._identity() | {"pid": self.pid, "saved": "0"}
        return self._identity() | {"endtime": self.endtime, "status": self.exitstatus, "saved": "1"}

    def node_row(self, active: bool) -> dict[str, Any]:
        """The row of ``/nodes/X/tasks``."""
        row = self._identity() | {"pid": self.pid, "pstart": self.pstart}
        if self.running:
            return row | {"status": "RUNNING", "saved": "0"} if active else row
        return row | {"endtime": self.endtime, "status": self.exitstatus}


class Tasks:
    """All tasks of the cluster, newest last per node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_upid: dict[str, Task] = {}
        self._by_node: dict[str, list[Task]] = {}
        self._pids = itertools.count(1000)

    def start(
        self,
        node: str,
        kind: str,
        id: object,
        who: Identity,
        body: Callable[[Task], Awaitable[None]],
        orders: Orders | None = None,
    ) -> str:
        """Start ``body`` as a worker of ``node``; the UPID. ``TaskError`` raised in it is the exit text."""
        now = self._clock.now()
        pid, pstart = next(self._pids), int(now * 100) & 0x7FFFFFFF
        upid = f"UPID:{node}:{pid:08X}:{pstart:08X}:{int(now):08X}:{kind}:{id}:{who.full}:"
        task = Task(upid, node, kind, str(id), who, pid, pstart, int(now), orders=orders or Orders())
        self._by_upid[upid] = task
        self._by_node.setdefault(node, []).append(task)
        task.runner = asyncio.ensure_future(self._run(task, body))
        task.runner.add_done_callback(lambda runner: self._report_fault_of_ours(task, runner))
        return upid

    @staticmethod
    def _report_fault_of_ours(task: Task, runner: asyncio.Task[None]) -> None:
        """End a task visibly after a defect of the simulator, so that no client waits forever."""
        error = None if runner.cancelled() else runner.exception()
        if error is not None:
            task.exitstatus = f"simulator error: {error!r}"
            task.endtime = task.starttime
            logging.getLogger("simulated_cluster").error("%s", task.upid, exc_info=error)

    async def _run(self, task: Task, body: Callable[[Task], Awaitable[None]]) -> None:
        exitstatus = "OK"
        try:
            await body(task)
        except (TaskError, ApiError) as error:
            exitstatus = str(error)
        except asyncio.CancelledError:
            exitstatus = UNEXPECTED if task.killed else "interrupted by signal"
        except Killed:
            exitstatus = UNEXPECTED
        task.exitstatus = exitstatus
        task.endtime = int(self._clock.now())
        if exitstatus == "OK":
            task.say("TASK OK")
        elif exitstatus.startswith("WARNINGS"):
            task.say(f"TASK {exitstatus}")
        elif exitstatus != UNEXPECTED:
            task.say(f"TASK ERROR: {exitstatus}")

    def find(self, upid: str) -> Task | None:
        return self._by_upid.get(upid)

    def of_node(self, node: str) -> list[Task]:
        """Tasks of a node, newest first."""
        return self._by_node.get(node, [])[::-1]

    def recent(self) -> list[Task]:
        """What ``/cluster/tasks`` may show: of each node every running task, and as many of the last finished ones as
        are left of its rows.
        """
        rows: list[Task] = []
        for tasks in self._by_node.values():
            running = [task for task in tasks if task.running]
            finished = sorted((task for task in tasks if not task.running), key=lambda task: -task.starttime)
            rows += running + finished[: max(LISTED_PER_NODE - len(running), 0)]
        return rows

    async def stop(self, task: Task) -> None:
        """Ask a worker to end and give it a moment to clean up; then it is killed."""
        if task.runner is None or not task.running:
            return
        task.runner.cancel()
        await asyncio.wait({task.runner}, timeout=max(0.1, PATIENCE_SECONDS * self._clock.scale))
        if task.running:
            task.killed = True
            task.runner.cancel()

    async def cancel_all(self) -> None:
        """End what still runs, when the cluster is shut down."""
        runners = [task.runner for task in self._by_upid.values() if task.runner and not task.runner.done()]
        for runner in runners:
            runner.cancel()
        await asyncio.gather(*runners, return_exceptions=True)
