# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workloads that are hard on a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations, islice
from typing import Any

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import build_profiles
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    MIB,
    AffinityTerm,
    Disk,
    GangRef,
    HAIntent,
    HARule,
    Request,
    Selector,
    Snapshot,
    SpreadConstraint,
    Storage,
)

from .engine import snapshot

RULES = 500
PATTERNS = 1025
STORAGES = 100
CLASSES = {
    "fast": {"storages": ["nvme-[a-z0-9]+", "nvme-pool-.*"]},
    "bulk": {"storages": ["hdd-[a-z0-9]+", "hdd-pool-.*"]},
    "scratch": {"storages": ["local-.*"]},
}
"""A third of the storages each; those of the class scratch are local."""

BY_CLASS = {"filters": {"VolumeBinding": {"config": {"storage_classes": CLASSES}}}}

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """VMs that are placed one after the other.

    Attributes:
        request: makes the VM of a number.
        nodes: on how many nodes it is measured.
        most: how many VMs there are on so many nodes.
        cluster: makes the snapshot of so many nodes.
        plugin_config: as the user's file has it.
        profile: the name of the profile.
        fits: whether every VM finds a node; else none does.
        goals: in milliseconds per VM, by the number of nodes.
    """

    title: str
    request: Callable[[int], Request]
    nodes: Sequence[int] = (50, 200)
    most: Callable[[int], int] = lambda nodes: 10 * nodes
    cluster: Callable[[int], Snapshot] = snapshot
    plugin_config: Config = field(default_factory=dict)
    profile: str = "balanced"
    fits: bool = True
    goals: Mapping[int, float] = field(default_factory=dict)

    def scheduler(self, nodes: int) -> Scheduler:
        """A scheduler over a new cluster of so many nodes."""
        profiles = build_profiles(builtin_registry(), self.plugin_config)
        return Scheduler(ClusterState(self.cluster(nodes)), profiles, self.profile)


@dataclass(frozen=True, slots=True)
class Task:
    """Requests that are decided in one run.

    Attributes:
        nodes: on how many nodes, for so many VMs.
        sizes: for how many VMs it is measured, in this order.
    """

    title: str
    run: Callable[[int], list[Request]]
    nodes: Callable[[int], int]
    sizes: tuple[int, ...]


# --- the clusters -----------------------------------------------------------------------------------------------------


def with_rules(nodes: int, rules: int = RULES) -> Snapshot:
    """With HA rules: of the first kind half the nodes, of the second two VMs apart, of the third two VMs together."""
    data = snapshot(nodes)
    names = [node.name for node in data.nodes]
    made = []
    for number in range(rules):
        pair = frozenset({100 + 2 * number, 101 + 2 * number})
        if number % 3 == 0:
            half = dict.fromkeys(names[number % 2 :: 2], 1)
            made.append(HARule(f"rule-{number}", "node-affinity", frozenset(), half, strict=True))
        else:
            made.append(HARule(f"rule-{number}", "resource-affinity", pair, positive=number % 3 == 2))
    # Two VMs that a rule keeps together are on one node.
    together = {vmid: min(r.vmids) for r in made if r.positive and r.vmids for vmid in r.vmids}
    at = {guest.vmid: guest.node for guest in data.guests}
    guests = tuple(replace(g, node=at[together.get(g.vmid, g.vmid)], ha_managed=True) for g in data.guests)
    return replace(data, guests=guests, ha_rules=tuple(made))


def with_storages(nodes: int, storages: int = STORAGES) -> Snapshot:
    """With so many storages on each node, a third of them local."""
    names = [f"{('nvme-pool', 'hdd-pool', 'local')[number % 3]}-{number:03d}" for number in range(storages)]
    data = snapshot(nodes)
    return replace(
        data,
        storages=tuple(
            Storage(name, node.name, "rbd", shared=not name.startswith("local"), total=(1000 + number) * nodes * GIB)
            for node in data.nodes
            for number, name in enumerate(names)
        ),
    )


# --- the VMs ----------------------------------------------------------------------------------------------------------


def _in_rule(rules: int) -> Callable[[int], Request]:
    return lambda number: Request(f"web-{number}", cores=1, memory=GIB, ha=HAIntent(rule=f"rule-{number % rules}"))


CLASS_DISKS = (
    Disk("scsi0", 32 * GIB, storage_class="fast"),
    Disk("scsi1", 8 * GIB, storage_class="bulk"),
    Disk("scsi2", 4 * GIB, storage_class="scratch"),
)
DISKS = (Disk("scsi0", 32 * GIB), Disk("scsi1", 8 * GIB))


def _classed(number: int) -> Request:
    return Request(f"web-{number}", cores=1, memory=GIB, disks=CLASS_DISKS)


def _different(number: int) -> Request:
    """Another size, another disk and another rule for each."""
    return Request(
        f"web-{number}",
        cores=1 + number % 7,
        memory=(512 + number % 4001) * MIB,
        disks=(Disk("scsi0", (1 + number) * 64 * MIB, ("local", "ceph")[number % 2]),),
        tags=frozenset({f"app-{number}"}),
        affinity=(AffinityTerm(False, Selector(tags=frozenset({f"app-{number}"}))),),
    )


def _grouped(number: int) -> Request:
    """Ten VMs each in a zone of their own group's, on a node apart from each other."""
    mine = Selector(tags=frozenset({f"app-{number // 10}"}))
    terms = (AffinityTerm(True, mine, topology_key="zone"), AffinityTerm(False, mine))
    return Request(f"web-{number}", cores=1, memory=GIB, tags=mine.tags, affinity=terms)


