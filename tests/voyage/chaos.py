# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes wrong, and what others do meanwhile."""

from __future__ import annotations

import random
import typing as t
from dataclasses import replace

from simulated_cluster import identity
from simulated_cluster.control import Control
from simulated_cluster.ha_manager import MANAGER
from simulated_cluster.migration.terms import Options
from simulated_cluster.migration.worker import Migration
from simulated_cluster.model import Guest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.stopping import LOOK_EVERY

from .actors import Process
from .tasks import TOUR, Task
from .wishes import NAMES, NODES

if t.TYPE_CHECKING:
    from .history import History

CREATES = r"^/nodes/[^/]+/qemu(/\d+/clone)?$"
MOVES = r"^/nodes/[^/]+/(qemu|lxc)/\d+/migrate$"
HUMAN = "human-"
"""How the names of VMs begin that a human creates."""

RENAMES = 0.4
"""The share of the times when a human would stop a VM, but renames it."""

MOST_DRAINED = 2
"""More nodes are not drained at a time: else the others have no room."""

UPDATES = 0.5
OTHER_STATES = {1: "stopped", 2: "absent", 6: "stopped", 7: "absent"}
"""What controllers want of their VMs in tenths of the times, when there are tenants."""

SLOW_TASKS = ("create_seconds", "clone_seconds_per_gib", "start_seconds", "migrate_seconds", "migrate_start_seconds",
              "migrate_memory_seconds_per_gib", "migrate_switch_seconds", "migrate_cleanup_seconds")  # fmt: skip
"""What is fast when the faults are over: else most requests would ask whether a task still runs."""

TASK_ERRORS = ("unable to create image: no space", "cfs-lock 'storage-shared' error: got lock request timeout")


