# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves followed to their real end, and what is told of those that fail."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from simulated_cluster.client import SimulatedCluster
from simulator.moves_lab import description
from support.identities import identified, use_again
from support.versions import both_versions
from support.waiting import until

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    MoveFailed,
    NotTheSameGuest,
    PermissionDenied,
    PlanStale,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import HA, OFFLINE, RESTART, Move
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import Session
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.moves.mover import Mover
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import Poller, TaskFollower

from .conftest import SCALE, calls, parameters

Moving = t.Callable[..., Move]
HA_RESOURCES = [{"sid": f"vm:{vmid}", "state": "started"} for vmid in (140, 141, 145)]


@pytest.fixture
def cluster(version: str) -> Iterator[SimulatedCluster]:
    rules = [{"rule": "pair", "type": "resource-affinity", "affinity": "positive", "resources": "vm:140,vm:141"}]
    ha: dict[str, t.Any] = {"resources": HA_RESOURCES, **({"rules": rules} if version == "9.2" else {})}
    # Proxmox lists it whichever guest's volumes are asked for.
    lab = {**description(), "version": version, "ha": ha, "images": {"fast": {"debian.qcow2": 1}}}
    with SimulatedCluster.start(lab, version=version, time_scale=SCALE) as running:
        running.add_guest(
            vmid=210,
            node="pve1",
            type="lxc",
            name="ct210",
            memory=64,
            cores=1,
            status="running",
            config={"rootfs": "shared:210/vm-210-disk-0.raw,size=16M"},
        )
        yield running


@pytest.fixture
def mover(session: Session, poller: Poller) -> Mover:
    return Mover(session, TaskFollower(session, timeout=30_000, poller=poller))


@pytest.fixture(autouse=True)
def _second_disk(cluster: SimulatedCluster) -> None:
    cluster.set_guest(151, config={"scsi1": "fast:151/vm-151-disk-1.raw,size=64M"})


@pytest.fixture
def moving(session: Session) -> t.Callable[..., Move]:
    """Plan a move of the guest that has a VMID now."""

    def planned(vmid: int, target: str = "pve2", **more: t.Any) -> Move:
        of_one = {"id": 1, "vmid": vmid, "name": f"mv{vmid}", "source": "pve1", "target": target, "why": ""}
        return identified(session, Move(**{**of_one, **more}))

    return planned


def node_of(cluster: SimulatedCluster, vmid: int) -> str:
    return str(cluster.state()["guests"][vmid]["node"])


def test_move__a_running_vm_takes_three_requests_the_polls_and_one_for_its_target(
    cluster: SimulatedCluster, mover: Mover, moving: Moving, version: str
) -> None:
    move = moving(101)
    cluster.requests(reset=True)

    warnings = mover.move(move)

    assert (warnings, node_of(cluster, 101)) == ((), "pve2")
    base = "/nodes/pve1/qemu/101"
    target = ["GET /nodes/pve2/capabilities/qemu/migration"] * (version == "9.2")
    assert calls(cluster) == [f"GET {base}/migrate", *target, f"GET {base}/config", f"POST {base}/migrate"]


@both_versions
@pytest.mark.parametrize("able", [("pve1", "pve2"), ("pve1",), ("pve2",)], ids=" ".join)
def test_move__live_keeps_connections_where_both_nodes_can(poller: Poller, version: str, able: tuple[str, ...]) -> None:
    lab = description()
    lab["nodes"] = [{**node, "dbus_vmstate": node["name"] in able} for node in lab["nodes"]]
    with SimulatedCluster.start(lab, version=version, time_scale=SCALE) as cluster:
        own = Session.connect(parameters(cluster))
        mover = Mover(own, TaskFollower(own, timeout=30_000, poller=poller))
        planned = Move(1, 101, "mv101", "pve1", "pve2", "")
        cluster.reset_requests()
        mover.move(identified(own, planned))
        (task,) = [each for each in own.get("/nodes/pve1/tasks", vmid=101) if each["type"] == "qmigrate"]
        log = " ".join(line["t"] for line in own.get(f"/nodes/pve1/tasks/{task['upid']}/log"))
        sent = next(request["params"] for request in cluster.requests() if request["method"] == "POST")

    kept = version == "9.2" and len(able) == 2
    assert ("with-conntrack-state" in sent) is kept
    assert ("connections might get dropped" in log) is (version == "9.2" and not kept)


