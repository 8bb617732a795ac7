# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How guests of all kinds can be moved, as read from a cluster that holds one of each."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from simulated_cluster.client import SimulatedCluster
from simulator.moves_lab import description

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import MIB, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import LocalDisk, Mobility
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import Session
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.snapshot import (
    Needs,
    read_settled,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.moves.mobility import read_mobility
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.moves.mobility_rules import Permitted

from .conftest import parameters

Read = Callable[..., dict[int, Mobility]]

HA_GUESTS = {
    "resources": [{"sid": f"vm:{vmid}", "state": "started"} for vmid in (140, 141, 142)],
    "rules": [
        {"rule": "pair", "type": "resource-affinity", "affinity": "positive", "resources": "vm:140,vm:141"},
        {"rule": "only", "type": "node-affinity", "resources": "vm:142", "nodes": "pve1,pve2", "strict": 1},
    ],
}


@pytest.fixture(scope="module", params=["8.4", "9.2"])
def moving_cluster(request: pytest.FixtureRequest) -> Iterator[SimulatedCluster]:
    modern = request.param == "9.2"
    ha = HA_GUESTS if modern else {"resources": HA_GUESTS["resources"]}
    lab: dict[str, t.Any] = {**description(), "version": request.param, "ha": ha}
    with SimulatedCluster.start(lab, version=request.param, time_scale=0) as running:
        session = Session.connect(parameters(running))
        session.post("/nodes/pve1/qemu/9001/clone", newid=113, name="lc113")
        session.close()
        yield running


@contextmanager
def configured(cluster: SimulatedCluster, vmid: int, config: dict[str, str]) -> Iterator[None]:
    """A guest with further options in its config, for a while."""
    cluster.set_guest(vmid, config=config)
    try:
        yield
    finally:
        cluster.set_guest(vmid, config=dict.fromkeys(config))


@pytest.fixture
def snapshot(moving_cluster: SimulatedCluster) -> Snapshot:
    session = Session.connect(parameters(moving_cluster))
    return read_settled(session, Needs(bridges=True, ha_rules=True))


@pytest.fixture
def read(moving_cluster: SimulatedCluster, snapshot: Snapshot) -> Read:
    session = Session.connect(parameters(moving_cluster))

    def run(*vmids: int, **permitted: bool) -> dict[int, Mobility]:
        return read_mobility(session, snapshot, vmids, Permitted(**permitted))

    return run


def test_mobility__tells_running_guests_from_those_that_are_off(read: Read) -> None:
    found = read(101, 102)

    assert (found[101].how, found[101].cost, found[101].disks) == ("live", 32 * MIB, ())
    assert (found[102].how, found[102].cost) == ("offline", 0)
    assert all(mobility.stuck == ("", "") and mobility.via == "api" for mobility in found.values())


def test_mobility__names_the_disks_that_have_to_be_copied(read: Read) -> None:
    found = read(104, 107)

    assert found[104].disks == (LocalDisk("scsi0", "fast", 32212992),)
    assert found[104].cost == 32 * MIB + 32212992
    assert found[107].disks == (LocalDisk("ide2", "fast", 4 * MIB),)


@pytest.mark.parametrize(
    ("vmid", "why", "cure"),
    [
        (106, "ide2 holds the image local:iso/local.iso", "eject it: set ide2 to none,media=cdrom"),
        (113, "scsi0 is a linked clone on the local storage fast", "clone the VM in full"),
        (9001, "scsi0 on the local storage fast has linked clones", "remove the linked clones"),
        (116, "it is locked (backup)", "wait for the backup to end; where none runs, 'qm unlock'"),
        (119, "it uses devices of its node: hostpci0 and usb0", "remove hostpci0 and usb0"),
        (200, "", ""),
    ],
)
def test_mobility__says_why_a_guest_is_stuck_and_what_would_cure_that(
    read: Read, vmid: int, why: str, cure: str
) -> None:
    reason, remedy = read(vmid)[vmid].stuck

    assert reason.startswith(why)
    assert cure in remedy
    assert bool(reason) == bool(why)


@pytest.mark.parametrize(
    ("attached", "why", "cure"),
    [
        (False, "snapshot before holds the image local:iso/local.iso", "remove the snapshots that hold it: before"),
        (
            True,
            "ide2 and snapshot before hold the image local:iso/local.iso",
            "eject it: set ide2 to none,media=cdrom; remove the snapshots that hold it: before",
        ),
    ],
)
def test_mobility__of_an_image_in_a_snapshot_needs_the_snapshot_removed(
    moving_cluster: SimulatedCluster, attached: bool, why: str, cure: str
) -> None:
    image = {"ide2": "local:iso/local.iso,media=cdrom,size=1M"}
    taken = {"before": image}
    moving_cluster.add_guest(
        vmid=190, node="pve1", name="snapped", memory=64, config=image if attached else {}, snapshots=taken
    )
    session = Session.connect(parameters(moving_cluster))

    reason, remedy = read_mobility(session, read_settled(session), [190], Permitted())[190].stuck
    moving_cluster.remove_guest(190)

    assert (reason.partition(", which")[0], remedy) == (why, cure)


def test_mobility__holds_back_what_is_not_permitted(read: Read) -> None:
    found = read(102, 104, 201, offline=False, local_disks=False)

    assert found[102].stuck[1] == "permit offline moves (offline: true)"
    assert found[104].stuck[0] == "scsi0 would have to be copied, which is not permitted"
    assert found[201].stuck[1] == "permit offline moves (offline: true)"


def test_mobility__a_tag_may_keep_a_guest_where_it_is(snapshot: Snapshot, moving_cluster: SimulatedCluster) -> None:
    session = Session.connect(parameters(moving_cluster))
    tagged = replace(
        snapshot, guests=tuple(replace(guest, tags=frozenset({"plb_ignore"})) for guest in snapshot.guests)
    )

    assert read_mobility(session, tagged, [101], Permitted())[101].stuck[0] == "its tag plb_ignore keeps it where it is"
    assert read_mobility(session, tagged, [101], Permitted(tag_rules=False))[101].how == "live"


def test_mobility__snapshots_on_local_qcow2_move_only_while_the_guest_is_off(
    read: Read, moving_cluster: SimulatedCluster
) -> None:
    assert read(111)[111].disks == (LocalDisk("scsi0", "fast", 32212992),)
    moving_cluster.set_guest(111, status="running")
    try:
        assert read(111)[111].stuck == (
            "scsi0 on the local storage fast has snapshots: s1",
            "remove the snapshots, or shut it down",
        )
    finally:
        moving_cluster.set_guest(111, status="stopped")


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"amd-sev": "std"}, "it runs with encrypted memory (amd-sev)"),
        ({"virtiofs0": "nosuch"}, "it runs with shared directories (virtiofs)"),
        ({"usb1": "mapping=key"}, "it runs with mapped devices that cannot move live: usb1"),
        ({"hostpci1": "mapping=gpu", "serial0": "/dev/ttyS0"}, "it uses devices of its node: serial0"),
    ],
)
def test_mobility__says_what_keeps_a_guest_only_while_it_runs(
    read: Read, moving_cluster: SimulatedCluster, config: dict[str, str], why: str
) -> None:
    with configured(moving_cluster, 101, config):
        assert read(101)[101].stuck[0] == why


