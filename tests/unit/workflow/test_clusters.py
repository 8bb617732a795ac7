# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option for several clusters, and on which of them a VM is."""

from __future__ import annotations

import threading
import typing as t

import pytest
from support.small_cluster import guest, node
from support.waiting import PATIENCE

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    AmbiguousName,
    CollectionError,
    InvalidRequest,
    VMIDConflict,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Request
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.clusters.connections import clusters_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.clusters.shares import Gate
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.clusters.whereabouts import (
    Finding,
    Silent,
    whereabouts,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.existing.matching import Match
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.job import Job, State
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import (
    Entry,
    build_entries,
)

A: dict[str, t.Any] = {"name": "a", "api_host": ["a1"], "api_token_id": "t", "api_token_secret": "of-a"}
B: dict[str, t.Any] = {"name": "b", "api_host": ["b1"], "labels": {"region": "eu"}, "nodes": {"pve1": {}}}
NOTHING, WEB = Match(), Match(guest=guest(100, "pve1", name="web"))
TAKEN = Match(error=VMIDConflict("VMID 100 belongs to other"))
DOWN = Silent({"c": "no route to host"})

# --- the option ---


def test_connection_options_at_the_top__are_defaults_but_for_the_credentials_of_another_kind() -> None:
    common = {"api_host": ["x"], "api_user": "u@pve", "api_password": "p", "ca_path": "/ca"}
    a, b = clusters_of({"clusters": [B, A], **common})
    assert (a.params["api_host"], a.params["api_password"], a.params["api_token_secret"]) == (["a1"], None, "of-a")
    assert (b.params["api_host"], b.params["api_password"], b.params["api_user"]) == (["b1"], "p", "u@pve")
    assert a.params["ca_path"] == b.params["ca_path"] == "/ca"


def test_metrics__are_those_of_the_cluster() -> None:
    metrics = {"nodes": {"pve1": {"cpu": 0.5}}}
    a, b = clusters_of({"clusters": [B, {**A, "metrics": metrics}]})
    assert (a.params["metrics"], b.params["metrics"]) == (metrics, None)


def test_nodes__have_the_labels_of_their_cluster() -> None:
    cluster = {**B, "nodes": {"pve1": {"labels": {"rack": "r1", "region": "us"}}}}
    (parsed,) = clusters_of({"clusters": [cluster]})
    assert parsed.facts([node("pve1"), node("pve2")]) == {
        "pve1": {"labels": {"rack": "r1", "region": "eu", "cluster": "b"}},
        "pve2": {"labels": {"region": "eu", "cluster": "b"}},
    }


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"clusters": []}, "clusters: [] is not valid, expected one cluster or more"),
        ({"clusters": [A, A]}, "clusters: 'a' is the name of several clusters"),
        ({"clusters": [{"name": "a"}]}, "clusters[0].api_host: is missing for cluster 'a'"),
        ({"clusters": [{**A, "name": ""}]}, "clusters[0].name: '' is not valid"),
        ({"clusters": [{**A, "labels": {"cluster": "x"}}]}, "clusters[0].labels.cluster: 'x' is not valid"),
        ({"clusters": [A, {"name": "b", "snapshot": {}}]}, "clusters: some have a snapshot and some have none"),
        ({"clusters": [A], "nodes": {"x": 1}}, "nodes: cannot be used together with clusters; expected cl"),
        ({"clusters": [A], "metrics": {"nodes": {}}}, "metrics: cannot be used together with clusters; expected cl"),
        ({"clusters": [A], "rules": [{"nodes": ["pve1"]}]}, "rules[0].nodes: cannot be used together with clusters"),
    ],
)
def test_mistake__names_option_and_value(params: dict[str, t.Any], expected: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        clusters_of(params)
    assert expected in caught.value.message


@pytest.mark.parametrize(
    ("clusters", "expected"),
    [
        ([A, B], "vms[0].cluster: unknown cluster 'c', known: a, b"),
        (None, "vms[0].cluster: c requires clusters, which is not set"),
    ],
)
def test_cluster_of_a_vm__is_one_of_the_task(clusters: t.Any, expected: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        build_entries({"clusters": clusters, "vms": [{"name": "x", "cluster": ["c"]}]}, ["name", "cluster"], 0.0)
    assert expected in caught.value.message


# --- where a VM is ---


def entry(*clusters: str, state: str = "present") -> Entry:
    return Entry(0, Request("web"), state, clusters=clusters)


def found(asked: Entry, silent: Silent | None = None, **matches: Match) -> t.Any:
    """The cluster of the job, the code of its error, its state, or the clusters to choose from."""
    shown = {}
    for name, match in matches.items():
        job = Job(asked, cluster=name)
        if match.error is not None:
            job.fail(match.error)
        shown[name] = Finding(job, match)
    where = whereabouts(asked, shown, silent or Silent())
    if not isinstance(where, Job):
        return where
    return where.error.code if where.error is not None else where.cluster or where.state


@pytest.mark.parametrize(
    ("asked", "matches", "expected"),
    [
        (entry(), {"a": NOTHING, "b": NOTHING}, ["a", "b"]),
        (entry(), {"a": NOTHING, "b": WEB}, "b"),
        (entry(), {"a": WEB, "b": WEB}, "AmbiguousName"),
        (entry("a"), {"a": WEB, "b": WEB}, "a"),
        (entry("a"), {"a": NOTHING, "b": WEB}, ["a"]),
        (entry(), {"a": TAKEN, "b": NOTHING}, ["a", "b"]),
        (entry(), {"a": TAKEN, "b": WEB}, "b"),
        (entry(), {"a": Match(error=AmbiguousName("2 guests")), "b": NOTHING}, "AmbiguousName"),
        (entry(), {"a": NOTHING, "b": Match(take_over=100)}, ["b"]),
        (entry(), {"a": Match(take_over=100), "b": Match(nameless=(guest(101, "pve1"),))}, "AmbiguousName"),
        (entry(state="absent"), {"a": NOTHING, "b": NOTHING}, State.DONE),
        (entry("b", state="absent"), {"a": WEB, "b": NOTHING}, State.DONE),
    ],
)
def test_vm__is_where_it_was_found_and_a_doubt_is_an_error(
    asked: Entry, matches: dict[str, Match], expected: t.Any
) -> None:
    assert found(asked, **matches) == expected


@pytest.mark.parametrize(
    ("asked", "silent", "expected"),
    [
        (entry(), DOWN, "ClusterUnreachable"),
        (entry("a"), DOWN, ["a"]),
        (entry("a", "c"), DOWN, "ClusterUnreachable"),
        (entry(state="absent"), DOWN, "ClusterUnreachable"),
        (entry(), Silent({"c": "down"}, skip=True), ["a", "b"]),
        (entry("c"), Silent({"c": "down"}, skip=True), "ClusterUnreachable"),
        (entry(), Silent({"c": "down"}, skip=True, reserved={"c": {"web"}}), "ClusterUnreachable"),
        (entry(), Silent({"c": "down"}, skip=True, reserved={"c": {"other"}}), ["a", "b"]),
    ],
)
def test_vm_that_may_be_on_a_cluster_that_is_down__is_not_made_a_second_time(
    asked: Entry, silent: Silent, expected: t.Any
) -> None:
    assert found(asked, silent, a=NOTHING, b=NOTHING) == expected
    if not asked.clusters and asked.state == "present":
        assert found(asked, silent, a=NOTHING, b=WEB) == "b"


def test_error_of_one_cluster__is_that_of_the_vm_unless_it_only_rules_the_cluster_out() -> None:
    namesake = Finding(Job(entry(), cluster="a"), TAKEN, namesake=True)
    namesake.job.fail(t.cast(CollectionError, TAKEN.error))
    assert whereabouts(entry(), {"a": namesake, "b": Finding(Job(entry()), NOTHING)}, Silent()) is namesake.job


# --- the gate ---


@pytest.mark.parametrize(("strict", "failed", "opens"), [(True, True, False), (True, False, True), (False, True, True)])
def test_gate__waits_for_all_shares(strict: bool, failed: bool, opens: bool) -> None:
    gate, answers = Gate(["a", "b"], all_or_nothing=strict), list[bool]()
    gate.arrive("a", failed=False)
    gate.arrive("a", failed=True)
    waiting = threading.Thread(target=lambda: answers.append(gate.wait()))
    waiting.start()
    waiting.join(0.05)
    assert answers == []
    gate.arrive("b", failed=failed)
    waiting.join(PATIENCE)
    assert answers == [opens]
