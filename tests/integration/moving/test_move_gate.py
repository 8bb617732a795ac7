# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a move has to pass before it is sent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.identities import identified, use_again
from support.ledgers import dead_holder
from support.small_cluster import profile

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import PlanStale
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import HA, OFFLINE, Move
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import Holder, Reservation
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.access import Access
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.gate import MoveGate
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.sight import read_busy_guests

from .conftest import TIME_SCALE, description

APART = {"rule": "apart", "type": "resource-affinity", "affinity": "negative", "resources": "vm:101,vm:201"}


@pytest.fixture
def tick() -> int:
    """Seconds between two rounds of the statistics daemon."""
    return 10


@pytest.fixture
def cluster(version: str, tick: int) -> Iterator[SimulatedCluster]:
    with SimulatedCluster.start({**description(), "tick": tick}, version=version, time_scale=TIME_SCALE) as running:
        yield running


def move(vmid: int, source: str = "pve1", **more: object) -> Move:
    return Move(1, vmid, f"vm{vmid}", source, "pve2", "test", **more)  # type: ignore[arg-type]


def test_gate__asks_the_filters(cluster: SimulatedCluster, access: Access) -> None:
    gate, session = MoveGate(access, profile(), lambda snapshot: snapshot), access.writer()
    for vmid in (102, 103):
        cluster.set_guest(vmid, config={"tags": "plb_affinity_pair"})
    for vmid in (101, 201):
        session.post("/cluster/ha/resources", sid=f"vm:{vmid}")
    cluster.advance(30)
    # Somebody makes it after the plan.
    session.post("/cluster/ha/rules", **APART)

    with pytest.raises(PlanStale, match="HA rule 'apart'"):
        gate.admit(move(101, via=HA))
    # Two that must be together go one after the other.
    gate.admit(move(102))
    cluster.add_guest(vmid=202, node="pve2", name="vm202", memory=9 * 1024, status="running")
    cluster.advance(30)
    with pytest.raises(PlanStale, match="would exceed the memory overcommit ratio"):
        gate.admit(move(104))
    assert [each.vmid for each in access.ledger.reservations(access.identity())] == [102]


@pytest.mark.parametrize("state", ["started", "ignored"])
def test_gate__refuses_a_node_from_which_the_ha_manager_would_move_the_guest_back(
    cluster: SimulatedCluster, access: Access, state: str
) -> None:
    gate, session = MoveGate(access, profile(), lambda snapshot: snapshot), access.writer()
    session.post("/cluster/ha/resources", sid="vm:101", state=state)
    cluster.advance(30)
    # Somebody makes it after the plan. It is not strict: a filter only scores its nodes.
    session.post("/cluster/ha/rules", rule="home", type="node-affinity", nodes="pve1:2,pve2:1", resources="vm:101")
    if state == "ignored":
        assert gate.admit(move(101))
        return
    with pytest.raises(PlanStale, match=r"pve2 would lose it to pve1 again, which HA rule 'home' prefers"):
        gate.admit(move(101, via=HA))


@pytest.mark.parametrize("tick", [3600])
def test_gate__counts_a_guest_as_planned_that_the_list_shows_late(cluster: SimulatedCluster, access: Access) -> None:
    gate = MoveGate(access, profile(), lambda snapshot: snapshot)
    cluster.set_guest(105, status="running")
    cluster.add_guest(vmid=150, node="pve1", name="vm150", memory=512)

    gate.admit(move(105, memory=3 * GIB))
    gate.admit(move(150, how=OFFLINE))

    seen = {each.vmid: (each.running, each.memory) for each in access.ledger.reservations(access.identity())}
    assert seen[105] == (True, 3 * GIB)
    assert not seen[150][0]


@pytest.mark.parametrize("tick", [3600])
def test_gate__counts_a_new_guest_on_the_target_that_the_list_shows_without_its_sizes(
    cluster: SimulatedCluster, access: Access
) -> None:
    gate = MoveGate(access, profile(), lambda snapshot: snapshot)
    cluster.add_guest(vmid=250, node="pve2", name="web-1", memory=12 * 1024, status="running")

    with pytest.raises(PlanStale, match="would exceed the memory overcommit ratio"):
        gate.admit(move(101))
    assert access.ledger.reservations(access.identity()) == []