@pytest.mark.parametrize("machine", ["pc-i440fx-10.0", "pc-i440fx-10.1", "pc-q35-11.0+pve1"])
def test_mobility__vnc_clipboard_moves_live_where_proxmox_says_so(
    read: Read, moving_cluster: SimulatedCluster, machine: str
) -> None:
    """From 9.2 on, with a machine type of 10.1 or later."""
    with configured(moving_cluster, 101, {"vga": "std,clipboard=vnc", "machine": machine}):
        moves = moving_cluster.state()["version"] == "9.2" and machine != "pc-i440fx-10.0"
        assert read(101)[101].stuck[0] == ("" if moves else "it runs with the VNC clipboard")


def test_mobility__rules_nodes_out_that_lack_a_bridge_or_device(read: Read) -> None:
    found = read(105, 108, 110, 114)

    assert found[110].not_to == {"pve2": "lacked the mapped devices of usb0"}
    assert found[108].not_to == {"pve3": "lacked the mapped devices of hostpci0"}
    assert found[114].not_to == {"pve3": "lacked the bridge vmbr1"}
    # Its only local disk may go to another storage there.
    assert found[105].not_to == {}


def test_mobility__a_container_moves_only_when_it_may_be_restarted(
    read: Read, moving_cluster: SimulatedCluster, snapshot: Snapshot
) -> None:
    moving_cluster.set_guest(200, status="running")
    try:
        session = Session.connect(parameters(moving_cluster))
        running = read_settled(session)
        _why, cure = read_mobility(session, running, [200], Permitted())[200].stuck
        assert cure == "permit restarts of containers (containers: restart)"
        assert read_mobility(session, running, [200], Permitted(restart=True))[200].how == "restart"
    finally:
        moving_cluster.set_guest(200, status="stopped")
    rootfs = LocalDisk("rootfs", "fast", 16 * MIB, "rootdir")
    assert read(201)[201].disks == (rootfs,)
    # Proxmox copies what is not attached any more, too.
    volumes = {"mp0": "fast:201/vm-201-disk-1.raw,mp=/srv,size=8M", "unused0": "fast:201/vm-201-disk-2.raw"}
    with configured(moving_cluster, 201, volumes):
        others = (LocalDisk("mp0", "fast", 8 * MIB, "rootdir"), LocalDisk("unused0", "fast", 0, "rootdir"))
        assert sorted(read(201)[201].disks, key=lambda disk: disk.slot) == [others[0], rootfs, others[1]]


def test_mobility__guests_under_ha_go_by_its_manager_with_their_partners(
    read: Read, moving_cluster: SimulatedCluster
) -> None:
    found = read(140, 142)

    assert {mobility.via for mobility in found.values()} == {"ha"}
    assert not found[140].map_storages
    if moving_cluster.state()["version"].startswith("9"):
        assert found[140].together == {141}
        assert found[142].not_to == {"pve3": "weren't among the nodes of HA rule 'only'"}


def test_mobility__costs_two_calls_for_a_guest_and_one_for_all(read: Read, moving_cluster: SimulatedCluster) -> None:
    moving_cluster.requests(reset=True)
    read(101, 102, 103)

    calls = [request["path"] for request in moving_cluster.requests()]
    assert len(calls) == 2 * 3 + 1
    assert calls.count("/cluster/replication") == 1
