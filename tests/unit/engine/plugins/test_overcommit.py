# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUOvercommit and MemoryOvercommit: how much of a node may be given out, and what counts as given."""

from __future__ import annotations

import typing as t

import pytest
from support.looking import reasons
from support.small_cluster import cluster, guest, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.allocatable import CPULimit
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidPluginConfig
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Guest, Node, Request

WITHOUT_VCPU_LIMIT = {"VCPULimit": {"enable": False}}


def refused(
    host: Node, guests: list[Guest], request: Request, section: str = "CPUOvercommit", **config: t.Any
) -> str | None:
    where = scheduler(cluster([host], guests), {"filters": {section: {"config": config}, **WITHOUT_VCPU_LIMIT}})
    return reasons(where.schedule(request), section).get(host.name)


def test_four_vcpus_per_cpu__are_given_out_and_not_one_more() -> None:
    host = node("pve1", cores=2)
    assert refused(host, [guest(100, "pve1", cores=6)], vm(cores=2)) is None
    assert refused(host, [guest(100, "pve1", cores=6)], vm(cores=3)) == (
        "would exceed the CPU overcommit ratio 4.0 (9 vCPUs against a limit of 8)"
    )


def test_memory__is_given_out_once() -> None:
    host = node("pve1", gib=8)
    assert refused(host, [guest(100, "pve1", gib=6)], vm(gib=2), "MemoryOvercommit") is None
    assert refused(host, [guest(100, "pve1", gib=6)], vm(gib=2.5), "MemoryOvercommit") == (
        "would exceed the memory overcommit ratio 1.0 (8.5 GiB against a limit of 8.0 GiB)"
    )


@pytest.mark.parametrize("section", ["CPUOvercommit", "MemoryOvercommit"])
@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, True),
        ({"kind": "lxc"}, True),
        ({"status": "paused"}, True),
        ({"status": "io-error"}, True),
        ({"status": "stopped"}, False),
        ({"status": "stopped", "template": True}, False),
    ],
)
def test_running_vms_and_containers__count(section: str, fields: dict[str, t.Any], counts: bool) -> None:
    host = node("pve1", cores=4, gib=4)
    found = refused(host, [guest(100, "pve1", cores=4, gib=4, **fields)], vm(), section, ratio=1)
    assert (found is not None) is counts


@pytest.mark.parametrize("section", ["CPUOvercommit", "MemoryOvercommit"])
def test_stopped_guests__count_when_asked_for_but_templates_never_do(section: str) -> None:
    host = node("pve1", cores=4, gib=4)
    stopped = guest(100, "pve1", cores=4, gib=4, status="stopped")
    template = guest(100, "pve1", cores=4, gib=4, status="stopped", template=True)
    assert refused(host, [stopped], vm(), section, ratio=1, include_stopped=True) is not None
    assert refused(host, [template], vm(), section, ratio=1, include_stopped=True) is None


def test_what_this_run_has_decided__counts_already() -> None:
    where = scheduler(cluster([node("pve1", gib=3)]))
    assert [where.schedule(vm(f"vm-{n}")).decision is not None for n in range(4)] == [True, True, True, False]


def test_reserve__is_kept_for_the_host() -> None:
    assert refused(node("pve1", cores=4), [], vm(cores=3), ratio=1, reserved=1) is None
    assert refused(node("pve1", cores=4), [], vm(cores=4), ratio=1, reserved=1) is not None
    assert refused(node("pve1", gib=4), [], vm(gib=3), "MemoryOvercommit", reserved=1024) is None
    assert refused(node("pve1", gib=4), [], vm(gib=3.5), "MemoryOvercommit", reserved=1024) is not None