def _soft(shapes: int) -> Callable[[int], Request]:
    web = Selector(name="web-.*")
    terms = (AffinityTerm(False, web, required=False),)
    spread = (SpreadConstraint("zone", web, hard=False),)
    return lambda number: Request(
        f"web-{number}", cores=1, memory=(1024 + 16 * (number % shapes)) * MIB, affinity=terms, topology_spread=spread
    )


def _shaped(shapes: int) -> Callable[[int], Request]:
    return lambda number: Request(f"web-{number}", cores=1 + number % 8, memory=(512 + 8 * (number % shapes)) * MIB)


@cache
def _patterns() -> list[AffinityTerm]:
    letters = "abcdefghijklm"
    names = islice(("".join(some) for some in combinations(letters, 5)), PATTERNS)
    return [AffinityTerm(False, Selector(name=f"db-{name}-.*")) for name in names]


def _patterned(number: int) -> Request:
    """Each VM apart from those of one of the patterns, in turn."""
    return Request(f"web-{number}", cores=1, memory=GIB, affinity=(_patterns()[number % PATTERNS],))


def _spread(number: int) -> Request:
    """Spread evenly over the nodes, by a pattern of names."""
    spread = (SpreadConstraint("node", Selector(name="web-.*")),)
    return Request(f"web-{number}", cores=1, memory=GIB, topology_spread=spread)


def _too_large(number: int) -> Request:
    return Request(f"web-{number}", cores=1, memory=1024 * GIB + number * MIB)


def _plain(number: int) -> Request:
    return Request(f"web-{number}", cores=1, memory=GIB)


def _apart(number: int) -> Request:
    """Rather apart from guests that exist."""
    term = AffinityTerm(False, Selector(name="db-1.*"), required=False)
    return Request(f"web-{number}", cores=1, memory=GIB, affinity=(term,))


WORKLOADS = {
    "ha-rules": Workload(f"{RULES} HA rules", _in_rule(RULES), cluster=with_rules, most=lambda _: 200),
    "classes": Workload(
        f"storage classes by pattern, {STORAGES} storages, 3 drives",
        _classed,
        nodes=(16, 50),
        cluster=with_storages,
        plugin_config=BY_CLASS,
        goals={50: 0.7},
    ),
    "drives": Workload(
        "two drives, storage to be chosen", lambda number: Request(f"web-{number}", cores=1, memory=GIB, disks=DISKS)
    ),
    "failover": Workload(
        "FailoverHeadroom", _plain, nodes=(16, 50), plugin_config={"filters": {"FailoverHeadroom": {"enable": True}}}
    ),
    "different": Workload("every VM different", _different),
    "groups": Workload("groups of 10 with affinity and anti-affinity", _grouped),
    "soft": Workload("soft affinity and soft spread", _soft(1)),
    "soft-shapes": Workload("the same with 40 shapes", _soft(40)),
    "spread-profile": Workload("profile spread", _plain, profile="spread"),
    "spread": Workload("hard spread over nodes, by a pattern of names", _spread, goals={50: 0.3}),
    "shapes-300": Workload("300 shapes in turn", _shaped(300)),
    "patterns": Workload(f"anti-affinity by {PATTERNS} name patterns", _patterned, nodes=(50,), most=lambda _: 2500),
    "nowhere": Workload("a VM that fits nowhere, each different", _too_large, fits=False),
}


# --- whole runs -------------------------------------------------------------------------------------------------------


def gangs(vms: int) -> list[Request]:
    """Groups of 5, one VM of each in turn. There is room for a quarter of them: for 5 VMs on each node."""
    groups = vms // 5
    return [
        Request(f"web-{number}", cores=1, memory=90 * GIB, gang=GangRef(f"group-{number % groups}"))
        for number in range(vms)
    ]


def chain(vms: int) -> list[Request]:
    """Each VM must be with the next; the last one, which may be anywhere, comes last."""
    return [
        Request(
            f"link-{number}",
            cores=1,
            memory=GIB,
            affinity=(AffinityTerm(True, Selector(name=f"link-{number + 1}")),) if number + 1 < vms else (),
        )
        for number in range(vms)
    ]


TASKS = {
    "gangs": Task("gangs of 5, a quarter of which fits", gangs, lambda vms: vms // 20, (100, 200, 400)),
    "chain": Task("a chain of VMs, each affine to the next", chain, lambda _vms: 50, (25, 50, 100)),
}


# --- what makes the others larger -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Growth:
    """One number that grows, and VMs that meet it.

    Attributes:
        sizes: the numbers.
        workload: the VMs of a number, and their cluster.
        nodes: on how many nodes; None: the number is that of nodes.
    """

    what: str
    sizes: tuple[int, ...]
    workload: Callable[[int], Workload]
    nodes: int | None = None


GROWTHS = (
    Growth("nodes", (10, 100, 1000), lambda _n: Workload("", _plain)),
    Growth("VMs of the run", (100, 1000, 5000), lambda vms: Workload("", _plain, most=lambda _: vms), 100),
    Growth(
        "VMs of a run that is spread over nodes",
        (50, 500, 2500),
        lambda vms: Workload("", _spread, most=lambda _: vms),
        50,
    ),
    Growth(
        "HA rules",
        (10, 100, 500),
        lambda n: Workload("", _in_rule(n), cluster=lambda nodes: with_rules(nodes, n), most=lambda _: 200),
        100,
    ),
    Growth(
        "storages",
        (9, 30, 99),
        lambda n: Workload("", _classed, cluster=lambda m: with_storages(m, n), plugin_config=BY_CLASS),
        16,
    ),
    Growth(
        "guests of each node",
        (10, 50, 100),
        lambda n: Workload("", _apart, cluster=lambda nodes: snapshot(nodes, n), most=lambda _: 200),
        100,
    ),
)
