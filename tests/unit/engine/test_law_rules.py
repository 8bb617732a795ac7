# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The law: each of its rules can be broken, and is broken only where it is in force."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest
from law.law import InForce, Overcommit, broken
from support.small_cluster import guest, node, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    CloneSource,
    Constraints,
    Decision,
    Device,
    DeviceAllocation,
    DeviceClaim,
    Disk,
    Expression,
    Guest,
    HAIntent,
    HARule,
    Node,
    Selector,
    Snapshot,
    SpreadConstraint,
    Storage,
    StorageClass,
    Taint,
    Template,
    Toleration,
)

WEB = Selector(name="web-.*")
APART, WITH = AffinityTerm(False, WEB), AffinityTerm(True, WEB)
TWO = (node("pve1"), node("pve2"))
RACKS = (node("pve1", labels={"rack": "a"}), node("pve2", labels={"rack": "b"}), node("pve3"))
DISK = Storage("local", "pve1", total=10 * GIB, used=4 * GIB)
CEPH = tuple(Storage("ceph", name, "rbd", shared=True, total=10 * GIB) for name in ("pve1", "pve2"))
FAST = InForce(storage_classes={"fast": StorageClass("fast", storages=("nvme.*",), reserved=0.5)})
GPU = Device("pci", "gpu", "pve1", "0000:01:00.0")
CARD = Device("pci", "card", "pve1", "0000:01:00")
TEMPLATE = Template(900, "pve1", "golden", (("scsi0", "local", 5 * GIB),))


def gpu(vmid: int = 200, device: Device = GPU, claims: int = 1) -> Decision:
    claim = DeviceClaim("gpu", mapping=device.mapping, count=claims)
    allocation = DeviceAllocation("gpu", "pci", device.id, device.node, device.mapping, "hostpci0", "mapping=gpu")
    return Decision(vm(devices=(claim,)), "pve1", vmid, devices=(allocation,))


def on(host: str, vmid: int = 200, name: str = "web-1", storages: t.Any = None, **fields: t.Any) -> Decision:
    return Decision(vm(name, **fields), host, vmid, storages or {})


def clone(host: str, template: Template = TEMPLATE, *, full: bool = True, **storages: str) -> Decision:
    return Decision(vm(clone=CloneSource((template,), full)), host, 200, storages, template=template)


Case = tuple[Snapshot, InForce, tuple[Decision, ...], str]


def case(snapshot: Snapshot, *decisions: Decision, breaks: str, in_force: InForce = InForce()) -> Case:  # noqa: B008
    return snapshot, in_force, decisions, breaks


def cluster(*guests: Guest, nodes: tuple[Node, ...] = TWO, **fields: t.Any) -> Snapshot:
    return Snapshot(nodes, guests, **fields)


def limits(**fields: t.Any) -> InForce:
    return InForce(
        **{name: Overcommit(**value) if isinstance(value, dict) else value for name, value in fields.items()}
    )


