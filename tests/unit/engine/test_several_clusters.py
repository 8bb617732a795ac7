# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several clusters: which one a VM goes to, by the rules between clusters and by what each cluster's scheduler says."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law.in_force import broken_by
from support.random_clusters import requests, snapshots
from support.small_cluster import cluster, guest, node, profile, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch_cycle import schedule_all
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import Profile
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.several_clusters import (
    Member,
    MultiClusterScheduler,
    profile_between,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.verdicts import Outcome
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import TemplateNotFound
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    AffinityTerm,
    Expression,
    GangRef,
    Guest,
    Node,
    Request,
    Selector,
    Snapshot,
    SpreadConstraint,
)

WEB = Selector(name="web-.*")
APART = AffinityTerm(together=False, selector=WEB, topology_key="cluster")
TOGETHER = AffinityTerm(together=True, selector=WEB, topology_key="cluster")
EVENLY = SpreadConstraint("cluster", WEB)


class Clusters:
    """Clusters with their nodes, each of 8 CPUs and 32 GiB, and a scheduler over all of them."""

    def __init__(
        self,
        nodes: Mapping[str, Sequence[Node]],
        guests: Mapping[str, Sequence[Guest]] | None = None,
        labels: Mapping[str, Mapping[str, str]] | None = None,
        silent: Mapping[str, str] | None = None,
    ) -> None:
        profiles = {"balanced": profile()}
        self.members = []
        for name, own in nodes.items():
            given = (labels or {}).get(name, {})
            labelled = [replace(each, labels={**each.labels, **given, "cluster": name}) for each in own]
            state = cluster(labelled, (guests or {}).get(name, ()))
            self.members.append(Member(name, given, Scheduler(state, profiles)))
        self.scheduler = MultiClusterScheduler(self.members, profiles, "balanced", silent)

    def place(self, *requests: Request, present: Sequence[Request] = ()) -> dict[str, str | None]:
        """The cluster and the node of each VM, None for one that was not placed."""
        self.outcomes: dict[str, Outcome] = {}
        for member in self.members:
            for request in requests:
                if request.name not in member.obstacles:
                    member.requests[request.name] = request
        for request, outcome in zip(requests, schedule_all(self.scheduler, requests, present=present), strict=True):
            self.outcomes[request.name] = outcome
        places: dict[str, str | None] = dict.fromkeys(self.outcomes)
        for name, chosen in self.scheduler.chosen.items():
            places[name] = f"{chosen.member.name}/{chosen.decision.node}"
        return places

    def of(self, *requests: Request, **more: t.Any) -> list[str | None]:
        """The clusters of the VMs alone."""
        return [None if place is None else place.partition("/")[0] for place in self.place(*requests, **more).values()]


def pair(a: Sequence[Guest] = (), b: Sequence[Guest] = (), **more: t.Any) -> Clusters:
    """Two clusters, a and b, whose one node has the same name."""
    return Clusters({"a": [node("pve1")], "b": [node("pve1")]}, {"a": a, "b": b}, **more)


def test_vm__goes_to_the_cluster_whose_best_node_has_the_highest_score() -> None:
    assert pair(a=[guest(100, "pve1", gib=16)]).place(vm()) == {"new": "b/pve1"}
    assert pair(b=[guest(100, "pve1", gib=16)]).place(vm()) == {"new": "a/pve1"}
    assert pair().place(vm("x"), vm("y"), vm("z")) == {"x": "a/pve1", "y": "b/pve1", "z": "a/pve1"}


def test_clusters__are_never_summed_up() -> None:
    """Two halves of a VM's memory on two clusters are room for nothing."""
    clusters = pair(silent={"c": "no route to host"})
    assert clusters.of(vm(gib=40)) == [None]
    message = clusters.outcomes["new"].message
    assert message.startswith('0/3 clusters are available for VM "new": a: 0/1 nodes are available')
    assert message.endswith("c: no route to host")
    assert clusters.outcomes["new"].rejected_by == {"MemoryOvercommit"}


def test_what_was_tried_and_not_chosen__takes_no_room() -> None:
    clusters = Clusters({"a": [node("pve1", gib=32)], "b": [node("pve1", gib=16)]})
    assert sorted(map(str, clusters.of(*(vm(name, gib=16) for name in "wxyz")))) == ["None", "a", "a", "b"]
    assert [sum(info.memory_all for info in m.scheduler.cluster.nodes) >> 30 for m in clusters.members] == [32, 16]


@pytest.mark.parametrize(
    ("request_fields", "expected"),
    [
        ({"affinity": (APART,)}, ["a", "b", None]),
        ({"topology_spread": (EVENLY,)}, ["a", "b", "a"]),
        ({"affinity": (TOGETHER,)}, ["a", "a", "a"]),
        ({"affinity": (replace(TOGETHER, topology_key="node"),)}, ["a", "a", "a"]),
        ({"affinity": (replace(APART, required=False),)}, ["a", "b", "a"]),
    ],
)
def test_rule_between_clusters__binds_like_one_between_racks(
    request_fields: dict[str, t.Any], expected: list[str | None]
) -> None:
    assert pair().of(*(vm(f"web-{number}", **request_fields) for number in range(3))) == expected


