# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what a plan needs to know of the nodes because of the guests that move: CPUs, CPU types, snippets, devices."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...engine.cache import ClusterState
from ...engine.plugins.nodes import COMMON_CPU_TYPES
from ...engine.profiles import Profile
from ...engine.scheduling_cycle import Scheduler
from ...model import NO_DEMANDS, Demands, Guest, Node, Processor, Request, Snapshot
from ...plans import LIVE, Mobility, Move
from ...proxmox.api.reader import Reader, in_parallel
from ...proxmox.inventory.nodes import (
    read_newest_machine,
    read_processor,
    with_cpu_flags,
    with_cpu_types,
)
from ...proxmox.moves.demands import OF_ITS_NODE, with_lesser_processors
from ...proxmox.moves.mobility_ha import Surroundings


def _is_particular(demands: Demands) -> bool:
    """Whether not every node can give what is demanded: a CPU of a type or with flags, devices, snippets."""
    common = demands.cpu_type is None or demands.cpu_type in COMMON_CPU_TYPES - OF_ITS_NODE
    return bool(demands.devices or demands.cpu_flags or demands.named) or not common


@dataclass(eq=False)
class Suitability:
    """Adds to clusters what their nodes offer, reading it at most once in a run, except for devices.

    Attributes:
        reads: how often something had to be read.
    """

    reader: Reader
    reads: int = 0
    _processors: dict[str, Processor | None] = field(default_factory=dict)
    _types: dict[str, Node] = field(default_factory=dict)
    _flags: dict[str, Node] = field(default_factory=dict)
    _machines: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    _named: set[tuple[str, str]] = field(default_factory=set)
    _has: dict[str, dict[tuple[str, str], bool]] = field(default_factory=dict)

    def with_processors(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the CPUs of its nodes. One request for each node."""
        due = [node.name for node in snapshot.nodes if node.online and node.name not in self._processors]
        self.reads += bool(due)
        self._processors |= in_parallel(functools.partial(read_processor, self.reader), due)
        nodes = (replace(node, processor=self._processors.get(node.name)) for node in snapshot.nodes)
        return replace(snapshot, nodes=tuple(nodes))

    def refusal(self, snapshot: Snapshot, guest: Guest, demands: Demands, move: Move, profile: Profile) -> str | None:
        """Return why the target of a move cannot give a guest the CPU or the devices that it demands, if so."""
        if not _is_particular(demands):
            return None
        if move.how == LIVE and demands.cpu_type in OF_ITS_NODE:
            around = Surroundings.of(self.with_processors(snapshot), {})
            lesser = dict(with_lesser_processors(demands, guest, around))
            if move.target in lesser:
                return lesser[move.target]
        state = self.with_demands(ClusterState(snapshot), {guest.vmid: Mobility(demands=demands)})
        target = state.by_name.get(move.target)
        if target is None:
            return "is gone"
        state.remove(guest.vmid)
        # Its rules and sizes are none of this question.
        request = Request(
            "",
            vmid=guest.vmid,
            tolerations=guest.constraints.tolerations,
            cpu_type=demands.cpu_type,
            cpu_flags=demands.cpu_flags,
            devices=demands.devices,
            named=demands.named,
            existing=True,
        )
        scheduler = Scheduler(state, {profile.name: profile}, profile.name)
        found = scheduler.refusals(request, nodes=(target,))[target.name].values()
        return next((status.text for status in found), None)

    def with_demands(self, state: ClusterState, known: Mapping[int, Mobility]) -> ClusterState:
        """Return the state with what these guests ask of nodes, and with what nodes offer of that. Makes requests only
        for guests that name a CPU type, flags or snippets, or have mapped devices.
        """
        found = {vmid: each.demands for vmid, each in known.items() if each.demands != NO_DEMANDS}
        guests = tuple(replace(guest, demands=found.get(guest.vmid, guest.demands)) for guest in state.guests.values())
        if guests == tuple(state.guests.values()):
            return state
        snapshot = self.with_processors(replace(state.snapshot, guests=guests))
        snapshot = self._with_cpu_types(snapshot, found)
        if any(each.named for each in found.values()):
            snapshot = self._with_named(snapshot, found)
        if any(each.devices for each in found.values()):
            snapshot = self._with_devices(snapshot, found)
        return ClusterState(snapshot)

    def without_older_machines(self, snapshot: Snapshot, known: Mapping[int, Mobility]) -> dict[int, Mobility]:
        """Return how guests of which some have a fixed machine version can be moved: not to nodes whose QEMU is older.
        One request for each node, once.
        """
        due = [node.name for node in snapshot.nodes if node.online and node.name not in self._machines]
        self._machines |= in_parallel(functools.partial(read_newest_machine, self.reader), due)

        def exclude_older(each: Mobility) -> Mobility:
            wanted = each.demands.machine
            older = {node: newest for node, newest in self._machines.items() if wanted and newest and newest < wanted}
            if wanted is None or not older:
                return each
            why = f"had a QEMU without machine version {wanted[0]}.{wanted[1]}"
            return replace(each, not_to={**dict.fromkeys(older, why), **each.not_to})

        return {vmid: exclude_older(each) for vmid, each in known.items()}

    def _with_cpu_types(self, snapshot: Snapshot, found: Mapping[int, Demands]) -> Snapshot:
        """Read the CPU types that nodes support, if guests that may move need one."""
        if not self._types and any(each.cpu_type not in (None, *COMMON_CPU_TYPES) for each in found.values()):
            self.reads += 1
            self._types = {node.name: node for node in with_cpu_types(self.reader, snapshot.nodes)}
        if not self._flags and any(each.cpu_flags for each in found.values()):
            self.reads += 1
            self._flags = {node.name: node for node in with_cpu_flags(self.reader, snapshot.nodes)}
        nodes = []
        for node in snapshot.nodes:
            types, flags = self._types.get(node.name, node), self._flags.get(node.name, node)
            nodes.append(replace(node, cpu_models=types.cpu_models, cpu_flags=flags.cpu_flags))
        return replace(snapshot, nodes=tuple(nodes))

    def _with_named(self, snapshot: Snapshot, found: Mapping[int, Demands]) -> Snapshot:
        wanted = {named for each in found.values() for named in each.named}
        due = wanted - self._named
        if due:
            from ...proxmox.inventory.named import with_named

            self.reads += 1
            self._named |= due
            for node in with_named(self.reader, snapshot.nodes, snapshot.storages, due):
                self._has.setdefault(node.name, {}).update(node.has)
        nodes = (replace(node, has={**node.has, **self._has.get(node.name, {})}) for node in snapshot.nodes)
        return replace(snapshot, nodes=tuple(nodes))

    def _with_devices(self, snapshot: Snapshot, found: Mapping[int, Demands]) -> Snapshot:
        """Read the mapped devices that guests that may move need, if they were not read before."""
        there = {(device.driver, device.mapping) for device in snapshot.devices}
        wanted = {(claim.driver, claim.mapping) for each in found.values() for claim in each.devices} - there
        if not wanted:
            return snapshot
        from ...proxmox.inventory.mappings import DeviceNeeds, read_devices

        self.reads += 1
        needs = DeviceNeeds(device=lambda device, _node: (device.driver, device.mapping) in wanted)
        devices, mappings = read_devices(self.reader, snapshot.nodes, snapshot.guests, needs)
        new = tuple(device for device in devices if (device.driver, device.mapping) in wanted)
        return replace(snapshot, devices=(*snapshot.devices, *new), mappings=mappings)
