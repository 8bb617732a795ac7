# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One history: what happens is decided by its seed alone."""

from __future__ import annotations

import json
import random
import tempfile
import typing as t
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from simulated_cluster.build import build
from simulated_cluster.cluster import Cluster
from simulated_cluster.server import Server

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    CollectionError,
    GoalsNotReached,
    NotTheSameGuest,
    TourRefused,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api import session as session_module
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import records
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.ledger import Ledger
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.records import Durations
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow import access as access_module
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow import stopping
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.existing.comparison import Comparison
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves import planning as planning_module
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options import (
    plugin_config as config_module,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.result import RunFailed

from . import substitutes
from .actors import Actor, Actors, Process
from .chaos import Chaos
from .loop import new_loop
from .permits import Exchange, Permits
from .referee import Broken, Referee
from .surroundings import LedgerDatabase, Network, Request, Weather
from .tasks import APPLY, DRAIN, PLAN_FILE, RUNS, TOUR, Task
from .tenants import Tenants
from .tours import ACTIVE
from .wishes import NAMES, NODES, OPS, TEMPLATE, VMIDS, cluster, parameters, requests

PLAN = planning_module.Planning.plan
PLAN_EXISTING = Comparison.plan

BEGIN = 1_800_000_000.0
CHAOS_SECONDS = 90.0
LONGEST_SECONDS = 3600.0
REST_SECONDS = 120.0
"""Longer than a reservation lasts."""

LIST_SECONDS = 30.0
"""After so many seconds the list of the cluster shows everything."""

EVERYTHING = Task(names=NAMES)
TAKE_BACK = Task(TOUR, options={"state": ACTIVE})


class Failed(AssertionError):
    """Something happened that must never happen."""


class History:
    """Everything of one seed. log takes lines."""

    def __init__(self, seed: int, log: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.actors = Actors(BEGIN)
        self._log = log
        substitutes.begin(self.actors, random.Random(seed + 1))
        self.loop = new_loop(self.actors)
        self._judged = 0
        self.roomy = self.rng.random() < 0.5
        self.ruled = self.roomy and self.rng.random() < 0.5
        self.cluster: Cluster = build(cluster(roomy=self.roomy, ruled=self.ruled), seed=seed)
        timing = self.cluster.timing
        timing.request_seconds, timing.fence_after_seconds, timing.fence_seconds = 0.01, 15.0, 15.0
        timing.create_seconds = self.rng.choice([0.2, 2.0, 10.0])
        timing.migrate_memory_seconds_per_gib = self.rng.choice([1.0, 10.0])
        self.server = Server(self.cluster)
        # Else two controllers that decide at the same time choose the same VMID, and one of them is stopped by that.
        self.apart = self.rng.random() < 0.7
        self.weather = Weather(self.actors, self.rng, self.log)
        self.database = LedgerDatabase(self.actors, self.weather, self.rng)
        self.processes: dict[int, Process] = {}
        self.results: dict[int, dict[str, t.Any]] = {}
        self.referee = Referee(self.cluster, requests(roomy=self.roomy, ruled=self.ruled))
        self.permits = Permits(self.cluster, [TEMPLATE])
        self.tasks: dict[int, Task] = {}
        network = Network(self.actors, self.loop, self.server, self.weather, self.rng, self.log)
        network.watch = self._note
        Comparison.plan = lambda *args, **kwargs: self._meant(*args, **kwargs)  # type: ignore[method-assign]
        planning_module.Planning.plan = lambda *args, **kwargs: self._planned(*args, **kwargs)  # type: ignore[method-assign]
        session_module.Transport = network.transport  # type: ignore[misc, assignment]
        access_module.open_ledger = lambda _where: Ledger(self.database, Durations())  # type: ignore[assignment]
        access_module.folder_of = lambda _where: Path(self._folder.name) / "usage"  # type: ignore[assignment]
        # No package offers plugins here, and to look through all of them takes longer than the rest of a run.
        config_module.load_entry_points = lambda _registry: None  # type: ignore[assignment]
        records.os = substitutes.System(self.actors, self.processes)  # type: ignore[assignment]
        records._space_of = lambda _pid: self.actors.process.host  # type: ignore[assignment]
        records._start_time = lambda pid: "" if self.processes[pid].ended else str(pid)  # type: ignore[assignment]
        stopping._starters = lambda _pid, _ids: substitutes.Starters(self.actors.process)  # type: ignore[assignment]
        self.secret = self.cluster.access.users["automation@pve"].tokens["ansible"].secret
        self._folder = tempfile.TemporaryDirectory(prefix="voyage-")
        self.chaos = Chaos(self)
        self.tenants = Tenants(self)

    def log(self, line: str) -> None:
        """Note what happens, and who does it."""
        if self._log is not None:
            actor = self.actors.current
            who = actor.process.name if actor is not None else "-"
            self._log(f"{self.actors.now - BEGIN:8.2f} {who:>12}  {line}")

    def start(self, task: Task, host: str, clock_error: float = 0.0) -> Process:
        """Begin a controller's run."""
        pid = len(self.processes) + 1
        process = self.processes[pid] = Process(pid, f"run {pid} ({host})", host, clock_error)
        self.tasks[pid] = task
        self.permits.begin(pid, task)
        params = parameters(task.module, roomy=self.roomy, ruled=self.ruled) | task.options
        params |= {key: str(self.plan_file(task.options[key])) for key in (PLAN_FILE, APPLY) if key in task.options}
        if APPLY in task.options:
            self.referee.hold(pid, json.loads(self.plan_file(task.options[APPLY]).read_text()))
        params["api_token_secret"] = self.secret
        if task.module in (DRAIN, TOUR):
            params["name"] = list(task.names)
        for body in params.get("vms", ()):
            if self.apart:
                body["vmid_range"] = VMIDS[body["name"]]
            body["state"] = task.state or body["state"]
            if self.tenants.exist:
                body["pool"] = OPS
        if "vms" in params:
            params["vms"] = [body for body in params["vms"] if body["name"] in task.names]
        self.actors.spawn(process, lambda: self._run(process, task, params))
        self.log(f"{process.name} begins: {task}")
        return process

    def plan_file(self, name: str) -> Path:
        """Where a plan of this name is kept."""
        return Path(self._folder.name, name)

    def sail(self) -> None:
        """Let everything happen. Raises Failed."""
        try:
            self._sail()
        finally:
            for process in self.processes.values():
                process.killed = True
            while self.actors.all:
                self.actors.resume(self.actors.all[0])
            stopping = self.loop.create_task(self.server.stop())
            self.loop.settle()
            while not stopping.done():
                self.actors.now = self.loop.next_time() or self.actors.now
                self.loop.settle()
            self.loop.close()
            self.database.end()
            self._folder.cleanup()

    def _sail(self) -> None:
        end = self.actors.now + CHAOS_SECONDS
        self.chaos.begin()
        while self.actors.now < end:
            self.chaos.step()
            self.tenants.step()
            self._step(end)
        self.chaos.end()
        self.tenants.end()
        self.log("the faults are over")
        self._until(lambda: all(process.ended for process in self.processes.values()), "the runs do not end")
        self._rest()
        if self.chaos.clean_up_by_hand():
            self._rest()
        tasks = self._goals()
        self._reach(tasks)
        if self.ruled:
            # Once VMs have joined their rules, the HA manager moves guests, even to a node that is drained or full.
            drain, rebalance, everything = tasks
            self._rest()
            self._reach([rebalance, drain, everything])
        for task in tasks:
            result = self._clean_run(task)
            if result.get("failed"):
                raise Failed(f"another clean run of {task} fails: {result['msg']}")
            if result["changed"]:
                raise Failed(f"another clean run of {task} is not without a change")
        self.referee.check_goal(NAMES)
        if self.roomy:
            for node in tasks[0].names:
                self.referee.check_drained(node)
            self._tour()

    def _tour(self) -> None:
        """A clean tour ends with every node maintained, or is refused before its first move. Nothing of it is left."""
        # Guests that were made a moment ago are in the list of the cluster without their sizes: a plan counts too
        # little for them, and the check before the move then refuses it.
        self._rest(LIST_SECONDS)
        nodes = tuple(self.rng.sample(NODES, 2))
        result = self._clean_run(Task(TOUR, nodes))
        if result.get("code") == TourRefused.code and self.referee.moves.by(list(self.processes.values())[-1]):
            raise Failed(f"a tour was refused after it had moved guests: {result['msg']}")
        # The HA manager follows its rules when it likes.
        tolerated = (TourRefused.code, GoalsNotReached.code) if self.ruled else (TourRefused.code,)
        if result.get("failed") and result.get("code") not in tolerated:
            raise Failed(f"a clean tour of {nodes} fails: {result['msg']}")
        if result.get("failed") and self._clean_run(TAKE_BACK).get("failed"):
            raise Failed("a tour that was refused cannot be taken back")
        marked = set(self.drained()) & set(nodes) if not result.get("failed") else set()
        if "maintenance-tour" in self.cluster.access.pools or marked:
            raise Failed(f"a tour has left its record, or the marks of {sorted(marked)}")

    def _rest(self, seconds: float = REST_SECONDS) -> None:
        """Let reservations expire, and the HA manager finish."""
        end = self.actors.now + seconds
        while self.actors.now < end:
            self._step(end)

    def _reach(self, tasks: Sequence[Task]) -> None:
        """Let one run after the other reach its goal, directly or by a kept plan."""
        for task in tasks:
            # One plan does not make all better that could be better.
            by_plan = task.module != "cluster_rebalance" and self.rng.random() < 0.3
            for part in (task.keeping("goal.json"), task.applying("goal.json")) if by_plan else (task,):
                result = self._clean_run(part)
                if result.get("code") == NotTheSameGuest.code:
                    # A tenant's VM of that name has the VMID of one that a killed run made. As long as the ledger knows
                    # of the latter, the former is not taken for it.
                    self._rest(records.LASTS)
                    result = self._clean_run(part)
                if result.get("failed"):
                    raise Failed(f"a clean run of {part} does not reach the goal: {result['msg']}")

    def _goals(self) -> list[Task]:
        """What is wanted at the end: all VMs and, in a roomy cluster, a node without guests, and all rules kept.

        That comes first: on a node that a human has made too full, no VM starts.
        """
        if not self.roomy:
            return [EVERYTHING]
        if self._clean_run(TAKE_BACK).get("failed"):
            raise Failed("what killed tours have left cannot be taken back")
        drained = self.rng.choice(NODES)
        others = tuple(node for node in self.drained() if node != drained)
        if others:
            active = {"state": "active"}
            if self._clean_run(Task("node_drain", others, active)).get("failed"):
                # A rule may keep a guest from its former node. The mark then stays until an administrator gives it up.
                self._clean_run(Task("node_drain", others, {**active, "bring_back": False}))
        return [Task("node_drain", (drained,)), Task("cluster_rebalance"), EVERYTHING]

    def drained(self) -> Collection[str]:
        """The nodes that are marked as drained."""
        return [node for node in NODES if f"drained-node-{node}" in self.cluster.access.pools]

    def _clean_run(self, task: Task) -> dict[str, t.Any]:
        process = self.start(task, "c")
        self._until(lambda: process.ended, f"a clean run of {task} does not end")
        return self.results[process.pid]

    def _until(self, reached: Callable[[], bool], otherwise: str) -> None:
        end = self.actors.now + LONGEST_SECONDS
        while not reached():
            if self.actors.now >= end:
                raise Failed(otherwise)
            self._step(end)

    def _step(self, end: float) -> None:
        """Let one actor go on, or, when all wait, the time."""
        self.loop.settle()
        runnable = self.actors.runnable()
        if runnable:
            self.actors.resume(self.rng.choice(runnable))
        else:
            times = (self.actors.next_time(), self.loop.next_time(), self.chaos.next_time(), self.tenants.next_time())
            self.actors.now = max(self.actors.now, min(time for time in (end, *times) if time is not None))
            self.loop.settle()
        if self._judged != self.loop.turns:
            # Nothing but the loop changes the cluster.
            self._judged = self.loop.turns
            self.referee.check()
            if self.permits.broken:
                raise Broken(self.permits.broken[0])

    def _note(self, request: Request, response: t.Any, reached: Mapping[int, int], thread: Actor) -> None:
        """Let everybody who cares know of a request that was answered."""
        process = thread.process
        method, path = request.method, request.path.removeprefix("/api2/json")
        self.referee.note(method, request.path, request.sent, response, process)
        if method == "DELETE" and response.status == 200 and self.tasks[process.pid].state == "absent":
            self.referee.removed.update(reached)
        self.permits.note(Exchange(method, path, request.sent, response.status, reached, process.pid, thread))
        self.tenants.notice(method)

    def _planned(self, planning: t.Any, sight: t.Any, *args: t.Any, **kwargs: t.Any) -> t.Any:
        plan = PLAN(planning, sight, *args, **kwargs)
        vmids = [vmid for move in plan.moves for vmid in move.vmids]
        self.permits.planned(self.actors.process.pid, vmids, sight.goals.undo)
        self.tenants.moving = vmids
        return plan

    def _meant(self, comparison: Comparison, entry: t.Any, guest: t.Any, *args: t.Any) -> t.Any:
        plan = PLAN_EXISTING(comparison, entry, guest, *args)
        self.permits.meant(self.actors.process.pid, plan.guest.vmid, plan.identity)
        return plan

    def _run(self, process: Process, task: Task, params: dict[str, t.Any]) -> None:
        """What the module does."""
        warnings: list[str] = []
        hidden = self.tenants.hidden_on(task.names)
        try:
            result = RUNS[task.module](params, task.in_check_mode, warnings.append)
        except RunFailed as failure:
            result = {"failed": True, "msg": failure.message, "code": failure.failed_code, **failure.result}
        except CollectionError as error:
            result = {"failed": True, "msg": error.message, "code": error.code, "details": error.details}
        except KeyboardInterrupt:
            result = {"failed": True, "msg": "interrupted before anything was written", "code": "Interrupted"}
        self.log(
            f"ends: {result.get('msg') or 'changed' if result.get('failed') or result['changed'] else 'unchanged'}"
        )
        if self.secret in repr((result, warnings)):
            raise Failed("a result contains the secret")
        left = hidden & self.tenants.hidden_on(task.names)
        if left and not result.get("failed") and task.module == DRAIN and not (task.options or task.in_check_mode):
            raise Failed(f"{task} is told to be done, and guests are left that are hidden: {sorted(left)}")
        self.results[process.pid] = result
        if task.in_check_mode:
            self.tenants.notice_plan(task.names)
