# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who balances a cluster in a replay: nobody, this collection, this collection with knowledge of the future, ProxLB."""

from __future__ import annotations

import importlib
import sys
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.demand import (
    CPU,
    MEASURED,
    MEMORY,
    USED,
    Demand,
    Departure,
    Grid,
    Usage,
    as_placed,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.planner.planner import make_plan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import build_profiles
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Guest, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Balance, Goals
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.balancing import DEFAULTS

from .hard_clusters import all_movable
from .traces import DAY, STEP, Trace

SLOT = 1800 // STEP
COOLDOWN = 3600
PROFILES = build_profiles(builtin_registry())


@dataclass
class Cluster:
    """A cluster in a replay.

    Attributes:
        traces: what each guest uses of its CPUs, by VMID.
        past: the cores that each node used in each step so far.
        departures: the moves so far.
    """

    snapshot: Snapshot
    traces: Mapping[int, Trace]
    past: dict[str, list[float]] = field(default_factory=dict)
    departures: list[Departure] = field(default_factory=list)

    def cores(self, guest: Guest, at: int) -> float:
        """What a guest uses at a step."""
        return self.traces[guest.vmid][at] * guest.cores

    def move(self, vmid: int, node: str, at: int) -> None:
        """Move a guest."""
        guests = {guest.vmid: guest for guest in self.snapshot.guests}
        self.departures.append(Departure(at * STEP, vmid, guests[vmid].node))
        guests[vmid] = replace(guests[vmid], node=node)
        self.snapshot = replace(self.snapshot, guests=tuple(guests.values()))


class Balancer(t.Protocol):
    """Decides which guests move at a step of a replay, as (VMID, node)."""

    def __call__(self, cluster: Cluster, at: int) -> list[tuple[int, str]]: ...


def nobody(_cluster: Cluster, _at: int) -> list[tuple[int, str]]:
    """Moves nothing."""
    return []


def collection(cluster: Cluster, at: int) -> list[tuple[int, str]]:
    """balance: {by: used}, with its defaults."""
    return _planned(cluster, at, at - DAY)


def oracle(cluster: Cluster, at: int) -> list[tuple[int, str]]:
    """The same planner, which is given the next day instead of the last one."""
    count = len(next(iter(cluster.traces.values())))
    first = min(at, count - DAY)
    return _planned(cluster, at, first, known=True)


def _planned(cluster: Cluster, at: int, first: int, *, known: bool = False) -> list[tuple[int, str]]:
    """What the planner does with the day that begins at the step first. known: the day has not been yet."""
    snapshot = cluster.snapshot
    grid = Grid(first * STEP, SLOT * STEP, DAY // SLOT)
    guests = {
        guest.vmid: {
            CPU: Demand(
                MEASURED, _slots([value * guest.cores for value in cluster.traces[guest.vmid][first : first + DAY]])
            ),
            MEMORY: Demand(MEASURED, (float(guest.memory) / 2,) * grid.count),
        }
        for guest in snapshot.guests
    }
    nodes: dict[str, dict[str, tuple[float | None, ...]]] = {node.name: {} for node in snapshot.nodes}
    for node in snapshot.nodes:
        here = [guest for guest in snapshot.guests if guest.node == node.name]
        nodes[node.name][MEMORY] = (sum(guest.memory for guest in here) / 2,) * grid.count
        if known:
            curves = [guests[guest.vmid][CPU].curve for guest in here]
            nodes[node.name][CPU] = tuple(sum(value or 0 for value in slot) for slot in zip(*curves, strict=True))
        else:
            nodes[node.name][CPU] = _slots(cluster.past[node.name][first : first + DAY])
    if not known:
        places = {guest.vmid: guest.node for guest in snapshot.guests}
        only_cpu = {vmid: {CPU: demands[CPU]} for vmid, demands in guests.items()}
        nodes = as_placed(nodes, only_cpu, places, cluster.departures, grid)
    capacity = {node.name: {CPU: float(node.cores), MEMORY: float(node.memory)} for node in snapshot.nodes}
    recent = frozenset(each.vmid for each in cluster.departures if each.time > at * STEP - COOLDOWN)
    moved = [each for each in cluster.departures if each.time >= (at - DAY) * STEP]
    usage = Usage(grid, nodes, capacity, guests, moved)
    goals = Goals(balance=Balance(by=USED, **DEFAULTS[USED]), resting=recent, usage=usage)
    plan = make_plan(ClusterState(snapshot), PROFILES, goals, all_movable(snapshot))
    return [(move.vmid, move.target) for move in plan.moves]


def _slots(values: Trace) -> tuple[float | None, ...]:
    return tuple(sum(values[at : at + SLOT]) / SLOT for at in range(0, len(values), SLOT))


# --- ProxLB -----------------------------------------------------------------------------------------------------------


class ProxLB:
    """The algorithm of ProxLB, from a checkout outside of this one, by used CPU and otherwise with its defaults.

    What it reads from Proxmox VE is what it would read: the CPU of each node of the moment, and the mean of the last
    hour of each guest.
    """

    def __init__(self, checkout: Path, *, in_cores: bool = False) -> None:
        """in_cores: count what guests use in cores, as it does for nodes. ProxLB 2.2 counts a fraction of their CPUs,
        and so takes a guest for smaller than it is.
        """
        self._in_cores = in_cores
        sys.path.insert(0, str(checkout))
        self._data = importlib.import_module("proxlb.utils.proxlb_data").ProxLbData
        self._config = importlib.import_module("proxlb.utils.config_parser").Config
        self._calculations = importlib.import_module("proxlb.models.calculations").Calculations
        self._groups = importlib.import_module("proxlb.models.groups").Groups

    def __call__(self, cluster: Cluster, at: int) -> list[tuple[int, str]]:
        data = self._read(cluster, at)
        run = self._calculations
        run.set_node_assignments(data)
        if run.get_most_free_node(data) is None:
            return []
        run.validate_affinity_map(data)
        run.relocate_guests_on_maintenance_nodes(data)
        run.get_balanciness(data)
        run.relocate_guests(data)
        return [
            (guest.id, guest.node_target) for guest in data.guests.values() if guest.node_target != guest.node_current
        ]

    def _read(self, cluster: Cluster, at: int) -> t.Any:
        nodes, guests = {}, {}
        data, snapshot = self._data, cluster.snapshot
        for node in snapshot.nodes:
            here = [guest for guest in snapshot.guests if guest.node == node.name]
            cpu = min(sum(cluster.cores(guest, at - 1) for guest in here), float(node.cores))
            memory = sum(guest.memory for guest in here) / 2
            nodes[node.name] = data.Node(
                name=node.name, pve_version="9.1", maintenance=False, pressure_hot=False,
                cpu=self._of_node(node.cores, cpu), memory=self._of_node(node.memory, memory), disk=self._of_node(1, 0),
            )  # fmt: skip
        for guest in snapshot.guests:
            hour = cluster.traces[guest.vmid][at - 3600 // STEP : at]
            guests[guest.name or ""] = data.Guest(
                name=guest.name, id=guest.vmid, node_current=guest.node, node_target=guest.node, processed=False,
                cpu=self._of_guest(int(guest.cores), sum(hour) / len(hour) * (guest.cores if self._in_cores else 1)),
                memory=self._of_guest(guest.memory, guest.memory // 2), disk=self._of_guest(1, 0), pressure_hot=False,
                tags=[], pools=[], ha_rules=[], affinity_groups=[], anti_affinity_groups=[], ignore=False,
                node_relationships=[], node_relationships_strict=False, type=self._config.GuestType.Vm,
            )  # fmt: skip
        balancing = data.Meta.Balancing(enable=True, method="cpu", mode="used")
        return data(
            meta=data.Meta.model_construct(balancing=balancing), nodes=nodes, guests=guests, pools={}, ha_rules={},
            groups=self._groups.get_groups(guests, nodes),
        )  # fmt: skip

    def _of_node(self, total: float, used: float) -> t.Any:
        return self._data.Node.Metric(
            total=int(total), assigned=0, used=used, free=total - used, assigned_percent=0,
            free_percent=100 * (total - used) / total, used_percent=100 * used / total, **_NO_PRESSURE,
        )  # fmt: skip

    def _of_guest(self, total: int, used: float) -> t.Any:
        return self._data.Guest.Metric(total=total, used=used, **_NO_PRESSURE)


_NO_PRESSURE = {
    "pressure_some_percent": 0.0,
    "pressure_full_percent": 0.0,
    "pressure_some_spikes_percent": 0.0,
    "pressure_full_spikes_percent": 0.0,
    "pressure_hot": False,
}
