# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A name that the cluster does not have is told together with those that it has."""

from __future__ import annotations

from typing import Any

import pytest
from support.small_cluster import cluster, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.texts import known_names
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    CloneSource,
    DeviceClaim,
    Disk,
    Expression,
    Request,
    Selector,
    SpreadConstraint,
    Storage,
    Template,
)

NODES = [node("pve1"), node("pve2")]
STORAGES = (
    Storage("ceph", "pve1", total=100 * GIB, shared=True),
    Storage("ceph", "pve2", total=100 * GIB, shared=True),
    Storage("fast", "pve2", total=100 * GIB),
)
CLONE = CloneSource((Template(9000, "pve1", "debian", volumes=(("scsi0", "ceph", GIB),)),), storage="cefh")


@pytest.mark.parametrize(
    ("request_", "end"),
    [
        (vm(node="pve9"), "; no node 'pve9', known: pve1, pve2"),
        (vm(node_regex="web.*"), "; no node matches 'web.*', known: pve1, pve2"),
        (
            vm(disks=(Disk("scsi0", GIB, storage="cefh"),)),
            "; no storage 'cefh', or this user cannot see it, known: ceph, fast; did you mean ceph?",
        ),
        (
            vm(disks=(Disk("ide2", volume="isos:iso/a.iso", content="iso"),)),
            "; no storage 'isos', or this user cannot see it, known: ceph, fast",
        ),
        (
            vm(disks=(Disk("scsi0", GIB, source="imgs:import/a.raw"),)),
            "; no storage 'imgs', or this user cannot see it, known: ceph, fast",
        ),
        (vm(clone=CLONE), "; no storage 'cefh', or this user cannot see it, known: ceph, fast; did you mean ceph?"),
    ],
)
def test_message__ends_with_the_names_that_there_are(request_: Request, end: str) -> None:
    outcome = scheduler(cluster(NODES, storages=STORAGES)).schedule(request_)
    assert outcome.message.endswith(end)
    assert outcome.message.count("known:") == 1


@pytest.mark.parametrize(
    "rule",
    [
        {"topology_spread": (SpreadConstraint("rak", Selector(name="a")),)},
        {"affinity": (AffinityTerm(True, Selector(name="a"), topology_key="rak"),)},
        {"node_required": (Expression("rak", "In", ("r1",)),)},
    ],
)
def test_label_that_no_node_has__is_told_with_those_that_there_are(rule: dict[str, Any]) -> None:
    nodes = [node("pve1", labels={"rack": "r1"}), node("pve2")]
    message = scheduler(cluster(nodes)).schedule(vm(**rule)).message
    assert message.endswith("; no node has the label 'rak', known: node, rack; did you mean rack?")


def test_label_of_a_preference__does_not_have_to_exist() -> None:
    preferred = SpreadConstraint("rak", Selector(name="a"), hard=False)
    assert "rak" not in scheduler(cluster(NODES)).schedule(vm(gib=999, topology_spread=(preferred,))).message


def test_label_that_a_node_must_not_have__does_not_have_to_exist() -> None:
    required = (Expression("rak", "NotIn", ("r1",)), Expression("rak", "DoesNotExist"))
    assert "rak" not in scheduler(cluster(NODES)).schedule(vm(gib=999, node_required=required)).message


@pytest.mark.parametrize(
    "request_",
    [
        vm(gib=999, node="pve1", node_regex="pve.", disks=(Disk("scsi0", GIB, storage="fast"),)),
        vm(gib=999, disks=(Disk("scsi0", GIB), Disk("ide2", volume="/dev/cdrom"))),
    ],
)
def test_names_that_there_are_and_paths__are_not_told(request_: Request) -> None:
    outcome = scheduler(cluster(NODES, storages=STORAGES)).schedule(request_)
    assert outcome.error is not None
    assert "known" not in outcome.message


