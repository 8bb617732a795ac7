# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What plugin authors are given: one import line and a small cluster; and what holds for every plugin."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils import plugin_api
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch_cycle import schedule_all
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework import interface
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import BUILTIN
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import Registry, build_profiles
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidPluginConfig
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plugin_api import (
    ClusterState,
    CycleState,
    Draft,
    FilterPlugin,
    NodeInfo,
    PermitPlugin,
    PreFilterPlugin,
    Request,
    ReservePlugin,
    ScorePlugin,
    Status,
    VMIDPlugin,
    unschedulable,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.testing import SmallCluster, guest, node, vm


class TwoPerNode(PreFilterPlugin, FilterPlugin):
    """Rejects a node that holds two VMs already."""

    name = "TwoPerNode"

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        state[self.name] = {info.name: len(info.guests) for info in cluster.nodes}
        return None

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        return None if state[self.name][node.name] < 2 else unschedulable("held two VMs")


def test_plain_plugin__sees_every_vm_that_was_placed_before() -> None:
    cluster = SmallCluster(node("a"), plugins=[TwoPerNode])
    placed = [cluster.place(vm(f"vm-{number}")).node for number in range(4)]
    assert placed == ["a", "a", None, None]


def test_about__a_plugin_is_asked_about_requests_that_set_one_of_its_attributes_alone() -> None:
    asked: list[tuple[str, str]] = []

    class Tagged(PreFilterPlugin, FilterPlugin, ScorePlugin, ReservePlugin, PermitPlugin, VMIDPlugin):
        name = "Tagged"
        about = ("tags", "pool")

        def pre_enqueue(self, request: Request) -> Status | None:
            return self._say("pre_enqueue", request)

        def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
            return self._say("pre_filter", request)

        def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
            return self._say("filter", request)

        def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
            self._say("score", request)
            return 0.0

        def choice(self, request: Request) -> None:
            self._say("choice", request)

        def reserve(self, state: CycleState, request: Request, node: NodeInfo, draft: Draft) -> Status | None:
            return self._say("reserve", request)

        def permit(self, request: Request, placed: t.Any, waiting: t.Any, failed: t.Any) -> Status | None:
            return self._say("permit", request)

        def _say(self, point: str, request: Request) -> None:
            asked.append((point, request.name))

    cluster = SmallCluster(node("a"), plugins=[Tagged])
    profiles = build_profiles(Registry([*BUILTIN, Tagged]))
    requests = [vm("plain"), vm("tagged", tags=frozenset({"db"})), vm("pooled", pool="prod")]
    schedule_all(Scheduler(cluster.state, profiles), requests)

    assert {name for _point, name in asked} == {"tagged", "pooled"}
    assert {point for point, _name in asked} == {
        "pre_enqueue", "pre_filter", "filter", "score", "choice", "reserve", "permit",
    }  # fmt: skip


def test_about__names_attributes_that_requests_have() -> None:
    class Misspelt(TwoPerNode):
        name = "Misspelt"
        about = ("tag",)

    with pytest.raises(InvalidPluginConfig, match=r"plugin Misspelt \(test\) is about 'tag', which no request has"):
        SmallCluster(node("a"), plugins=[Misspelt])


class Celsius(ScorePlugin):
    """In a unit of its own."""

    name = "Celsius"

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        return -float(node.node.labels["celsius"])


def test_score__of_any_unit_is_normalized_from_the_worst_to_the_best_node() -> None:
    nodes = [node(name, labels={"celsius": degrees}) for name, degrees in (("a", "40"), ("b", "20"), ("c", "25"))]
    assert SmallCluster(*nodes, plugins=[Celsius]).place(vm()).scores("Celsius") == {"a": 0.0, "b": 100.0, "c": 75.0}
    alike = [node(name, labels={"celsius": "412"}) for name in "ab"]
    assert SmallCluster(*alike, plugins=[Celsius]).place(vm()).scores("Celsius") == {"a": 100.0, "b": 100.0}


def test_small_cluster__counts_its_guests_and_takes_a_plugin_config() -> None:
    config = {"filters": {"MemoryOvercommit": {"config": {"ratio": 2}}}}
    for given, went in ((None, "b"), (config, "a")):
        cluster = SmallCluster(node("a", gib=8), node("b", gib=2), guests=[guest(100, "a", gib=7)], plugin_config=given)
        placed = cluster.place(vm(gib=2, node="a") if given else vm(gib=2))
        assert placed.node == went
    assert cluster.place(vm(gib=9)).message.startswith("0/2 nodes are available")


class Misled(FilterPlugin):
    """Looks for guests in a number."""

    name = "Misled"

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        return unschedulable(str(next(guest for guest in node.cores)))  # type: ignore[attr-defined]


def test_small_cluster__raises_what_a_plugin_raised() -> None:
    with pytest.raises(TypeError, match="object is not iterable"):
        SmallCluster(node("a"), plugins=[Misled]).place(vm())


class Quiet(FilterPlugin):
    """Rejects nodes with noisy guests."""

    name = "Quiet"

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        noisy = [guest.name for guest in node.guests if "noisy" in guest.tags]
        return unschedulable("had noisy guests", ", ".join(map(str, noisy))) if noisy else None


def test_reasons__are_those_of_the_plugin_without_the_details_of_each_node() -> None:
    guests = [guest(100, "a", tags=frozenset({"noisy"})), guest(101, "b")]
    placed = SmallCluster(node("a"), node("b"), guests=guests, plugins=[Quiet]).place(vm())
    assert (placed.node, placed.reasons("Quiet")) == ("b", {"a": "had noisy guests"})
    assert repr(placed) == f"<Placed: {placed.message}>"


def test_guest__on_a_node_that_the_small_cluster_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="guest 100: there is no node 'c'; the nodes are a, b"):
        SmallCluster(node("a"), node("b"), guests=[guest(100, "c")])


def test_plugin_api__has_every_interface_that_a_plugin_may_inherit_from() -> None:
    interfaces = {
        name
        for name, value in vars(interface).items()
        if isinstance(value, type) and issubclass(value, interface.Plugin) and value is not interface.Plugin
    }
    assert interfaces <= set(plugin_api.__all__)
    assert all(hasattr(plugin_api, name) for name in plugin_api.__all__)


def test_interfaces__have_at_most_thirteen_methods() -> None:
    methods = {
        name
        for interface_ in vars(interface).values()
        if isinstance(interface_, type) and issubclass(interface_, interface.Plugin)
        for name, value in vars(interface_).items()
        if callable(value) and not name.startswith("_")
    }
    assert len(methods) <= 13, methods