def test_move__only_a_running_vm_has_connections(cluster: SimulatedCluster, mover: Mover, moving: Moving) -> None:
    mover.move(moving(103, how=OFFLINE, storages={"scsi0": "fast"}))
    mover.move(moving(210, kind="lxc", how=RESTART))
    mover.move(moving(140, via=HA))

    assert not [request for request in cluster.requests() if "with-conntrack-state" in str(request.get("params"))]


def test_move__local_disks_go_to_the_storages_of_the_plan(
    cluster: SimulatedCluster, mover: Mover, moving: Moving
) -> None:
    mover.move(moving(104, storages={"scsi0": "tiny"}))

    guest = cluster.state()["guests"][104]
    assert guest["node"] == "pve2"
    assert guest["config"]["scsi0"].startswith("tiny:")


def test_move__a_guest_that_is_off(cluster: SimulatedCluster, mover: Mover, moving: Moving) -> None:
    mover.move(moving(103, how=OFFLINE, storages={"scsi0": "fast"}))

    assert node_of(cluster, 103) == "pve2"


def test_move__a_running_container_is_restarted(cluster: SimulatedCluster, mover: Mover, moving: Moving) -> None:
    mover.move(moving(210, kind="lxc", how=RESTART))

    assert node_of(cluster, 210) == "pve2"


def test_move__the_bandwidth_is_bounded(
    cluster: SimulatedCluster, session: Session, poller: Poller, moving: Moving
) -> None:
    bounded = Mover(session, TaskFollower(session, timeout=30_000, poller=poller), bwlimit=10240)
    bounded.move(moving(101))

    post = next(request for request in cluster.requests() if request["method"] == "POST")
    assert post["params"]["bwlimit"] in (10240, "10240")


@pytest.mark.parametrize(
    ("vmid", "more", "what"),
    [
        (102, {}, "it was stopped after the plan was made"),
        (101, {"how": OFFLINE}, "it was started after the plan was made"),
        (116, {"how": OFFLINE}, "it is locked (backup)"),
        (101, {"source": "pve3"}, "it is no longer on pve3"),
        (104, {}, "scsi0 would have to be copied, which the plan does not know"),
        (
            151,
            {"how": OFFLINE, "storages": {"scsi0": "fast", "scsi1": "tiny"}},
            "disks of one storage would go to several",
        ),
        (105, {"how": OFFLINE, "target": "pve3", "storages": {}}, "scsi0 would have to be copied"),
    ],
)
def test_move__nothing_is_sent_when_the_guest_is_not_as_planned(
    cluster: SimulatedCluster, mover: Mover, vmid: int, more: dict[str, t.Any], what: str, moving: Moving
) -> None:
    with pytest.raises(PlanStale) as caught:
        mover.move(moving(vmid, **more))

    assert what in caught.value.message
    assert all(what in each for each in caught.value.details["changed"])
    assert not [call for call in calls(cluster) if call.startswith("POST")]


@both_versions
@pytest.mark.parametrize(
    ("vmid", "more"),
    [
        (101, {}),
        (103, {"how": OFFLINE, "storages": {"scsi0": "fast"}}),
        (140, {"via": HA}),
        (210, {"kind": "lxc", "how": RESTART}),
    ],
    ids=["live", "offline", "by HA", "container"],
)
def test_move__a_guest_that_has_taken_the_vmid_is_not_moved(
    cluster: SimulatedCluster, mover: Mover, moving: Moving, vmid: int, more: dict[str, t.Any]
) -> None:
    move = moving(vmid, **more)
    kept = {"config": {"rootfs": "shared:210/vm-210-disk-9.raw,size=16M"}} if vmid == 210 else {}
    use_again(cluster, vmid, status="stopped" if vmid == 103 else "running", memory=64, disks={}, **kept)

    with pytest.raises(NotTheSameGuest) as caught:
        mover.move(move)

    assert f"VMID {vmid}: " in caught.value.message
    assert f'"{cluster_name(move)}" on pve1' in caught.value.message
    assert '"payroll" on pve1' in caught.value.message
    assert (node_of(cluster, vmid), cluster.state()["guests"][vmid]["name"]) == ("pve1", "payroll")
    assert not [call for call in calls(cluster) if call.startswith("POST")]