def test_spread__counts_guests_of_all_clusters_and_is_kept_where_there_is_no_room() -> None:
    """Three in a, and none in b, which is full: a may not get a fourth."""
    there = [guest(number, "pve1", name=f"web-{number}") for number in (100, 101, 102)]
    full = [guest(100, "pve1", gib=32)]
    hard, soft = vm("web-9", topology_spread=(EVENLY,)), vm("web-9", topology_spread=(replace(EVENLY, hard=False),))
    assert pair(a=there).of(hard) == ["b"]
    assert pair(a=there, b=full).of(hard) == [None]
    assert pair(a=there, b=full).of(soft) == ["a"]


def test_preferred_rule__counts_before_the_score_of_the_node() -> None:
    busy = [guest(100, "pve1", gib=24)]
    here = Expression("region", "In", ("eu",))
    labels = {"a": {"region": "eu"}, "b": {"region": "us"}}
    assert pair(a=busy, labels=labels).of(vm(node_preferred=(here,))) == ["a"]
    assert pair(a=busy, labels=labels).of(vm()) == ["b"]


def test_required_label__excludes_clusters_and_their_domains() -> None:
    labels = {"a": {"region": "eu"}, "b": {"region": "us"}}
    required = {"node_required": (Expression("region", "In", ("us",)),), "topology_spread": (EVENLY,)}
    clusters = pair(labels=labels)
    assert clusters.of(vm("web-1", **required), vm("web-2", **required)) == ["b", "b"]
    reasons = [verdict.reason for verdict in clusters.scheduler.verdicts["web-2"]]
    assert reasons == ["the cluster didn't match the VM's node affinity", None]


def test_apart__holds_for_vms_that_came_before_and_know_the_rule() -> None:
    """db-1 must be apart from web VMs; web-1 itself says nothing."""
    db = vm("db-1", affinity=(APART,))
    assert pair().of(db, vm("web-1"), vm("web-2")) == ["a", "b", "b"]


def test_group__is_placed_across_clusters_or_not_at_all() -> None:
    members = [vm(f"m-{number}", gib=20, gang=GangRef("g")) for number in range(3)]
    assert pair().of(*members[:2]) == ["a", "b"]
    clusters = pair()
    assert clusters.of(*members, vm("alone", gib=20)) == [None, None, None, "a"]
    assert clusters.scheduler.chosen.keys() == {"alone"}


def test_obstacle_in_one_cluster__is_a_reason_and_in_all_of_them_the_error() -> None:
    clusters = pair()
    clusters.members[0].obstacles["new"] = TemplateNotFound("clone: no VM 'debian' exists")
    assert clusters.of(vm()) == ["b"]
    assert clusters.scheduler.verdicts["new"][0].reason == "clone: no VM 'debian' exists"
    clusters = pair()
    for member in clusters.members:
        member.obstacles["new"] = TemplateNotFound("clone: no VM 'debian' exists")
    clusters.place(vm())
    assert clusters.outcomes["new"].error is not None
    assert clusters.outcomes["new"].error.code == "TemplateNotFound"


def members_of(snapshots: Sequence[Snapshot], profiles: Mapping[str, Profile]) -> list[Member]:
    """A cluster of each snapshot. Its name is its zone, and all of its nodes are in a rack."""
    members = []
    for name, snapshot in zip("ab", snapshots, strict=False):
        labels = {"zone": name, "cluster": name}
        nodes = [replace(node, labels={"rack": "r", **node.labels, **labels}) for node in snapshot.nodes]
        scheduler = Scheduler(ClusterState(replace(snapshot, nodes=tuple(nodes))), profiles)
        members.append(Member(name, {"zone": name}, scheduler))
    return members


def placed(scheduler: Scheduler, wanted: Sequence[Request]) -> list[tuple[str, int] | None]:
    outcomes = schedule_all(scheduler, wanted)
    return [None if o.decision is None else (o.decision.node, o.decision.vmid) for o in outcomes]


@given(snapshots(), st.lists(requests(), min_size=1, max_size=5, unique_by=lambda request: request.name))
@settings(max_examples=25, deadline=None)
def test_one_of_one_cluster__is_as_without_a_choice(snapshot: Snapshot, wanted: list[Request]) -> None:
    profiles = {"balanced": profile()}
    (alone,), (member,) = members_of([snapshot], profiles), members_of([snapshot], profiles)
    member.requests.update({request.name: request for request in wanted})
    assert placed(MultiClusterScheduler([member], profiles, "balanced"), wanted) == placed(alone.scheduler, wanted)


@given(
    st.lists(snapshots(), min_size=2, max_size=2),
    st.lists(requests(), min_size=1, max_size=6, unique_by=lambda request: request.name),
)
@settings(max_examples=25, deadline=None)
def test_decisions_between_clusters__are_lawful(snapshots: list[Snapshot], wanted: list[Request]) -> None:
    profiles = {"balanced": profile()}
    members = members_of(snapshots, profiles)
    for member in members:
        member.requests.update({request.name: request for request in wanted})
    scheduler = MultiClusterScheduler(members, profiles, "balanced")
    found = placed(scheduler, wanted)
    between = [chosen.between for chosen in scheduler.chosen.values()]
    assert len(between) == sum(place is not None for place in found)
    rules = profile_between(profiles["balanced"])
    assert broken_by(scheduler.cluster.snapshot, between, lambda _request: rules, own_names=False) == []
