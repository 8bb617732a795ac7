# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold after every step of a history, and at its end."""

from __future__ import annotations

import re
import typing as t
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from law.law import InForce, Overcommit, broken
from law.steps import broken_step
from simulated_cluster.cluster import Cluster
from simulated_cluster.ha_rules import nodes_of, resources_of
from simulated_cluster.model import Guest as SimulatedGuest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    Decision,
    Guest,
    HARule,
    Node,
    Request,
    Snapshot,
)

from .actors import Process
from .moves import Moves
from .wishes import TENANT

RULES = InForce(frozenset({"MemoryOvercommit", "VMAffinity"}), memory=Overcommit(1.0, include_stopped=True))
HA_RULES = InForce(frozenset({"HARules"}))
RULES_OF_MOVES = replace(RULES, rules=RULES.rules | HA_RULES.rules)
_CREATES = re.compile(r"/nodes/([^/]+)/qemu(?:/\d+/clone)?$")


class Broken(AssertionError):
    """What must hold does not."""


class Referee:
    """Looks at the cluster itself, not at what its API shows.

    A guest that a human or the HA manager has brought to a node is no controller's doing: there it counts for nothing,
    until a controller moves it.

    Attributes:
        originals: VMIDs of the guests that are there from the beginning.
        removed: VMIDs of guests that a human has removed, or a controller that was to.
        moves: what controllers move.
    """

    def __init__(self, cluster: Cluster, requests: Mapping[str, Request]) -> None:
        self._cluster = cluster
        self._requests = requests
        self._nodes = tuple(Node(node.name, cores=node.cores, memory=node.memory) for node in cluster.nodes.values())
        self.originals = frozenset(cluster.guests)
        self._base = frozenset(guest.vmid for guest in cluster.guests.values() if not guest.template)
        self._seen: list[t.Any] = []
        self._lawful: t.Any = None
        self._whole = {vmid: guest.name for vmid, guest in cluster.guests.items()}
        self._at: dict[int, str] = {}
        self._placed: set[int] = set()
        self._touched: set[int] = set()
        self._approved: dict[int, set[tuple[int, str]]] = {}
        self._unplanned: list[str] = []
        self.removed: set[int] = set()
        self.moves = Moves(cluster)

    def ours(self) -> list[SimulatedGuest]:
        """The VMs that controllers have made."""
        return [guest for guest in self._cluster.guests.values() if self._request_of(guest) is not None]

    def _request_of(self, guest: SimulatedGuest) -> Request | None:
        """What controllers want of a VM; None if it is not theirs."""
        request = self._requests.get(guest.name)
        return None if request is None or self._cluster.access.pool_of(guest.vmid) == TENANT else request

    def renamed(self, vmid: int, name: str) -> None:
        """Note that a human renames a guest: it is no longer one that controllers have made."""
        if vmid in self._whole:
            self._whole[vmid] = name

    def hold(self, pid: int, plan: Mapping[str, t.Any]) -> None:
        """Hold a process to the plan that it applies: no guest comes to where the plan does not say."""
        moves = {(move["vmid"], move["to"]) for move in plan.get("moves", ())}
        self._approved[pid] = moves | {(vm["vmid"], vm["node"]) for vm in plan.get("vms", ())}

    def note(self, method: str, path: str, sent: Mapping[str, t.Any], response: t.Any, by: Process) -> None:
        """Note the answer to a request."""
        self.moves.note(method, path, sent, response, by)
        match = _CREATES.search(path) if method == "POST" and by.pid in self._approved else None
        if match is not None and response.status == 200:
            vmid, node = int(sent.get("newid") or sent["vmid"]), str(sent.get("target") or match[1])
            self._unplanned += self._beside_the_plan(by, vmid, node)

    def _beside_the_plan(self, by: Process, vmid: int, node: str) -> list[str]:
        if (vmid, node) in self._approved.get(by.pid, {(vmid, node)}):
            return []
        return [f"{by.name} brings {vmid} to {node}, which the plan that it applies does not say"]

    def check(self) -> None:
        """Raise Broken when something does not hold; costs little while nothing has changed."""
        if self._unplanned:
            raise Broken(self._unplanned[0])
        guests, under_way = self._cluster.guests, self.moves.under_way()
        seen: list[t.Any] = [
            (guest.vmid, guest.node, guest.status, guest.config.get("name"), guest.config.get("lock"))
            for guest in guests.values()
        ]
        seen += [asked.upid for asked in under_way]
        if seen == self._seen:
            return
        self._seen = seen
        ours = self.ours()
        twice = [name for name, count in Counter(guest.name for guest in ours).items() if count > 1]
        if twice:
            raise Broken(f"there are several VMs of one name: {twice}")
        self._note_who_moved()
        self._check_law(ours)
        for vmid, name in self._whole.items():
            if vmid not in self.removed and (vmid not in guests or guests[vmid].name != name):
                raise Broken(f"VM {vmid} ({name}) is lost")
        for guest in ours:
            if guest.running:
                self._whole[guest.vmid] = guest.name

    def _note_who_moved(self) -> None:
        # A clone for another node is made on that of its template.
        now = {vmid: guest.node for vmid, guest in self._cluster.guests.items() if guest.config_lock != "clone"}
        for vmid, node in now.items():
            if self._at.get(vmid, node) == node:
                continue
            if self.moves.arrived(vmid, node):
                self._touched.discard(vmid)
            else:
                self._touched.add(vmid)
        self._touched &= now.keys()
        self._at = now

    def _check_law(self, ours: Sequence[SimulatedGuest]) -> None:
        """Ask the law about the moves that have begun, and about all that controllers have made of the cluster."""
        guests = self._cluster.guests
        under_way = [
            each.move
            for each in self.moves.under_way()
            if each.move.vmid in guests and guests[each.move.vmid].node != each.move.target
        ]
        counted = {*self._base, *(guest.vmid for guest in ours)} - self._touched
        for each in self.moves.new():
            step = each.move
            others = [other for other in under_way if other.vmid != step.vmid]
            there = [self._guest(vmid) for vmid in sorted({*counted, step.vmid} & guests.keys())]
            reasons = broken_step(self._snapshot(there), others, step, RULES_OF_MOVES)
            reasons += self._beside_the_plan(each.by, step.vmid, step.target)
            if reasons:
                raise Broken(f"{each.by.name} must not move {step.vmid}: {'; '.join(reasons)}")
        unplaced = [guest for guest in ours if guest.vmid not in self._placed]
        # Guests start, stop and are locked far more often than they come or move, and all of them count anyway.
        law_reads = (
            [(guest.vmid, guest.name, guest.node, guest.maxmem) for guest in map(guests.get, counted) if guest],
            [(move.vmid, move.target) for move in under_way],
        )
        if law_reads == self._lawful and not unplaced:
            return
        self._lawful = law_reads
        copies = [
            replace(self._guest(move.vmid), vmid=-move.vmid, name=None, node=move.target)
            for move in under_way
            if move.vmid in counted
        ]
        base = [self._guest(vmid) for vmid in sorted(self._base & counted & guests.keys())]
        decided = tuple(
            (Decision(self._requests[guest.name], guest.node, guest.vmid), RULES)
            for guest in ours
            if guest.vmid not in self._touched
        )
        reasons = broken(self._snapshot((*base, *copies)), decided)
        if reasons:
            raise Broken(f"the law is broken: {'; '.join(reasons)}")
        for guest in unplaced:
            self._placed.add(guest.vmid)
            self._check_ha_rules(guest, (*base, *copies, *map(self._guest, counted - self._base - {guest.vmid})))

    def _check_ha_rules(self, placed: SimulatedGuest, others: Iterable[Guest]) -> None:
        """Ask the law about the place of a new VM. Later the HA manager keeps its rules, and nobody else knows which
        one a VM is to join that has not joined it yet.
        """
        decision = Decision(self._requests[placed.name], placed.node, placed.vmid)
        reasons = broken(self._snapshot(others), [(decision, HA_RULES)])
        if reasons:
            raise Broken(f"the law is broken: {'; '.join(reasons)}")

    def _snapshot(self, guests: Iterable[Guest]) -> Snapshot:
        rules = tuple(
            HARule(
                name,
                rule["type"],
                frozenset(int(sid.partition(":")[2]) for sid in resources_of(rule)),
                nodes_of(rule),
                strict=bool(rule.get("strict")),
                positive=rule.get("affinity", "positive") == "positive",
            )
            for name, rule in self._cluster.ha.rules.items()
        )
        return Snapshot(self._nodes, tuple(guests), ha_rules=rules)

    def _guest(self, vmid: int) -> Guest:
        """A guest as it counts, whether it runs or not."""
        guest = self._cluster.guests[vmid]
        place: tuple[int, str, str] = (vmid, guest.name, guest.node)
        request = self._request_of(guest)
        if request is None:
            return Guest(*place, status="running", cores=1, memory=guest.maxmem, template=guest.template)
        # Which HA rules hold for it, Proxmox knows: those that it has joined.
        rules = replace(request.constraints, ha=None)
        return Guest(*place, status="running", cores=1, memory=request.memory, constraints=rules)

    def check_goal(self, names: Sequence[str]) -> None:
        """Raise Broken unless each of these VMs is there once and runs, and no guest has lost a disk."""
        running = sorted(guest.name for guest in self.ours() if guest.running)
        if running != sorted(names):
            raise Broken(f"of {', '.join(names)} only {', '.join(running)} run")
        for guest in self.ours():
            for key in self.lost_drives(guest):
                raise Broken(f"{key} of VM {guest.vmid} ({guest.name}) is not on {guest.node}")

    def lost_drives(self, guest: SimulatedGuest) -> list[str]:
        """The drives of a guest whose volumes are not on its node."""
        volumes = self._cluster.volumes
        return [key for key, drive in guest.drives().items() if volumes.find(drive["file"], guest.node) is None]

    def check_drained(self, node: str) -> None:
        """Raise Broken when a guest is on the node."""
        left = [guest.vmid for guest in self._cluster.guests.values() if guest.node == node]
        if left:
            raise Broken(f"{node} is drained, and has {left}")
