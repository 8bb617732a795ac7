# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plugins DeviceClaims, DeviceScarcity and DeviceFit, through the scheduler."""

from __future__ import annotations

import itertools
import typing as t

import pytest
from support.looking import normalized

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.passthrough import (
    scarcity_score,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import (
    NAMED,
    Profile,
    build_profiles,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.verdicts import Outcome
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    Device,
    DeviceClaim,
    Disk,
    Guest,
    Node,
    Request,
    Snapshot,
    Storage,
)

GPU = (DeviceClaim("gpu", mapping="gpu"),)


def scheduler(devices: dict[str, int], nodes: int = 3, offline: str | None = None) -> Scheduler:
    """A scheduler for nodes of one size, with so many GPUs on each as devices says."""
    names = [f"pve{number}" for number in range(1, nodes + 1)]
    snapshot = Snapshot(
        nodes=tuple(Node(name, online=name != offline, cores=32, memory=2**37) for name in names),
        devices=tuple(
            Device("pci", "gpu", node, f"0000:{number:02x}:00.0")
            for node, count in devices.items()
            for number in range(count)
        ),
    )
    return Scheduler(ClusterState(snapshot), {"balanced": Profile("balanced", builtin_registry())})


def place(where: Scheduler, name: str, devices: tuple[DeviceClaim, ...] = (), **more: t.Any) -> Outcome:
    return where.schedule(Request(name, devices=devices, **more))


def test_vms_with_a_claim__go_where_devices_are_until_none_is_left() -> None:
    where = scheduler({"pve2": 2, "pve3": 1})
    outcomes = [place(where, f"vm{number}", GPU) for number in range(4)]

    placed = [outcome.decision for outcome in outcomes[:3]]
    assert all(decision is not None and len(decision.devices) == 1 for decision in placed)
    assert sorted(d.node for d in placed if d is not None) == ["pve2", "pve2", "pve3"]
    assert outcomes[3].error is not None
    assert outcomes[3].error.message == (
        "0/3 nodes are available for VM \"vm3\": 3 node(s) couldn't satisfy device claim 'gpu' "
        "(pve1, pve2, pve3); gpu: no available devices; unable to satisfy 1 of 1 device requests; "
        "gpu: not mapped here; unable to satisfy 1 of 1 device requests; "
        "without devices, pve1, pve2 and pve3 would fit"
    )
    reasons = {verdict.node: verdict.reason for verdict in outcomes[3].verdicts()}
    assert reasons["pve3"] == (
        "couldn't satisfy device claim 'gpu' (gpu: no available devices; unable to satisfy 1 of 1 device requests)"
    )
    assert outcomes[3].rejected_by == {"DeviceClaims"}
    assert outcomes[3].resolvable


@pytest.mark.parametrize("offline", [None, "pve3"])
def test_what_no_node_has__may_be_on_one_that_is_offline(offline: str | None) -> None:
    outcome = place(scheduler({}, offline=offline), "vm", GPU)
    assert outcome.resolvable is (offline is not None)


def test_vm_without_claims__leaves_nodes_with_free_devices_alone() -> None:
    where = scheduler({"pve1": 1, "pve2": 4})

    assert [o.decision.node for n in range(3) if (o := place(where, f"vm{n}")).decision] == ["pve3"] * 3


def test_vm_without_claims__prefers_the_node_with_fewer_free_devices() -> None:
    decision = place(scheduler({"pve1": 4, "pve2": 1}, nodes=2), "vm").decision

    assert decision is not None
    assert decision.node == "pve2"


def test_node_whose_devices_are_all_taken__is_as_good_as_one_without() -> None:
    where = scheduler({"pve1": 1}, nodes=1)
    place(where, "gpu", GPU)

    (verdict,) = place(where, "vm").verdicts()
    assert verdict.scores["DeviceScarcity"].raw == 100


def test_vm_with_a_claim__prefers_the_node_where_fewest_devices_are_left_over() -> None:
    decision = place(scheduler({"pve1": 4, "pve2": 1, "pve3": 2}), "vm", GPU).decision

    assert decision is not None
    assert decision.node == "pve2"


@pytest.mark.parametrize("by", sorted(NAMED))
def test_device_fit__leads_whatever_the_load_of_the_nodes_says(by: str) -> None:
    """The node where one more device would be left over is empty; the other is nearly full, on every storage too."""
    nodes = (Node("a", cores=32, memory=2**37), Node("b", cores=32, memory=2**37))
    snapshot = Snapshot(
        nodes=nodes,
        guests=tuple(Guest(100 + n, f"vm-{n}", "b", status="running", cores=4, memory=2**33) for n in range(15)),
        devices=tuple(
            Device("pci", "gpu", n, f"0000:{i:02x}:00.0") for n, most in (("a", 8), ("b", 7)) for i in range(most)
        ),
        storages=(Storage("local", "a", total=2**40), Storage("local", "b", total=2**40, used=2**39)),
    )
    where = Scheduler(ClusterState(snapshot), build_profiles(builtin_registry()))
    disks = (Disk("scsi0", 2**33),)

    assert [o.decision and o.decision.node for o in [place(where, "gpu", GPU, disks=disks, profile=by)]] == ["b"]


def test_device_fit__leaves_it_to_the_load_where_the_devices_fit_equally_well() -> None:
    snapshot = Snapshot(
        nodes=(Node("a", cores=32, memory=2**37), Node("b", cores=32, memory=2**37)),
        guests=(Guest(100, "vm", "a", status="running", cores=4, memory=2**33),),
        devices=tuple(Device("pci", "gpu", name, "0000:01:00.0") for name in ("a", "b")),
    )
    where = Scheduler(ClusterState(snapshot), build_profiles(builtin_registry()))
    assert [o.decision and o.decision.node for o in [place(where, "gpu", GPU)]] == ["b"]


def test_device_fit__spaces_nodes_evenly_by_what_is_left() -> None:
    outcome = place(scheduler({"pve1": 1, "pve2": 2, "pve3": 9}), "vm", GPU)
    assert normalized(outcome, "DeviceFit") == {"pve1": 100, "pve2": 50, "pve3": 0}


def test_full_node__is_not_spared_for_its_devices() -> None:
    where = scheduler({"pve1": 1}, nodes=2)
    nodes = [o.decision.node for n in range(12) if (o := place(where, f"vm{n}", memory=2**33, running=True)).decision]

    assert nodes[:3] == ["pve2"] * 3
    assert "pve1" in nodes


def test_nothing__is_scored_in_a_cluster_without_devices() -> None:
    assert all("DeviceScarcity" not in verdict.scores for verdict in place(scheduler({}), "vm").verdicts())


def test_first_free_device_of_a_mapping__weighs_most() -> None:
    assert scarcity_score([]) == scarcity_score([0, 0]) == 100
    steps = [scarcity_score([count]) for count in range(4)]
    losses = [before - after for before, after in itertools.pairwise(steps)]
    assert losses == sorted(losses, reverse=True)
    assert scarcity_score([64, 1]) < scarcity_score([65])


@pytest.mark.parametrize(
    ("left", "score"), [([1], 100 / 1.5), ([3], 100 / 1.75), ([1, 1], 50), ([3, 1, 0], 100 / 2.25)]
)
def test_device_scarcity__is_100_by_one_and_what_each_mapping_has_left(left: list[int], score: float) -> None:
    assert scarcity_score(left) == pytest.approx(score)


def test_constraint_that_fails_on_a_device__fails_that_vm_with_a_clear_error() -> None:
    broken = (DeviceClaim("gpu", mapping="gpu", constraints=("device.id > 5",)),)
    where = scheduler({"pve1": 1})

    error = place(where, "vm", broken).error
    assert isinstance(error, InvalidRequest)
    assert "claim 'gpu': constraint 'device.id > 5': failed with TypeError" in error.message
    assert place(where, "other", GPU).decision is not None


@pytest.mark.parametrize("vms", [1, 3])
def test_decision_taken_back__frees_its_devices(vms: int) -> None:
    where = scheduler({"pve1": vms})
    decisions = [place(where, f"vm{number}", GPU).decision for number in range(vms)]
    assert place(where, "late", GPU).decision is None

    for decision in decisions:
        assert decision is not None
        where.undo(decision)

    assert place(where, "late", GPU).decision is not None