def cluster_name(move: Move) -> str | None:
    """The name that the guest of a move had when the move was planned."""
    return move.identities[move.vmid].name


def test_move__a_guest_that_would_move_along_is_proved_as_well(
    cluster: SimulatedCluster, mover: Mover, moving: Moving
) -> None:
    move = moving(140, via=HA, together=(141,))
    use_again(cluster, 141, memory=64, disks={})

    with pytest.raises(NotTheSameGuest, match=r'VMID 141: .* found VM "payroll"'):
        mover.move(move)

    assert (node_of(cluster, 140), node_of(cluster, 141)) == ("pve1", "pve1")


def test_move__a_request_is_not_sent_again_for_another_guest(
    cluster: SimulatedCluster, mover: Mover, moving: Moving
) -> None:
    """It is lost on its way, and its VMID is used again while the task is looked for."""
    move = moving(101)
    cluster.fault(method="POST", path="/qemu/101/migrate$", count=1, drop="before")

    with pytest.raises(NotTheSameGuest):
        mover.move(move, fence=lambda: use_again(cluster, 101, memory=64, disks={}))

    assert (node_of(cluster, 101), cluster.state()["guests"][101]["name"]) == ("pve1", "payroll")


def test_move__a_guest_that_was_replaced_while_the_ledger_was_asked_stays(
    cluster: SimulatedCluster, mover: Mover, moving: Moving, poller: Poller
) -> None:
    def fence() -> None:
        poller.sleep(10)
        use_again(cluster, 101, memory=64, disks={})

    with pytest.raises(NotTheSameGuest):
        mover.move(moving(101), fence=fence)

    assert (node_of(cluster, 101), cluster.state()["guests"][101]["name"]) == ("pve1", "payroll")


def test_move__of_a_guest_of_which_nothing_is_known_is_not_begun(
    cluster: SimulatedCluster, mover: Mover, moving: Moving
) -> None:
    with pytest.raises(PlanStale, match="nothing is known of the identity of guest 101"):
        mover.move(replace(moving(101), identities={}))

    assert node_of(cluster, 101) == "pve1"


@pytest.mark.parametrize(
    ("ended", "what"),
    [
        ("can't lock file '/var/lock/pve-manager/pve-migrate-150' - got timeout", "another task is working on it"),
        ("Configuration file 'nodes/pve1/qemu-server/150.conf' does not exist", "it is no longer on pve1"),
    ],
)
def test_move__that_others_began_a_moment_before_is_theirs(
    cluster: SimulatedCluster, mover: Mover, ended: str, what: str, moving: Moving
) -> None:
    """Proxmox VE accepts both requests. The second task waits ten seconds for the first one."""
    cluster.fault(method="POST", path="/150/migrate$", task_error=ended)

    with pytest.raises(PlanStale, match=what):
        mover.move(moving(150, storages={"scsi0": "fast"}))


def test_move__waits_for_a_task_that_holds_the_guest(
    cluster: SimulatedCluster, session: Session, mover: Mover, moving: Moving
) -> None:
    """A reboot that the guest does not react to takes a minute, and a migration gives up after ten seconds."""
    cluster.set_guest(101, acpi=False)
    cluster.fault(method="POST", path="/101/status/reboot$", task_held=True)
    move = moving(101)
    session.post("/nodes/pve1/qemu/101/status/reboot", timeout=1)

    with ThreadPoolExecutor() as thread:
        ended = thread.submit(mover.move, move)
        until(lambda: calls(cluster).count("POST /nodes/pve1/qemu/101/migrate") > 1)
        cluster.release()
        ended.result()

    assert node_of(cluster, 101) == "pve2"


def test_move__nothing_is_sent_when_the_fence_refuses(cluster: SimulatedCluster, mover: Mover, moving: Moving) -> None:
    def fence() -> None:
        raise PermissionDenied("closed")

    with pytest.raises(PermissionDenied):
        mover.move(moving(101), fence=fence)

    assert not [call for call in calls(cluster) if call.startswith("POST")]