@pytest.mark.parametrize("request_", [vm(disks=(Disk("scsi0", GIB),)), vm(disks=(Disk("scsi0", GIB, storage="a"),))])
def test_storages__none_is_visible(request_: Request) -> None:
    message = scheduler(cluster(NODES)).schedule(request_).message
    assert message.endswith("; no storage is visible: the user needs Datastore.Audit on /storage")
    assert "known" not in message


def test_storages__a_vm_without_disks_needs_none() -> None:
    assert "storage" not in scheduler(cluster(NODES)).schedule(vm(gib=999)).message


@pytest.mark.parametrize(
    "claim", [DeviceClaim("g", mapping="gup"), DeviceClaim("g", one_of=(DeviceClaim("g", mapping="gup"),))]
)
def test_device_mapping__that_does_not_exist_is_named_with_those_that_do(claim: DeviceClaim) -> None:
    message = scheduler(cluster(NODES, mappings=frozenset({"gpu", "nic"}))).schedule(vm(devices=(claim,))).message
    assert message.endswith("; no device mapping 'gup' that the user may use, known: gpu, nic; did you mean gpu?")


def test_device_mapping__that_exists_on_other_nodes_is_not_told() -> None:
    request = vm(devices=(DeviceClaim("g", mapping="gpu"),))
    assert "known" not in scheduler(cluster(NODES, mappings=frozenset({"gpu"}))).schedule(request).message
    assert "known" not in scheduler(cluster(NODES)).schedule(request).message


def test_volume__that_does_not_exist_is_named_with_those_of_its_kind() -> None:
    volumes = {
        ("pve2", "fast:iso/debian12.iso"): None,
        ("pve2", "fast:iso/debian-12.iso"): GIB,
        ("pve2", "fast:import/debian.qcow2"): GIB,
    }
    state = cluster(NODES, storages=STORAGES, volumes=volumes)
    message = (
        scheduler(state).schedule(vm(disks=(Disk("ide2", volume="fast:iso/debian12.iso", content="iso"),))).message
    )
    assert message.endswith(
        "; no volume 'fast:iso/debian12.iso', or this user cannot see it, known: fast:iso/debian-12.iso"
    )


def test_bridge__that_no_node_has_is_named_with_those_that_there_are() -> None:
    on = {"filters": {"NetworkBridge": {}}}
    nodes = [node("pve1", bridges=frozenset({"vmbr0"})), node("pve2", bridges=frozenset({"vmbr0", "vmbr1"}))]
    message = scheduler(cluster(nodes), on).schedule(vm(bridges=frozenset({"vmbr9"}))).message
    assert message.endswith("; no bridge 'vmbr9', or this user may not use it, known: vmbr0, vmbr1")
    pinned = scheduler(cluster(nodes), on).schedule(vm(node="pve1", bridges=frozenset({"vmbr1"}))).message
    assert "known" not in pinned


def test_cpu_type__that_no_node_knows_is_named_with_those_that_they_know() -> None:
    nodes = [node("pve1", cpu_models=frozenset({"EPYC"})), node("pve2", cpu_models=frozenset({"EPYC", "EPYC-Milan"}))]
    message = scheduler(cluster(nodes)).schedule(vm(cpu_type="EPYCMilan")).message
    assert message.endswith("; no CPU type 'EPYCMilan', known: EPYC, EPYC-Milan; did you mean EPYC-Milan?")
    assert "known" not in scheduler(cluster(nodes)).schedule(vm(node="pve1", cpu_type="EPYC-Milan")).message
    assert "known" not in scheduler(cluster(nodes)).schedule(vm(gib=999)).message


def test_many_names__show_the_most_alike() -> None:
    names = [f"pve{number}" for number in range(1, 41)]
    told = known_names(names, "pve3a")
    assert told.startswith("pve3, ")
    assert told.endswith(" and 30 more; did you mean pve3?")
    assert told.count(",") == 9
    assert known_names(["b", "a"], "x") == "a, b"
    assert known_names([], "x") == "none"
