# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cluster is read with few calls, and as it is: not as its statistics still show it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from simulated_cluster.client import SimulatedCluster

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Guest, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.recorded import (
    RecordedReader,
    Recorder,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import Session
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.freshness import KnownGuest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.snapshot import (
    Needs,
    identity,
    read_settled,
    read_snapshot,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import TaskFollower

from .conftest import BLIND, DESCRIPTION, calls, parameters

# Statistics are made anew only when a test lets the time pass.
STATISTICS_EVERY = 3600
SLOW = 0.2


@pytest.fixture
def slow_cluster(version: str) -> Iterator[SimulatedCluster]:
    description = {**DESCRIPTION, "timing": {"pvestatd_seconds": STATISTICS_EVERY}}
    with SimulatedCluster.start(description, version=version, time_scale=SLOW) as running:
        yield running


@pytest.fixture
def slow_session(slow_cluster: SimulatedCluster) -> Session:
    return Session.connect(parameters(slow_cluster))


def guest(snapshot: Snapshot, vmid: int) -> Guest | None:
    return next((guest for guest in snapshot.guests if guest.vmid == vmid), None)


def create(session: Session, vmid: int, name: str, **options: str | int) -> None:
    session_tasks = TaskFollower(session, timeout=60)
    session_tasks.wait(session.post("/nodes/pve1/qemu", vmid=vmid, name=name, memory="4096", cores=4, **options))


def delete(session: Session, vmid: int) -> None:
    TaskFollower(session, timeout=60).wait(session.delete(f"/nodes/pve1/qemu/{vmid}"))


def test_quiet_cluster__is_read_with_three_calls(cluster, session):
    snapshot = read_settled(session, Needs(next_id=True))

    assert calls(cluster) == ["GET /cluster/resources", "GET /cluster/options", "GET /cluster/tasks"]
    assert len(snapshot.nodes) == 3
    assert guest(snapshot, 9000).template
    assert guest(snapshot, 110).kind == "lxc"


def test_identity__is_that_of_the_authority(session):
    assert re.fullmatch("ca:[0-9a-f]+", identity(session))


def test_vm_created_a_moment_ago__is_read_with_its_name_and_sizes(slow_cluster, slow_session):
    create(slow_session, 200, "fresh")

    late = guest(read_snapshot(slow_session), 200)
    settled = guest(read_settled(slow_session), 200)
    assert (late.name, late.memory) == (None, 0)
    assert (settled.name, settled.memory, settled.cores) == ("fresh", 4096 * 1024**2, 4)


def test_vmid_in_use_again__is_never_taken_for_the_vm_that_had_it(slow_cluster, slow_session):
    create(slow_session, 200, "old")
    slow_cluster.advance(2 * STATISTICS_EVERY)
    read_snapshot(slow_session)
    delete(slow_session, 200)
    create(slow_session, 200, "new")

    assert guest(read_snapshot(slow_session), 200).name == "old"
    assert guest(read_settled(slow_session), 200).name == "new"


def test_vmid_in_use_again__is_seen_through_even_by_who_sees_no_tasks(slow_cluster, slow_session):
    blind = Session.connect(parameters(slow_cluster, **BLIND))
    create(slow_session, 200, "old")
    slow_cluster.advance(2 * STATISTICS_EVERY)
    read_snapshot(slow_session)
    delete(slow_session, 200)
    create(slow_session, 200, "new")

    assert blind.get("/cluster/tasks") == []
    assert guest(read_snapshot(blind), 200).name == "old"
    assert guest(read_settled(blind), 200).name == "new"


def test_vm_being_created__is_waited_for_until_its_name_is_known(slow_session):
    slow_session.post("/nodes/pve1/qemu", vmid=200, name="slow", memory="4096", scsi0="local-lvm:4")

    assert guest(read_settled(slow_session), 200).name == "slow"


def test_vm_whose_creation_takes_long__is_read_without_a_name(slow_session):
    slow_session.post(
        "/nodes/pve1/qemu", vmid=200, name="slow", scsi0="local-lvm:0,import-from=local:import/debian.qcow2"
    )
    slow_session.post("/nodes/pve1/qemu", vmid=201, name="x", scsi0="local-lvm:0,import-from=local:import/debian.qcow2")

    known = {200: KnownGuest("slow", whole=False), 201: KnownGuest("x", whole=False)}
    unfinished = guest(read_settled(slow_session, known=known), 200)
    assert (unfinished.name, unfinished.lock) == (None, "create")


def test_dead_node_that_still_counts_as_online__does_not_fail_the_reading(cluster, session):
    session.post("/nodes/pve3/qemu", vmid=200, name="gone")
    cluster.set_node("pve3", online=False, known=False)

    assert guest(read_settled(session), 200) is not None


def test_bounds_for_vmids__hold_for_who_may_not_see_them(session, blind, root):
    root.put("/cluster/options", {"next-id": "lower=5000,upper=5003"})

    assert read_snapshot(session, Needs(next_id=True)).next_id == (5000, 5002)
    assert read_snapshot(blind, Needs(next_id=True)).next_id[0] == 5000


def test_full_range__leaves_no_vmid_to_who_may_not_see_the_bounds(cluster, blind, root):
    root.put("/cluster/options", {"next-id": "lower=5000,upper=5002"})
    for vmid in (5000, 5001):
        cluster.add_guest(vmid=vmid, name=f"vm{vmid}", node="pve1")

    snapshot = read_snapshot(blind, Needs(next_id=True))
    lower, upper = snapshot.next_id
    assert set(range(lower, upper + 1)) <= snapshot.vmids_unseen
    assert lower == 5000


def test_rules_or_groups_bridges_and_cpus__are_read_when_needed(cluster, session, root, version):
    root.post("/cluster/ha/resources", sid="vm:100", state="stopped")
    if version == "8.4":
        root.post("/cluster/ha/groups", group="g1", nodes="pve1:2,pve2", restricted=True)
        root.put("/cluster/ha/resources/vm:100", group="g1")
    else:
        rule = {"type": "node-affinity", "rule": "g1", "resources": "vm:100", "nodes": "pve1:2,pve2", "strict": True}
        root.post("/cluster/ha/rules", rule)

    snapshot = read_settled(session, Needs(bridges=True, cpu_types=True, cpu_flags=True, ha_rules=True))

    (rule,) = snapshot.ha_rules
    assert (rule.name, rule.vmids, rule.nodes, rule.strict) == ("g1", {100}, {"pve1": 2, "pve2": 0}, True)
    assert rule.from_group is (version == "8.4")
    for node in snapshot.nodes:
        assert node.bridges == {"vmbr0"}
        assert "EPYC" in node.cpu_models
        assert (node.cpu_flags is None) is (version == "8.4")


def test_recorded_reading__decides_as_the_live_one_did(slow_cluster, slow_session):
    create(slow_session, 200, "old")
    slow_cluster.advance(2 * STATISTICS_EVERY)
    delete(slow_session, 200)
    create(slow_session, 200, "new")
    recorder = Recorder(slow_session)

    live = read_settled(recorder, Needs(next_id=True))

    assert read_settled(RecordedReader(recorder.answers), Needs(next_id=True)) == live