BROKEN = {
    "memory": case(cluster(guest(100, "pve1", gib=31)), on("pve1", gib=2), breaks="memory of pve1"),
    "memory of the run": case(cluster(), on("pve1", gib=20), on("pve1", 201, "b", gib=13), breaks="memory of pve1"),
    "memory by the node's own ratio": case(
        cluster(nodes=(node("pve1", memory_ratio=0.5),)), on("pve1", gib=17), breaks="memory of pve1",
        in_force=limits(memory={"ratio": 2.0, "tags": {"big": 3.0}}),
    ),
    "memory by the node's own reserve": case(
        cluster(nodes=(node("pve1", reserved_memory=30 * GIB),)), on("pve1", gib=3), breaks="memory of pve1"
    ),
    "memory by the pool's ratio": case(
        cluster(), on("pve1", gib=17, pool="test", tags=frozenset({"big"})), breaks="memory of pve1",
        in_force=limits(memory={"ratio": 2.0, "pools": {"test": 0.5}, "tags": {"big": 3.0}}),
    ),
    "memory by the smallest ratio of the tags": case(
        cluster(), on("pve1", gib=17, tags=frozenset({"big", "small"})), breaks="memory of pve1",
        in_force=limits(memory={"ratio": 1.0, "tags": {"big": 3.0, "small": 0.5}}),
    ),
    "memory of stopped guests": case(
        cluster(guest(100, "pve1", gib=31, status="stopped")), on("pve1", gib=2), breaks="memory of pve1",
        in_force=limits(memory={"ratio": 1.0, "include_stopped": True}),
    ),
    "CPU": case(cluster(guest(100, "pve1", cores=31)), on("pve1", cores=2), breaks="vCPUs of pve1"),
    "CPU reserved": case(
        cluster(), on("pve1", cores=7), breaks="vCPUs of pve1", in_force=limits(cpu={"ratio": 1.0, "reserved": 2}),
    ),
    "the node's CPUs": case(cluster(), on("pve1", cores=2, cores_max=9), breaks="VCPULimit"),
    "guests": case(
        cluster(guest(100, "pve1")), on("pve1"), on("pve1", 201, "b"), breaks="guests on pve1",
        in_force=InForce(max_guests=2),
    ),
    "guests with a tag": case(
        cluster(guest(100, "pve1", tags=frozenset({"db"}))), on("pve1", tags=frozenset({"db"})),
        breaks="guests on pve1 with tag db", in_force=InForce(max_tagged={"db": 1}),
    ),
    "space": case(
        cluster(storages=(DISK,)), on("pve1", disks=(Disk("scsi0", 7 * GIB),), storages={"scsi0": "local"}),
        breaks="storage local on pve1",
    ),
    "space that another one will take": case(
        cluster(guest(100, "pve1", storage_pending={("local", "pve1"): 5 * GIB}), storages=(DISK,)),
        on("pve1", disks=(Disk("scsi0", 2 * GIB),), storages={"scsi0": "local"}), breaks="storage local on pve1",
    ),
    "space of a shared storage": case(
        cluster(storages=CEPH),
        on("pve1", disks=(Disk("scsi0", 6 * GIB),), storages={"scsi0": "ceph"}),
        on("pve2", 201, "b", disks=(Disk("scsi0", 6 * GIB),), storages={"scsi0": "ceph"}),
        breaks="storage ceph",
    ),
    "space that a class reserves": case(
        cluster(storages=(replace(DISK, name="nvme1", used=0),)),
        on("pve1", disks=(Disk("scsi0", 6 * GIB, storage_class="fast"),), storages={"scsi0": "nvme1"}),
        breaks="storage nvme1", in_force=FAST,
    ),
    "space for what is imported": case(
        cluster(storages=(DISK,), volumes={("pve1", "local:import/a.qcow2"): 7 * GIB}),
        on("pve1", disks=(Disk("scsi0", source="local:import/a.qcow2"),), storages={"scsi0": "local"}),
        breaks="storage local on pve1",
    ),
    "space for a clone": case(
        cluster(storages=(replace(DISK, used=6 * GIB),)), clone("pve1", scsi0="local"), breaks="storage local on pve1"
    ),
    "a forgotten drive": case(
        cluster(storages=(DISK,)), on("pve1", disks=(Disk("scsi0", GIB),)), breaks="scsi0 cannot be on storage None"
    ),
    "a storage that is not there": case(
        cluster(storages=(DISK,)), on("pve2", disks=(Disk("scsi0", GIB),), storages={"scsi0": "local"}),
        breaks="scsi0 cannot be on storage local",
    ),
    "a storage that is not active": case(
        cluster(storages=(replace(DISK, active=False),)),
        on("pve1", disks=(Disk("scsi0", GIB),), storages={"scsi0": "local"}), breaks="scsi0 cannot be on storage local",
    ),
    "a storage without the content": case(
        cluster(storages=(replace(DISK, content=frozenset({"iso"})),)),
        on("pve1", disks=(Disk("scsi0", GIB),), storages={"scsi0": "local"}), breaks="scsi0 cannot be on storage local",
    ),
    "another storage than the one asked for": case(
        cluster(storages=(DISK, *CEPH)), on("pve1", disks=(Disk("scsi0", GIB, "ceph"),), storages={"scsi0": "local"}),
        breaks="not on ceph",
    ),
    "a storage outside of the class": case(
        cluster(storages=(DISK,)), on("pve1", disks=(Disk("scsi0", GIB, storage_class="fast"),),
        storages={"scsi0": "local"}), breaks="not in class fast", in_force=FAST,
    ),
    "drives apart that are made together": case(
        cluster(storages=(DISK, *CEPH)), on("pve1", disks=(Disk("scsi0", GIB, others=("scsi1",)),),
        storages={"scsi0": "local", "scsi1": "ceph"}), breaks="scsi1 is not on storage local, where scsi0 is",
    ),
    "an image that is not there": case(
        cluster(storages=(DISK,), volumes={("pve1", "local:iso/a.iso"): None}),
        on("pve1", disks=(Disk("ide2", volume="local:iso/a.iso"),)), breaks="local:iso/a.iso is not there",
    ),
    "a template out of reach": case(
        cluster(storages=(DISK, replace(DISK, node="pve2"))), clone("pve2", scsi0="local"),
        breaks="storage local of its template on pve1 is local",
    ),
    "a device of two": case(
        cluster(devices=(GPU,)), gpu(), replace(gpu(201), request=replace(gpu().request, name="b")),
        breaks="device pci/0000:01:00.0 of pve1",
    ),
    "a device in use": case(cluster(devices=(replace(GPU, in_use=1),)), gpu(), breaks="device pci/0000:01"),
    "a device that another one will hold": case(
        cluster(guest(100, "pve1", devices=(("pci", GPU.id),)), devices=(GPU,)), gpu(),
        breaks="device pci/0000:01:00.0 of pve1",
    ),
    "a function of a card that is taken": case(
        cluster(guest(100, "pve1", devices=(("pci", CARD.id),)), devices=(GPU, CARD)), gpu(), breaks="is a part of",
    ),
    "a broken device": case(cluster(devices=(replace(GPU, fault="no IOMMU"),)), gpu(), breaks="cannot be used"),
    "a device of another node": case(cluster(devices=(replace(GPU, node="pve2"),)), gpu(), breaks="cannot be used"),
    "too few devices": case(cluster(devices=(GPU,)), gpu(claims=2), breaks="device claim gpu is not met"),
    "a VMID that is taken": case(cluster(guest(200, "pve2")), on("pve1"), breaks="its VMID is taken"),
    "a VMID that is taken unseen": case(cluster(vmids_unseen=frozenset({200})), on("pve1"), breaks="its VMID is taken"),
    "a VMID of two": case(cluster(), on("pve1"), on("pve2", name="b"), breaks="its VMID is taken"),
    "another VMID than the one asked for": case(
        cluster(), Decision(vm(vmid=300), "pve1", 200), breaks="VMID 300 was requested"
    ),
    "a name that is taken": case(
        cluster(guest(100, "pve2", name="web-1")), on("pve1"), breaks="its name is taken"
    ),
    "a name of two": case(
        cluster(), on("pve1"), on("pve1", 201), breaks="its name is taken"
    ),
    "no such node": case(cluster(), on("pve9"), breaks="there is no such node"),
    "an offline node": case(cluster(nodes=(node("pve1", online=False),)), on("pve1"), breaks="NodeReady"),
    "a drained node": case(cluster(nodes=(node("pve1", drained=True),)), on("pve1"), breaks="NodeReady"),
    "a node in maintenance": case(cluster(nodes=(node("pve1", maintenance=True),)), on("pve1"), breaks="NodeReady"),
    "another node than the one asked for": case(
        cluster(), Decision(vm(node="pve2"), "pve1", 200), breaks="NodeName does not hold"
    ),
    "a node outside of the pattern": case(cluster(), on("pve1", node_regex="pve[2-9]"), breaks="NodeRegex"),
    "a node outside of the context's pattern": case(
        cluster(), on("pve1", context={"node.qemu-scheduler/regex": "pve"}), breaks="NodeRegex"
    ),
    "a node without the label": case(
        cluster(nodes=RACKS), on("pve2", node_required=(Expression("rack", "In", ("a",)),)), breaks="NodeAffinity"
    ),
    "a taint": case(cluster(nodes=(node("pve1", taints=(Taint("gpu", "yes"),)),)),
        on("pve1", tolerations=(Toleration("gpu", value="no"),)), breaks="TaintToleration"),
    "apart from a guest": case(cluster(guest(100, "pve1", name="web-0")), on("pve1", affinity=(APART,)),
        breaks="not apart"),
    "apart from one of the run": case(
        cluster(), on("pve1", affinity=(APART,)), on("pve1", 201, "web-2"), breaks="not apart"
    ),
    "apart by rack": case(
        cluster(guest(100, "pve4", name="web-0"), nodes=(*RACKS, node("pve4", labels={"rack": "a"}))),
        on("pve1", affinity=(replace(APART, topology_key="rack"),)), breaks="not apart",
    ),
    "a guest that keeps others away": case(
        cluster(guest(100, "pve1", name="web-0", constraints=Constraints((APART,)))), on("pve1"), breaks="not apart"
    ),
    "with a guest": case(cluster(guest(100, "pve1", name="web-0")), on("pve2", affinity=(WITH,)), breaks="not with"),
    "with nobody": case(cluster(), on("pve2", name="db", affinity=(WITH,)), breaks="not with"),
    "two first of a kind": case(
        cluster(), on("pve1", affinity=(WITH,)), on("pve2", 201, "web-2", affinity=(WITH,)), breaks="not with"
    ),
    "with others where there is no label": case(
        cluster(nodes=RACKS), on("pve3", affinity=(replace(WITH, topology_key="rack"),)), breaks="not with"
    ),
    "spread": case(
        cluster(guest(100, "pve1", name="web-0")), on("pve1", topology_spread=(SpreadConstraint("node", WEB),)),
        breaks="not spread",
    ),
    "spread where there is no label": case(
        cluster(nodes=RACKS), on("pve3", topology_spread=(SpreadConstraint("rack", WEB),)), breaks="not spread"
    ),
    "a strict HA rule": case(
        cluster(ha_rules=(HARule("west", "node-affinity", nodes={"pve1": 1}, strict=True),)),
        on("pve2", ha=HAIntent(rule="west")), breaks="not on a node of HA rule west",
    ),
    "a strict HA rule about nodes to avoid": case(
        cluster(ha_rules=(HARule("west", "node-affinity", nodes={"pve2": 0}, strict=True, positive=False),)),
        on("pve2", ha=HAIntent(rule="west")), breaks="not on a node of HA rule west",
    ),
    "an HA rule with unknown words": case(
        cluster(ha_rules=(HARule("west", "node-affinity", nodes={"pve2": 0}, unknown="the key 'moon'"),)),
        on("pve2", ha=HAIntent(rule="west")), breaks="HA rule west has the key 'moon'",
    ),
    "a positive HA rule": case(
        cluster(guest(100, "pve1"), ha_rules=(HARule("pair", "resource-affinity", frozenset({100})),)),
        on("pve2", ha=HAIntent(rule="pair")), breaks="not with the VMs of HA rule pair",
    ),
    "a positive HA rule within the run": case(
        cluster(ha_rules=(HARule("pair", "resource-affinity"),)), on("pve1", ha=HAIntent(rule="pair")),
        on("pve2", 201, "b", ha=HAIntent(rule="pair")), breaks="not with the VMs of HA rule pair",
    ),
    "a negative HA rule": case(
        cluster(guest(100, "pve1", constraints=Constraints(ha=HAIntent(rule="no"))),
                ha_rules=(HARule("no", "resource-affinity", positive=False),)),
        on("pve1", ha=HAIntent(rule="no")), breaks="not apart from the VMs of HA rule no",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)
def test_law__names_what_is_broken_and_nothing_else(case: Case) -> None:
    snapshot, in_force, decisions, breaks = case
    reasons = broken(snapshot, [(decision, in_force) for decision in decisions])
    assert reasons
    assert all(breaks in reason for reason in reasons)


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)
def test_law__is_silent_about_rules_that_are_not_in_force(case: Case) -> None:
    snapshot, in_force, decisions, breaks = case
    always = ("VMID", "no such node")
    in_force = replace(in_force, rules=frozenset())
    reasons = broken(snapshot, [(decision, in_force) for decision in decisions])
    assert bool(reasons) == any(text in breaks for text in always)


def test_law__judges_each_decision_in_the_cluster_that_it_found() -> None:
    spread = (SpreadConstraint("node", WEB),)
    first, second = on("pve1", name="web-1"), on("pve1", 201, "db", affinity=(WITH,))
    third, fourth = on("pve2", 202, "web-2", topology_spread=spread), on("pve2", 203, "web-3")
    in_order = [(each, InForce()) for each in (first, second, third, fourth)]
    assert broken(cluster(), in_order) == []
    assert broken(cluster(), in_order[::-1]) == [
        'VM "web-2" (202) on pve2: it is not spread over node within 1',
        'VM "db" (201) on pve1: it is not with the VMs that it must be with',
    ]