def test_nodes_own_ratio_and_reserve__go_before_the_filters() -> None:
    own = node("pve1", cores=4, gib=4, cpu_ratio=1.0, reserved_cores=2, memory_ratio=2.0, reserved_memory=GIB)
    assert refused(own, [], vm(cores=2), reserved=4) is None
    assert refused(own, [], vm(cores=3), ratio=1) is not None
    assert refused(own, [], vm(gib=6), "MemoryOvercommit") is None
    assert refused(own, [], vm(gib=6.5), "MemoryOvercommit") is not None


def test_ratio__is_the_nodes_else_the_pools_else_the_smallest_of_the_tags_else_the_default() -> None:
    config = {"ratio": 4, "pools": {"prod": 2, "lab": 6}, "tags": {"db": 1.5, "web": 3}}
    host = node("pve1", cores=2)

    def largest(request_fields: dict[str, t.Any], at: Node = host) -> int:
        fits = [n for n in range(1, 20) if refused(at, [], vm(cores=n, **request_fields), **config) is None]
        return max(fits)

    assert largest({}) == 8
    assert largest({"pool": "test"}) == 8
    assert largest({"tags": frozenset({"web", "db"})}) == 3
    assert largest({"pool": "prod", "tags": frozenset({"db"})}) == 4
    assert largest({"pool": "lab", "tags": frozenset({"db"})}) == 12
    assert largest({"pool": "prod"}, node("pve1", cores=2, cpu_ratio=1)) == 2
    assert largest({"pool": "prod"}, node("pve1", cores=2, cpu_ratio=6)) == 12


def test_node_without_anything_to_give__takes_nothing() -> None:
    assert refused(node("pve1", cores=2), [], vm(cores=1), reserved=3) is not None
    assert not CPULimit(4.0).holds(0, node("pve1", cores=0))


def test_ratio__can_be_used_to_its_edge() -> None:
    """The product 1.15 x 100 is below 115 as computers multiply."""
    assert refused(node("pve1", cores=100), [], vm(cores=115), ratio=1.15) is None
    assert refused(node("pve1", cores=100), [], vm(cores=116), ratio=1.15) is not None


def test_ratio_that_is_no_number__is_named() -> None:
    with pytest.raises(InvalidPluginConfig, match=r"CPUOvercommit\.config\.pools\.prod: expected a number, got 'many'"):
        scheduler(cluster([]), {"filters": {"CPUOvercommit": {"config": {"pools": {"prod": "many"}}}}})


@pytest.mark.parametrize(
    ("nodes", "request_", "resolvable"),
    [
        ([node("pve1", gib=8)], vm(gib=8), True),
        ([node("pve1", gib=8)], vm(gib=9), False),
        ([node("pve1", cores=2)], vm(cores=8), True),
        ([node("pve1", cores=2)], vm(cores=9), False),
        ([node("pve1", gib=8), node("pve2", gib=16, maintenance=True)], vm(gib=9), True),
        ([node("pve1", gib=8), node("pve2", gib=8, maintenance=True)], vm(gib=9), False),
        # Proxmox does not tell how large a node is that is offline.
        ([node("pve1", gib=8), node("pve2", cores=0, gib=0, online=False)], vm(gib=9), True),
        ([node("pve1", gib=8), node("pve2", cores=0, gib=0, online=False)], vm(gib=9, node="pve1"), False),
        ([node("pve1", gib=8), node("pve2", gib=8, online=False)], vm(gib=9), False),
        ([node("pve1", gib=8, memory_ratio=2)], vm(gib=9), True),
        # Large enough in one way, too small in the other.
        ([node("pve1", cores=2), node("pve2", gib=8)], vm(cores=9, gib=9), False),
    ],
)
def test_what_even_an_empty_node_could_not_hold__is_hopeless(
    nodes: list[Node], request_: Request, resolvable: bool
) -> None:
    guests = [guest(100 + number, host.name, cores=8, gib=8) for number, host in enumerate(nodes)]
    outcome = scheduler(cluster(nodes, guests), {"filters": WITHOUT_VCPU_LIMIT}).schedule(request_)
    assert outcome.error is not None
    assert outcome.resolvable is resolvable