@pytest.mark.parametrize("tick", [3600])
def test_gate__reserves_both_nodes_for_a_guest_that_was_created_a_moment_ago(
    cluster: SimulatedCluster, access: Access
) -> None:
    gate, name, creator = MoveGate(access, profile(), lambda snapshot: snapshot), access.identity(), Holder.new()
    creation = Reservation(name, 150, "web-1", "pve1", cores=1, memory=12 * GIB, running=True)
    with access.ledger.scheduling_cycle(name, holder=creator) as cycle:
        cycle.reserve([creation])
    access.ledger.mark_binding(name, [150], creator)
    cluster.add_guest(vmid=150, node="pve1", name="web-1", memory=12 * 1024, status="running")

    with pytest.raises(PlanStale, match="it is being created"):
        gate.admit(move(150))
    access.ledger.mark_created(name, [150], creator)
    gate.admit(move(150)).begin()
    with pytest.raises(PlanStale, match="would exceed the memory overcommit ratio"):
        MoveGate(access, profile(), lambda snapshot: snapshot).admit(move(101))

    (found,) = access.ledger.reservations(name)
    assert (found.node, found.source, found.phase, found.holder) == ("pve2", "pve1", "binding", access.holder)
    assert (found.memory, found.running) == (12 * GIB, True)


def test_gate__counts_the_vm_of_a_process_that_was_paused_and_goes_on_while_a_move_is_decided(
    cluster: SimulatedCluster, access: Access
) -> None:
    name, paused = access.identity(), Holder.new()
    creation = Reservation(name, 150, "web-1", "pve2", cores=1, memory=12 * GIB, running=True)
    with access.ledger.scheduling_cycle(name, holder=paused) as cycle:
        cycle.reserve([creation])
    access.ledger.mark_binding(name, [150], paused)
    access.ledger.renew(name, [150], paused, until=time.time() - 1)

    def go_on(snapshot: Snapshot) -> Snapshot:
        # The cluster has been read by now, and shows nothing of the VM that is about to be created.
        assert access.ledger.renew(name, [150], paused) == {150}
        return snapshot

    with pytest.raises(PlanStale, match="would exceed the memory overcommit ratio"):
        MoveGate(access, profile(), go_on).admit(move(101))
    assert [each.vmid for each in access.ledger.reservations(name)] == [150]


@pytest.mark.parametrize("sent", [True, False])
def test_gate__counts_the_move_of_a_killed_controller_while_its_task_runs(
    cluster: SimulatedCluster, access: Access, sent: bool
) -> None:
    name, session, killed = access.identity(), access.writer(), dead_holder()
    session.post("/cluster/ha/resources", sid="vm:101")
    cluster.add_guest(vmid=202, node="pve2", name="vm202", memory=9 * 1024, status="running")
    planned = Reservation(name, 101, "move:101", "pve2", cores=1, memory=3 * GIB, running=True, source="pve1")
    with access.ledger.scheduling_cycle(name, holder=killed) as cycle:
        cycle.reserve([planned])
    access.ledger.mark_binding(name, [101], killed)
    # Nothing shows the move before this task has asked the HA manager for it.
    cluster.fault(method="POST", path="/migrate$", task_seconds=3600)
    if sent:
        session.post("/nodes/pve1/qemu/101/migrate", target="pve2", online=True)
    access.ledger.renew(name, [101], killed, until=time.time() - 1)
    cluster.advance(30)
    gate = MoveGate(access, profile(), lambda snapshot: snapshot)

    if sent:
        with pytest.raises(PlanStale, match="would exceed the memory overcommit ratio"):
            gate.admit(move(102))
    else:
        gate.admit(move(102))

    counted = {each.vmid for each in access.ledger.reservations(name)}
    assert counted == ({101} if sent else {102})


@pytest.mark.parametrize("name", ["payroll", "vm101"])
def test_gate__neither_counts_nor_awaits_the_move_of_a_guest_whose_vmid_was_used_again(
    cluster: SimulatedCluster, access: Access, params: dict[str, Any], name: str
) -> None:
    """Another controller has a move of vm101 under way; the memory that vm101 would need on pve2 is needed there."""
    session, other = access.writer(), Access.open(params, lambda nodes: {})
    cluster.add_guest(vmid=202, node="pve2", name="vm202", memory=9 * 1024, status="running")
    cluster.advance(30)
    MoveGate(other, profile(), lambda snapshot: snapshot).admit(identified(session, move(101))).begin()
    gate = MoveGate(access, profile(), lambda snapshot: snapshot)
    with pytest.raises(PlanStale, match="would exceed the memory overcommit ratio"):
        gate.admit(move(102))
    assert read_busy_guests(access) == {101: "it is being moved"}

    use_again(cluster, 101, name, memory=256)
    cluster.advance(30)

    assert read_busy_guests(access) == {}
    gate.admit(move(102))
    assert [each.vmid for each in access.ledger.reservations(access.identity())] == [102]
    other.close()