def test_move__the_cause_of_a_failure_comes_from_the_log(
    cluster: SimulatedCluster, mover: Mover, moving: Moving
) -> None:
    with pytest.raises(MoveFailed) as caught:
        mover.move(moving(130, "pve3"))

    assert caught.value.details["cause"] == "bridge 'vmbr1' does not exist"
    assert caught.value.details["node"] == "pve1"
    assert caught.value.details["left_behind"] == []
    assert caught.value.details["lock"] is None


def test_move__a_killed_worker_leaves_a_lock_and_a_disk_that_are_told(
    cluster: SimulatedCluster, mover: Mover, moving: Moving
) -> None:
    cluster.fault(method="POST", path="/qemu/150/migrate$", task_killed=True, task_seconds=4)

    with pytest.raises(MoveFailed) as caught:
        mover.move(moving(150, storages={"scsi0": "fast"}))

    assert caught.value.details["lock"] == "migrate"
    assert caught.value.details["left_behind"] == [{"volume": "fast:150/vm-150-disk-0.raw", "node": "pve2"}]
    assert "'qm unlock 150' on pve1" in caught.value.message
    assert cluster.state()["guests"][150]["config"]["lock"] == "migrate"


def test_move__that_failed_names_the_node_even_if_its_config_cannot_be_read(
    cluster: SimulatedCluster, mover: Mover, moving: Moving
) -> None:
    cluster.fault(method="POST", path="/qemu/150/migrate$", task_killed=True, task_seconds=4)
    # Read for the plan, and for the proof.
    cluster.fault(method="GET", path="/qemu/150/config$", status=595, after=2)

    with pytest.raises(MoveFailed) as caught:
        mover.move(moving(150, storages={"scsi0": "fast"}))

    details = caught.value.details
    assert (details["node"], details["lock"], details["left_behind"]) == ("pve1", None, [])


def test_move__a_lost_answer_is_no_second_move(cluster: SimulatedCluster, mover: Mover, moving: Moving) -> None:
    cluster.fault(method="POST", path="/qemu/101/migrate$", drop="after", count=1)

    mover.move(moving(101))

    assert node_of(cluster, 101) == "pve2"
    assert len([call for call in calls(cluster) if call.startswith("POST")]) == 1


@pytest.mark.parametrize("fault", [{"drop": "before"}, {"no_worker": True}], ids=["lost", "no worker"])
def test_move__a_request_that_began_nothing_is_sent_again(
    cluster: SimulatedCluster, mover: Mover, fault: dict[str, t.Any], moving: Moving
) -> None:
    cluster.fault(method="POST", path="/qemu/101/migrate$", count=1, **fault)

    mover.move(moving(101))

    assert node_of(cluster, 101) == "pve2"


def test_move__by_ha_is_over_when_the_guest_is_there(
    cluster: SimulatedCluster, mover: Mover, version: str, moving: Moving
) -> None:
    together = (141,) if version == "9.2" else ()
    mover.move(moving(140, via=HA, together=together))

    state = cluster.state()
    assert all(state["guests"][vmid]["node"] == "pve2" for vmid in (140, *together))


def test_move__by_ha_that_fails_is_told_with_the_cause(mover: Mover, cluster: SimulatedCluster, moving: Moving) -> None:
    with pytest.raises(MoveFailed) as caught:
        mover.move(moving(145, via=HA))

    assert "local cdrom image" in caught.value.details["cause"]
    assert node_of(cluster, 145) == "pve1"


def test_move__by_ha_that_is_never_begun_is_noticed(mover: Mover, cluster: SimulatedCluster, moving: Moving) -> None:
    cluster.set_node("pve2", maintenance=True)
    cluster.advance(30)

    with pytest.raises(MoveFailed) as caught:
        mover.move(moving(140, via=HA))

    # It would be another cause after the timeout of the mover.
    assert "did not begin it" in caught.value.details["cause"]


def test_move__many_go_at_once(cluster: SimulatedCluster, mover: Mover, moving: Moving) -> None:
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(mover.move, [moving(101), moving(130), moving(102, how=OFFLINE)]))

    assert {node_of(cluster, vmid) for vmid in (101, 102, 130)} == {"pve2"}
