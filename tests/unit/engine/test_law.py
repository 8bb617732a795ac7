# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The law: what the scheduler decides never breaks it, and a fault planted in the scheduler does."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law.in_force import rules_in_force
from law.law import InForce, broken
from support.effort import lines_run
from support.random_clusters import requests, snapshots
from support.small_cluster import guest, node, profile, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.allocatable import MemoryLimit
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch import place_batch
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch_cycle import schedule_all
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import (
    ClusterState,
    DeviceUse,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.ha_placement import HARules
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.limits import VCPULimit
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.nodes import (
    NodeAffinity,
    NodeName,
    NodeReady,
    NodeRegex,
    TaintToleration,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.storages import (
    VolumeBinding,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.topology_spread import (
    TopologySpread,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.vm_affinity import VMAffinity
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.verdicts import Outcome
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    Constraints,
    Decision,
    Device,
    DeviceClaim,
    Disk,
    Expression,
    GangRef,
    Guest,
    HAIntent,
    HARule,
    Node,
    Request,
    Selector,
    Snapshot,
    SpreadConstraint,
    Storage,
    Taint,
)


def reasons_against(snapshot: Snapshot, batch: Sequence[Request]) -> list[str]:
    """What the law says of the scheduler's decisions about a batch."""
    outcomes = schedule_all(Scheduler(ClusterState(snapshot), {"balanced": profile()}), batch)
    return broken(snapshot, [(decision, InForce()) for decision in in_turn(outcomes)])


def in_turn(outcomes: Sequence[Outcome]) -> list[Decision]:
    """The decisions in the order in which they were made."""
    decisions = [outcome.decision for outcome in outcomes if outcome.decision is not None]
    return sorted(decisions, key=lambda decision: decision.turn)


# --- every decision is lawful ---


DEVICES = st.sampled_from([(), (), (DeviceClaim("gpu"),), (DeviceClaim("gpu", mapping="nic", count=2),)])
RULES_JOINED = st.sampled_from([None, None, HAIntent(rule="west"), HAIntent(rule="pair"), HAIntent(rule="apart")])


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Random clusters with devices, HA rules, own limits and what others have reserved."""
    snapshot = draw(snapshots())
    names = [each.name for each in snapshot.nodes]
    nodes = tuple(
        replace(each, maintenance=draw(st.sampled_from([False, False, False, True])),
                memory_ratio=draw(st.sampled_from([None, None, 0.5])),
                reserved_cores=draw(st.sampled_from([None, None, 1.0])))
        for each in snapshot.nodes
    )  # fmt: skip
    devices = tuple(
        Device("pci", mapping, name, f"0000:0{slot}:00.{function}", in_use=draw(st.integers(0, 1)))
        for name in names
        for slot, mapping in enumerate(("gpu", "nic"), start=1)
        for function in range(draw(st.integers(0, 2)))
    )
    apart = AffinityTerm(False, Selector(name="web-.*"), topology_key="zone")
    constraints = st.sampled_from(
        [
            Constraints(),
            Constraints((apart,)),
            Constraints(ha=HAIntent(rule="pair")),
            Constraints(ha=HAIntent(rule="apart")),
        ]
    )
    reserved = tuple(
        Guest(500 + number, f"web-{number}", draw(st.sampled_from(names)), status="assumed", cores=1, memory=GIB,
              storage_pending={("ceph", names[0]): GIB}, devices=(("pci", "0000:01:00.0"),),
              constraints=draw(constraints))
        for number in range(draw(st.integers(0, 2)))
    )  # fmt: skip
    vmids = frozenset(draw(st.lists(st.sampled_from([100, 102, 900]), max_size=2)))
    rules = (
        HARule("west", "node-affinity", nodes={names[0]: 1}, strict=draw(st.booleans())),
        HARule("pair", "resource-affinity", vmids | {901}),
        HARule("apart", "resource-affinity", frozenset({104, 902}), positive=False, disabled=draw(st.booleans())),
    )
    guests = (*snapshot.guests, *reserved)
    return replace(snapshot, nodes=nodes, guests=guests, devices=devices, ha_rules=rules)


@st.composite
def batches(draw: st.DrawFn) -> list[Request]:
    def one() -> Request:
        return replace(
            draw(requests()),
            cores_max=draw(st.sampled_from([0, 0, 4])),
            devices=draw(DEVICES),
            ha=draw(RULES_JOINED),
            gang=draw(st.sampled_from([None, None, GangRef("team", 2)])),
            vmid=draw(st.sampled_from([None, None, None, 900, 901])),
            node_regex=draw(st.sampled_from([None, None, "pve[0-2]"])),
            priority=draw(st.integers(0, 1)),
            profile=draw(st.sampled_from([None, None, "other"])),
        )

    return [one() for _each in range(draw(st.integers(1, 8)))]


CONFIGS: list[t.Any] = [
    {},
    {"filters": {"MemoryOvercommit": {"config": {"ratio": 1.15, "tags": {"blue": 0.8}, "include_stopped": True}}}},
    {"filters": {"VMAffinity": {"enable": False}, "TopologySpread": {"enable": False}}},
    {"filters": {"GuestLimit": {"config": {"max_guests": 3, "tags": {"blue": 2}}}, "CPUOvercommit": {"enable": False}}},
    {"filters": {"VolumeBinding": {"enable": False}, "DeviceClaims": {"enable": False}}},
]


@settings(max_examples=150, deadline=None)
@given(
    clusters(),
    batches(),
    st.sampled_from(CONFIGS),
    st.sampled_from(CONFIGS),
    st.sampled_from([schedule_all, place_batch]),
)
def test_law__a_scheduling_pass_never_breaks_it(
    snapshot: Snapshot, batch: list[Request], config: t.Any, other: t.Any, place: t.Any
) -> None:
    profiles = {"balanced": profile(config), "other": profile(other, name="other")}
    outcomes = place(Scheduler(ClusterState(snapshot), profiles), batch)
    in_force = {name: rules_in_force(each) for name, each in profiles.items()}
    without_names = {name: replace(each, rules=each.rules - {"Names"}) for name, each in in_force.items()}
    decided = [(each, without_names[each.request.profile or "balanced"]) for each in in_turn(outcomes)]
    assert broken(snapshot, decided) == []


# --- its cost ---

WEB = Selector(name="web-.*")
APART = AffinityTerm(False, WEB)
DISK = Storage("local", "pve1", total=10 * GIB, used=4 * GIB)
CEPH = tuple(Storage("ceph", name, "rbd", shared=True, total=10 * GIB) for name in ("pve1", "pve2"))
GPU = Device("pci", "gpu", "pve1", "0000:01:00.0")


def cluster(*, nodes: tuple[Node, ...] = (node("pve1"), node("pve2")), **fields: t.Any) -> Snapshot:
    return Snapshot(nodes, **fields)


def crowd(size: int) -> tuple[Snapshot, list[tuple[Decision, InForce]]]:
    """So many guests and decisions, with rules."""
    nodes = tuple(node(f"pve{number}", cores=99, gib=999) for number in range(10))
    guests = tuple(guest(1000 + number, f"pve{number % 10}", cores=0, gib=0) for number in range(size))
    storages = tuple(replace(CEPH[0], node=each.name, total=9999 * GIB) for each in nodes)
    rules = (HARule("no", "resource-affinity", frozenset({1000}), positive=False),)
    spread = (SpreadConstraint("node", WEB),)
    decisions = (
        Decision(
            vm(f"web-{number}", 0, 0, disks=(Disk("scsi0", GIB),), affinity=(APART,), topology_spread=spread,
               ha=HAIntent(rule="no")),
            f"pve{number % 10}", 100_000 + number, {"scsi0": "ceph"},
        )
        for number in range(size)
    )  # fmt: skip
    snapshot = Snapshot(nodes, guests, storages, ha_rules=rules)
    return snapshot, [(decision, InForce()) for decision in decisions]


def test_law__costs_in_proportion_to_guests_and_decisions() -> None:
    small, large = crowd(100), crowd(1000)
    broken(*large)  # from now on the patterns know all names
    few = lines_run(lambda: broken(*small), at_most=1_000_000)
    assert lines_run(lambda: broken(*large), at_most=12 * few) > few


# --- a mistake in the engine is caught ---


def accept_all(*arguments: t.Any) -> list[None]:
    """A filter of many nodes that rejects none of them."""
    return [None] * len(arguments[-1])


def accept(*_arguments: t.Any, **_named: t.Any) -> None:
    """A filter that has nothing against any node."""


def one_more(_limit: MemoryLimit, hosts: Iterable[Node], _request: Request | None = None) -> list[tuple[float, float]]:
    """A limit that is one VM too high."""
    return [(host.memory + 8 * GIB, 1.0) for host in hosts]


def counts_guests(state: ClusterState, guest: Guest, sign: int, count: t.Any = ClusterState._count) -> None:
    """Sums that leave out what was decided."""
    count(state, replace(guest, cores=0, memory=0) if guest.status == "assumed" else guest, sign)


def counts_space(state: ClusterState, guest: Guest, sign: int, count: t.Any = ClusterState._count) -> None:
    """Sums that leave out the space that VMs will take."""
    count(state, replace(guest, storage_pending={}), sign)


FULL = tuple(vm(f"app-{number}", gib=8, cores=4) for number in range(10))
KINDS = tuple(vm(f"web-{number}", affinity=(APART,)) for number in range(3))

FAULTS: dict[str, tuple[t.Any, str, t.Any, Snapshot, Sequence[Request], str]] = {
    "a limit that is off by one": (MemoryLimit, "sizes_and_ratios", one_more, cluster(), FULL, "memory of pve1"),
    "decisions that are not counted": (ClusterState, "_count", counts_guests, cluster(), FULL, "memory of pve1"),
    "space that is not counted": (
        ClusterState, "_count", counts_space, cluster(storages=CEPH),
        [vm(f"app-{number}", disks=(Disk("scsi0", 6 * GIB),)) for number in range(2)], "storage ceph",
    ),
    "a drive that is forgotten": (
        VolumeBinding, "reserve", accept, cluster(storages=(DISK,)), [vm(disks=(Disk("scsi0", GIB),))],
        "scsi0 cannot be on storage None",
    ),
    "a device that is counted twice": (
        DeviceUse, "count", accept, cluster(devices=(GPU,)),
        [vm(f"app-{number}", devices=(DeviceClaim("gpu"),)) for number in range(2)], "device pci/0000:01:00.0 of pve1",
    ),
    "a VMID that is taken": (
        Scheduler, "pick_vmid", lambda *_arguments: 300, cluster(vmids_unseen=frozenset({300})), [vm()], "VMID is taken"
    ),
    "a node that is offline": (
        NodeReady, "filter_all", accept_all, cluster(nodes=(node("pve1", online=False),)), [vm()], "NodeReady"
    ),
    "a node that was not asked for": (NodeName, "filter", accept, cluster(), [vm(node="pve3")], "NodeName"),
    "a node outside of the pattern": (NodeRegex, "filter", accept, cluster(), [vm(node_regex="x.*")], "NodeRegex"),
    "a node without the label": (
        NodeAffinity, "filter", accept, cluster(), [vm(node_required=(Expression("rack", "Exists"),))], "NodeAffinity"
    ),
    "a taint": (
        TaintToleration, "filter", accept, cluster(nodes=(node("pve1", taints=(Taint("gpu"),)),)), [vm()],
        "TaintToleration",
    ),
    "more vCPUs than CPUs": (VCPULimit, "filter_all", accept_all, cluster(), [vm(cores=9)], "VCPULimit"),
    "VMs that must be apart": (VMAffinity, "filter", accept, cluster(), KINDS, "is not apart"),
    "VMs that must be spread": (
        TopologySpread, "filter", accept, cluster(nodes=(node("pve1", gib=64), node("pve2", gib=8))),
        [vm(f"web-{number}", gib=4, topology_spread=(SpreadConstraint("node", WEB),)) for number in range(6)], "spread",
    ),
    "VMs that HA keeps apart": (
        HARules, "filter_all", accept_all,
        cluster(nodes=(node("pve1", gib=64), node("pve2", gib=8), node("pve3", gib=8)),
                ha_rules=(HARule("no", "resource-affinity", frozenset({901}), positive=False),)),
        [vm(f"app-{number}", ha=HAIntent(rule="no")) for number in range(2)], "HA rule no",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_law__catches_a_fault_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, fault: tuple[t.Any, str, t.Any, Snapshot, Sequence[Request], str]
) -> None:
    owner, name, instead, snapshot, batch, reason = fault
    assert reasons_against(snapshot, batch) == []
    monkeypatch.setattr(owner, name, instead)
    reasons = reasons_against(snapshot, batch)
    assert any(reason in each for each in reasons), reasons