class Chaos:
    """Makes trouble until it ends."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._rng = history.rng
        # Of their own, so that the other draws of a seed do not depend on them.
        self._wills = random.Random(history.seed + 4)
        self._renames = random.Random(history.seed + 2)
        self._abandons = random.Random(history.seed + 3)
        self._renamed: set[int] = set()
        self._control = Control(history.cluster)
        self._next = 0.0
        self._repairs: list[tuple[float, t.Callable[[], None]]] = []
        self._over = False
        self._often = self._rng.choice([1.0, 4.0, 12.0])
        self._processes = self._rng.randint(3, 7)
        self._kept: list[tuple[str, Task]] = []
        acts = [self._kill, self._pause, self._interrupt, self._lose_node, self._lose_quorum, self._lose_ledger,
                self._fail_tasks, self._create_by_hand, self._remove_by_hand, self._stop_by_hand]  # fmt: skip
        if history.roomy:
            acts += [self._move_by_hand, self._fail_moves, self._kill_mover]
        # With few kinds of trouble at a time, one does not hide what another would show.
        self._acts = [self._start, *self._rng.sample(acts, k=self._rng.randint(0, len(acts)))]

    def begin(self) -> None:
        """Start the first controllers. Those that want different VMs compete for the places alone."""
        names = self._rng.sample(NAMES, k=len(NAMES))
        count = self._rng.randint(2, 4)
        for number in range(count):
            self._create(tuple(names[number::count]) if self._rng.random() < 0.7 else ())
        self._plan()

    def step(self) -> None:
        """Do what is due."""
        now = self._history.actors.now
        for due, repair in [repair for repair in self._repairs if repair[0] <= now]:
            self._repairs.remove((due, repair))
            repair()
        if now < self._next:
            return
        self._plan()
        self._rng.choice(self._acts)()

    def end(self) -> None:
        """Repair everything."""
        self._over = True
        for _due, repair in self._repairs:
            repair()
        self._repairs.clear()
        self._history.weather.clear_up()
        for task in SLOW_TASKS:
            setattr(self._history.cluster.timing, task, 0.2)
        self._history.cluster.faults.clear()
        for process in self._history.processes.values():
            process.frozen_until = 0.0

    def clean_up_by_hand(self) -> bool:
        """What only a human may: remove locks of workers that have died, what these left on other nodes, VMs that were
        renamed, which take the room of those that are wanted, and VMs that lost their disks and kept their config, as
        the quorum was lost in between. And take VMs that nobody wanted as HA resources out of their rules: Proxmox
        knows a resource by its VMID alone, which one may have got as a controller added it.

        Return whether that gives the HA manager something to do.
        """
        cluster = self._history.cluster
        for guest in cluster.guests.values():
            if guest.config_lock == "migrate" and not guest.lock.locked():
                self._history.log(f"a human unlocks VM {guest.vmid}")
                cluster.set_config(guest, lock=None)
            guest.strays.clear()
            guest.half_mirrored = False
            if guest.name.startswith(HUMAN) and cluster.ha.managed(guest):
                self._history.log(f"a human removes VM {guest.vmid} ({guest.name}) from the HA resources")
                cluster.ha.remove(cluster.ha.sid(guest))
        destroyed = {each.id for node in NODES for each in cluster.tasks.of_node(node) if each.kind == "qmdestroy"}
        referee = self._history.referee
        halves = {guest.vmid for guest in referee.ours() if str(guest.vmid) in destroyed and referee.lost_drives(guest)}
        for vmid in sorted((self._renamed | halves) & cluster.guests.keys()):
            self.remove(cluster.guests[vmid])
        failed = sorted(cluster.ha._failed & cluster.ha.resources.keys())
        for sid in failed:
            self._history.log(f"a human takes {sid} out of state error")
            self._do(lambda sid=sid: (cluster.ha.set_state(sid, "disabled"), cluster.ha.set_state(sid, "started")))
        return bool(failed)

    def next_time(self) -> float | None:
        """When something is to be done."""
        return None if self._over else min([self._next, *(due for due, _repair in self._repairs)])

    def _plan(self) -> None:
        self._next = self._history.actors.now + self._rng.expovariate(1 / self._often)

    def _later(self, least: float, most: float, repair: t.Callable[[], None]) -> None:
        self._repairs.append((self._history.actors.now + self._rng.uniform(least, most), repair))

    # --- controllers ---

    def _start(self) -> None:
        if not self._history.roomy or self._rng.random() < 0.4:
            self._create()
        else:
            self._move()

    def _create(self, names: tuple[str, ...] = ()) -> None:
        names = names or tuple(name for name in NAMES if self._rng.random() < 0.6) or NAMES[:1]
        will, task = self._wills.random(), Task(names=names)
        if self._history.tenants.are_busy:
            options = {"update": True} if will < UPDATES else {}
            task = replace(task, options=options, state=OTHER_STATES.get(int(will * 10)))
        self._begin(task)

    def _move(self) -> None:
        """Let a controller drain a node, give one back, rebalance, or maintain two nodes."""
        drained = self._history.drained()
        node = self._rng.choice(NODES)
        kind = self._rng.choice(["drained", "drained", "active", "rebalance", "tour"])
        if kind == "rebalance":
            goals = self._rng.choice([["repair"], ["repair", "balance"], ["consolidate"]])
            self._begin(Task("cluster_rebalance", options={"goals": goals}))
        elif kind == "tour":
            if len(self._history.processes) < self._processes:
                self._history.start(Task(TOUR, tuple(self._rng.sample(NODES, 2))), self._rng.choice("ab"))
        elif kind == "active" and drained:
            self._begin(Task("node_drain", (self._rng.choice(drained),), {"state": "active"}))
        elif node in drained or len(drained) < MOST_DRAINED:
            self._begin(Task("node_drain", (node,)))

    def _begin(self, task: Task) -> None:
        """Let a controller do it, only plan it, or carry out what another one has planned."""
        if len(self._history.processes) >= self._processes:
            return
        kept = [(name, planned) for name, planned in self._kept if self._history.plan_file(name).exists()]
        if kept and self._rng.random() < 0.7:
            name, planned = self._rng.choice(kept)
            task = planned.applying(name)
        elif self._rng.random() < 0.25:
            name = f"plan-{len(self._kept) + 1}.json"
            self._kept.append((name, task))
            self._processes += 1
            task = task.keeping(name)
        error = self._rng.choice([0.0, 0.0, 0.0, -300.0, 300.0])
        self._history.start(task, self._rng.choice("ab"), error)

    def _one(self) -> Process | None:
        alive = [process for process in self._history.processes.values() if not process.ended and not process.killed]
        return self._rng.choice(alive) if alive else None

    def _kill(self) -> None:
        if process := self._one():
            self._history.log(f"{process.name} is killed")
            process.killed = True

    def _kill_mover(self) -> None:
        """Kill a controller while a move of its own is under way."""
        movers = [asked.by for asked in self._history.referee.moves.under_way() if not asked.by.killed]
        if movers:
            process = self._rng.choice(movers)
            self._history.log(f"{process.name} is killed as it moves a guest")
            process.killed = True

    def _pause(self) -> None:
        if process := self._one():
            seconds = self._rng.choice([3.0, 20.0, 70.0])
            self._history.log(f"{process.name} is paused for {seconds:g} s")
            process.frozen_until = self._history.actors.now + seconds

    def _interrupt(self) -> None:
        if process := self._one():
            if self._abandons.random() < 0.5:
                self._abandon(process)
                return
            self._history.log(f"{process.name} is interrupted")
            process.interrupt()

    def _abandon(self, process: Process) -> None:
        """End what the controller works for. It notices that when it is about to write, and a little later anyway."""
        self._history.log(f"nobody waits for {process.name} any more")
        process.abandoned = True
        self._later(0.0, LOOK_EVERY, process.interrupt)

    # --- the cluster and the ledger ---

    def _lose_node(self) -> None:
        nodes = self._history.cluster.nodes
        node = self._rng.choice(list(nodes.values()))
        if not all(other.online for other in nodes.values()):
            return
        self._history.log(f"{node.name} is lost")
        self._set_node(node.name, online=False)
        self._later(5, 60, lambda: self._set_node(node.name, online=True))

    def _set_node(self, name: str, *, online: bool) -> None:
        if online:
            self._history.log(f"{name} is back")
        self._do(lambda: self._control.set_node(_Asked(name), {"online": online, "known": False}))

    def _lose_quorum(self) -> None:
        self._history.log("the quorum is lost")
        self._history.cluster.quorate = False
        self._later(1, 30, lambda: setattr(self._history.cluster, "quorate", True))

    def _lose_ledger(self) -> None:
        self._history.log("the ledger is gone")
        self._history.weather.ledger_down = True
        self._later(1, 40, lambda: setattr(self._history.weather, "ledger_down", False))

    def _fail_tasks(self) -> None:
        fault: dict[str, t.Any] = {"path": CREATES, "method": "POST", "count": self._rng.randint(1, 3)}
        kind = self._rng.choice(["error", "slow"])
        fault |= (
            {"task_error": self._rng.choice(TASK_ERRORS)}
            if kind == "error"
            else {"task_seconds": self._rng.choice([25.0, 80.0])}
        )
        self._history.log(f"the next {fault['count']} creations: {fault.get('task_error', 'slow')}")
        self._history.cluster.faults.add(fault)

    def _fail_moves(self) -> None:
        fault: dict[str, t.Any] = {"path": MOVES, "method": "POST", "count": self._rng.randint(1, 3)}
        kind = self._rng.choice(["error", "slow", "killed"])
        fault |= {
            "error": {"task_error": "migration problems"},
            "slow": {"task_seconds": self._rng.choice([25.0, 80.0])},
            "killed": {"task_killed": True},
        }[kind]
        self._history.log(f"the next {fault['count']} migrations: {kind}")
        self._history.cluster.faults.add(fault)

    # --- a human ---

    def _create_by_hand(self) -> None:
        guests = self._history.cluster.guests
        vmid = next(vmid for vmid in range(101, 999) if vmid not in guests)
        node = self._rng.choice(list(self._history.cluster.nodes))
        self._history.log(f"a human creates VM {vmid} on {node}")
        config = identity.created(self._history.cluster, {"name": f"{HUMAN}{vmid}", "memory": "16", "boot": " "})
        self._do(lambda: self._history.cluster.add_guest(Guest(vmid, node, config=config)))

    def _remove_by_hand(self) -> None:
        ours = [guest for guest in self._history.referee.ours() if not guest.config_lock and not guest.lock.locked()]
        if ours:
            self.remove(self._rng.choice(ours))

    def remove(self, guest: Guest) -> None:
        """Let a human remove a guest."""
        self._history.log(f"a human removes VM {guest.vmid} ({guest.name})")
        self._history.referee.removed.add(guest.vmid)
        ha = self._history.cluster.ha
        ha.remove(ha.sid(guest))
        cluster = self._history.cluster
        self._do(lambda: cluster.tasks.start(guest.node, "qmdestroy", guest.vmid, MANAGER, _nothing))
        self._do(lambda: self._control.remove_guest(_Asked(vmid=str(guest.vmid)), {}))

    def _stop_by_hand(self) -> None:
        running = [guest for guest in self._history.referee.ours() if guest.running and not guest.lock.locked()]
        if running:
            guest = self._rng.choice(running)
            if self._renames.random() < RENAMES:
                self._rename_by_hand(guest)
                return
            self._history.log(f"a human stops VM {guest.vmid} ({guest.name})")
            self._do(lambda: self._control.set_guest(_Asked(vmid=str(guest.vmid)), {"status": "stopped"}))

    def _rename_by_hand(self, guest: Guest) -> None:
        """From then on it is another VM to everybody who asks for its former name."""
        name = f"{guest.name}-{guest.vmid}"
        self._history.log(f"a human renames VM {guest.vmid} ({guest.name}) to {name}")
        self._history.referee.renamed(guest.vmid, name)
        self._renamed.add(guest.vmid)
        self._do(lambda: self._control.set_guest(_Asked(vmid=str(guest.vmid)), {"config": {"name": name}}))

    def _move_by_hand(self) -> None:
        """As in the user interface: what is an HA resource is moved by the HA manager."""
        cluster = self._history.cluster
        idle = [guest for guest in self._history.referee.ours() if not guest.config_lock and not guest.lock.locked()]
        idle = [guest for guest in idle if cluster.nodes[guest.node].online]
        if not idle or not cluster.quorate:
            return
        guest = self._rng.choice(idle)
        target = self._rng.choice([name for name, node in cluster.nodes.items() if node.online and name != guest.node])
        self._history.log(f"a human moves VM {guest.vmid} ({guest.name}) from {guest.node} to {target}")
        if cluster.ha.managed(guest):
            self._do(lambda: cluster.ha.manager.request(cluster.ha.sid(guest), "migrate", target))
            return
        work = Migration(cluster, guest, target, MANAGER, Options(online=guest.running, local_disks=True))
        self._do(lambda: cluster.tasks.start(guest.node, "qmigrate", guest.vmid, MANAGER, work.run))

    def _do(self, action: t.Callable[[], object]) -> None:
        """Do something in the simulated cluster."""
        self._history.loop.call_soon(action)
        self._history.loop.settle()


async def _nothing(_task: object) -> None:
    """Leave no trace but the task itself."""


class _Asked:
    """What the control plane reads of a request."""

    query: t.ClassVar[dict[str, str]] = {}

    def __init__(self, name: str = "", vmid: str = "") -> None:
        self.match_info = {"name": name, "vmid": vmid}
