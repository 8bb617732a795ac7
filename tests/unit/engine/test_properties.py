# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every cluster and every run of requests: what the cluster counts is right, no rule is broken."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.random_clusters import broken_rules, requests, snapshots
from support.small_cluster import cluster, guest, node, profile, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch_cycle import schedule_all
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState, NodeInfo
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import (
    CycleState,
    Event,
    FilterPlugin,
    PreFilterPlugin,
    ScorePlugin,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import (
    Status,
    unschedulable,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.verdicts import Outcome
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    Decision,
    Disk,
    Request,
    Selector,
    Snapshot,
    SpreadConstraint,
    Storage,
)

PROFILE = profile()
STEPS = st.lists(st.one_of(requests(), st.integers(0, 20)), min_size=1, max_size=14)
"""A request is placed; a number takes back one of the decisions so far, if there are any."""


def fresh(snapshot: Snapshot, used: Scheduler) -> Scheduler:
    """A new scheduler over the state that used has come to, counted from the start."""
    state = ClusterState(snapshot)
    for known in used.cluster.guests.values():
        if known.status == "assumed":
            state.assume(known)
    return Scheduler(state, {"balanced": PROFILE})


def told(outcome: Outcome) -> object:
    return outcome.decision, outcome.message, outcome.verdicts()


@settings(max_examples=300, deadline=None)
@given(snapshots(), STEPS)
def test_cluster_that_was_changed__leads_to_the_decisions_of_one_counted_anew(
    snapshot: Snapshot, steps: list[Request | int]
) -> None:
    used = Scheduler(ClusterState(snapshot), {"balanced": PROFILE})
    placed: list[Decision] = []
    for step in steps:
        if isinstance(step, int):
            if placed:
                used.undo(placed.pop(step % len(placed)))
            continue
        expected = told(fresh(snapshot, used).schedule(step))
        outcome = used.schedule(step)
        assert told(outcome) == expected
        if outcome.decision is not None:
            placed.append(outcome.decision)


@settings(max_examples=200, deadline=None)
@given(snapshots(), STEPS)
def test_no_decision__breaks_a_rule_or_a_limit(snapshot: Snapshot, steps: list[Request | int]) -> None:
    where = Scheduler(ClusterState(snapshot), {"balanced": PROFILE})
    placed: list[Decision] = []
    for step in steps:
        if isinstance(step, int):
            if placed:
                where.undo(placed.pop(step % len(placed)))
            continue
        decision = where.schedule(step).decision
        if decision is None:
            continue
        assert broken_rules(snapshot, placed, decision) == []
        placed.append(decision)
        check_limits(snapshot, placed, decision)


def check_limits(snapshot: Snapshot, placed: list[Decision], last: Decision) -> None:
    """The node of the last decision is not over capacity, no storage is, and no VMID is taken twice."""
    host = next(node for node in snapshot.nodes if node.name == last.node)
    running = [g for g in snapshot.guests if g.node == host.name and g.status == "running" and not g.template]
    here = [d.request for d in placed if d.node == host.name]
    assert host.online
    assert sum(g.cores for g in running) + sum(r.cores for r in here) <= 4 * host.cores
    assert sum(g.memory for g in running) + sum(r.memory for r in here) <= host.memory
    for storage in snapshot.storages:
        nodes = {s.node for s in snapshot.storages if s.name == storage.name} if storage.shared else {storage.node}
        taken = sum(
            size for d in placed for (name, at), size in d.storage_bytes.items() if name == storage.name and at in nodes
        )
        assert taken <= storage.total
    vmids = [g.vmid for g in snapshot.guests] + [d.vmid for d in placed]
    assert len(vmids) == len(set(vmids))


@settings(max_examples=100, deadline=None)
@given(snapshots(), st.lists(requests(), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_order_of_the_snapshot__never_matters(snapshot: Snapshot, wanted: list[Request], chance: random.Random) -> None:
    def shuffled(items: tuple) -> tuple:  # type: ignore[type-arg]
        return tuple(chance.sample(items, len(items)))

    other = replace(
        snapshot,
        nodes=shuffled(snapshot.nodes),
        guests=shuffled(snapshot.guests),
        storages=shuffled(snapshot.storages),
    )
    one = schedule_all(Scheduler(ClusterState(snapshot), {"balanced": PROFILE}), wanted)
    two = schedule_all(Scheduler(ClusterState(other), {"balanced": PROFILE}), wanted)
    assert [told(outcome) for outcome in one] == [told(outcome) for outcome in two]


def test_vm_in_the_way__is_the_same_one_in_whatever_order_the_guests_come() -> None:
    guests = [guest(101, "pve1", name="web-2"), guest(100, "pve1", name="web-1")]
    apart = (AffinityTerm(False, Selector(name="web-.*")),)
    messages = {
        scheduler(cluster([node("pve1")], some)).schedule(vm("web-3", affinity=apart)).verdicts()[0].reason
        for some in (guests, guests[::-1])
    }
    assert messages == {"held VMs that the VM must be apart from (web-1)"}


def test_equal_scores__go_to_the_name_that_sorts_first() -> None:
    state = cluster([node("pve3"), node("pve1"), node("pve2")])
    decisions = [scheduler(state).schedule(vm(f"vm-{number}")).decision for number in range(3)]
    assert [decision and decision.node for decision in decisions] == ["pve1", "pve2", "pve3"]
    looked = scheduler(cluster([node("pve3"), node("pve1"), node("pve2")])).schedule(vm("vm-3")).looked
    assert looked
    assert [verdict.node for verdict in looked.best(3)] == ["pve1", "pve2", "pve3"]


class Noise(ScorePlugin):
    """Scores that differ by what computers cannot represent."""

    name = "Noise"

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        return {"n1": 44.791666666666664, "n2": 44.79166666666667}[node.name]


class BoundedNoise(Noise):
    """The same, without normalization."""

    bounded = True


class NormalizedNoise(Noise):
    """The same, in a unit of its own."""

    def normalize(
        self, state: CycleState, request: Request, nodes: Sequence[NodeInfo], scores: list[float]
    ) -> list[float]:
        return scores


@pytest.mark.parametrize("noise", [BoundedNoise, NormalizedNoise])
def test_ties__are_broken_by_name_and_not_by_the_last_digit(noise: type[Noise]) -> None:
    outcome = scheduler(cluster([node("n1"), node("n2")]), own=[noise]).schedule(vm())
    assert outcome.decision is not None
    assert outcome.decision.node == "n1"
    assert outcome.message.endswith("level with n2")


def test_plain_vm__is_repelled_by_a_vm_that_was_decided_before() -> None:
    where = scheduler(cluster([node("pve1", cores=64, gib=256), node("pve2")]))
    apart_from_db = AffinityTerm(False, Selector(name="db-.*"))
    wanted = [vm("db-1"), vm("web-1", affinity=(apart_from_db,)), vm("db-2"), vm("app-1")]
    decisions = [where.schedule(request).decision for request in wanted]
    assert [decision and decision.node for decision in decisions] == ["pve1", "pve2", "pve1", "pve1"]


def test_hard_spread__refuses_every_node_of_a_full_rack() -> None:
    nodes = [node(f"pve{n}", labels={"rack": "a" if n < 3 else "b"}) for n in range(1, 5)]
    spread = SpreadConstraint("rack", Selector(name="web-.*"))
    where = scheduler(cluster(nodes))
    assert where.schedule(vm("web-1", topology_spread=(spread,))).decision is not None
    outcome = where.schedule(vm("web-2", topology_spread=(spread,)))
    assert [v.node for v in outcome.verdicts() if v.rejected_by == "TopologySpread"] == ["pve1", "pve2"]


def test_full_shared_storage__is_told_of_each_node_that_nothing_else_rejects() -> None:
    names = ("pve1", "pve2", "pve3")
    storages = [Storage("ceph", name, "rbd", shared=True, total=GIB) for name in names]
    where = scheduler(cluster([node("pve1"), node("pve2", cores=1), node("pve3")], storages=storages))
    outcome = where.schedule(vm("x", cores=8, disks=(Disk("scsi0", 2 * GIB, "ceph"),)))
    rejected_by = [verdict.rejected_by for verdict in outcome.verdicts()]
    assert rejected_by == ["VolumeBinding", "VCPULimit", "VolumeBinding"]


def test_verdicts__stay_as_they_were_when_a_shared_storage_fills_up_later() -> None:
    storages = [Storage("ceph", name, "rbd", shared=True, total=3 * GIB) for name in ("pve1", "pve2")]
    where = scheduler(cluster([node("pve1"), node("pve2")], storages=storages))
    first, second = (where.schedule(vm(name, disks=(Disk("scsi0", 2 * GIB, "ceph"),))) for name in ("a", "b"))
    assert [verdict.scores["StorageBalance"].raw for verdict in first.verdicts()] == [pytest.approx(100 / 3)] * 2
    assert [verdict.rejected_by for verdict in second.verdicts()] == ["VolumeBinding", "VolumeBinding"]


class HalfFree(FilterPlugin):
    """Refuses a node whose storage is half full."""

    name = "HalfFree"
    events = frozenset({Event.STORAGE})

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        use = node.storages["ceph"].use
        return None if use.free > use.total // 2 else unschedulable("were half full")


def test_plugin_with_an_eye_on_storages__is_asked_again_about_every_node_that_shares_one() -> None:
    storages = [Storage("ceph", name, "rbd", shared=True, total=10 * GIB) for name in ("pve1", "pve2")]
    where = scheduler(cluster([node("pve1"), node("pve2")], storages=storages), own=[HalfFree])
    disks = (Disk("scsi0", 6 * GIB, "ceph"),)
    assert where.schedule(vm("a")).decision is not None
    assert where.schedule(vm("b", disks=disks)).decision is not None
    assert [verdict.rejected_by for verdict in where.schedule(vm("c")).verdicts()] == ["HalfFree", "HalfFree"]


class NotBeside(PreFilterPlugin):
    """Refuses every node while the cluster holds a guest of this name."""

    name = "NotBeside"

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        return unschedulable("were taken") if any(guest.name == "rival" for guest in cluster.guests.values()) else None


def test_refusal_of_every_node__is_looked_up_anew() -> None:
    state = cluster([node("pve1")])
    state.assume(guest(100, "pve1", name="rival"))
    where = scheduler(state, own=[NotBeside])
    assert where.schedule(vm("a")).decision is None
    state.forget(100)
    assert where.schedule(vm("b")).decision is not None
