# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMs: what Proxmox makes of options and disks, what it refuses, and what is left when something fails."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from simulated_cluster.build import build
from simulated_cluster.description import load
from simulated_cluster.property_strings import GIB
from simulator.lab import Lab, in_lab
from simulator.preparations import config, guest, no_quorum, running


async def exitstatus(lab: Lab, method: str, path: str, params: dict[str, Any] | None = None, **more: Any) -> str:
    response = await lab.ask(method, path, params, **more)
    answer = await response.json()
    assert response.status == 200, answer
    return str((await lab.finish(answer["data"]))["exitstatus"])


async def stored(lab: Lab, vmid: int, node: str = "pve1") -> dict[str, Any]:
    return dict((await (await lab.ask("GET", f"/nodes/{node}/qemu/{vmid}/config")).json())["data"])


def one_node(**storage: Any) -> dict[str, Any]:
    return {
        "nodes": [{"name": "pve1", "cores": 8, "memory": 16384}],
        "storages": [{"name": "st", "type": "dir", "size": 100, "content": ["images"], **storage}],
    }


@pytest.mark.parametrize(
    ("kind", "disk", "efi", "cloudinit"),
    [
        ("dir", "st:100/vm-100-disk-0.raw", "528K", "st:100/vm-100-cloudinit.qcow2"),
        ("lvmthin", "st:vm-100-disk-0", "4M", "st:vm-100-cloudinit"),
        ("zfspool", "st:vm-100-disk-0", "1M", "st:vm-100-cloudinit"),
        ("rbd", "st:vm-100-disk-0", "528K", "st:vm-100-cloudinit"),
    ],
)
def test_volumes__are_named_as_their_storage_type_names_them(kind: str, disk: str, efi: str, cloudinit: str) -> None:
    async def work(lab: Lab) -> None:
        other = build(load(one_node(type=kind)), time_scale=0)
        lab.cluster.storages["st"] = other.storages["st"]
        lab.cluster.storages["st"].sizes = {"pve1": 100 * GIB, None: 100 * GIB}
        assert await exitstatus(lab, "POST", "/nodes/pve1/qemu", {
            "vmid": 100, "scsi0": "st:8,ssd=1,iothread=1", "efidisk0": "st:1,efitype=4m,pre-enrolled-keys=1",
            "tpmstate0": "st:1,version=v2.0", "ide2": "st:cloudinit"}) == "OK"
        made = await stored(lab, 100)
        assert made["scsi0"] == f"{disk},iothread=1,size=8G,ssd=1"
        assert made["efidisk0"].endswith(f",efitype=4m,pre-enrolled-keys=1,size={efi}")
        assert re.search(r"disk-2(\.raw)?,size=4M,version=v2\.0$", made["tpmstate0"])
        assert made["ide2"] == f"{cloudinit},media=cdrom"

    in_lab("9.2", work)


def test_new_vm__gets_what_proxmox_makes_up() -> None:
    async def work(lab: Lab) -> None:
        assert await exitstatus(lab, "POST", "/nodes/pve1/qemu", {
            "vmid": 150, "scsi0": "vmdata:1", "net0": "virtio,bridge=vmbr0,tag=5,firewall=1", "memory": 128}) == "OK"
        made = await stored(lab, 150)
        assert re.fullmatch(r"virtio=BC:24:11(:[0-9A-F]{2}){3},bridge=vmbr0,firewall=1,tag=5", made["net0"])
        assert (made["boot"], made["memory"]) == ("order=scsi0;net0", "128")
        assert made["smbios1"].startswith("uuid=")
        assert {"vmgenid", "meta", "digest"} <= set(made)

    in_lab("9.2", work)


def test_new_vm__gets_no_limits_in_bytes_and_no_uuid_besides_other_smbios_fields() -> None:
    async def work(lab: Lab) -> None:
        asked = {"vmid": 150, "scsi0": "vmdata:1,bps_rd=10485760", "smbios1": "family=QQ=="}
        assert await exitstatus(lab, "POST", "/nodes/pve1/qemu", asked) == "OK"
        made = await stored(lab, 150)
        assert ",mbps_rd=0.000," in made["scsi0"]
        assert "bps_rd=10485760" not in made["scsi0"]
        assert made["smbios1"] == "family=QQ=="

    in_lab("9.2", work)


def test_cores_beyond_the_host__are_stored_but_not_reported() -> None:
    async def work(lab: Lab) -> None:
        await exitstatus(lab, "POST", "/nodes/pve1/qemu", {"vmid": 150, "cores": 200})
        rows = (await (await lab.ask("GET", "/nodes/pve1/qemu")).json())["data"]
        assert next(row["cpus"] for row in rows if row["vmid"] == 150) == 2
        assert (await stored(lab, 150))["cores"] == 200
        ended = await exitstatus(lab, "POST", "/nodes/pve1/qemu/150/status/start")
        assert ended == "MAX 2 vcpus allowed per VM on this node"

    in_lab("9.2", work)


@pytest.mark.parametrize("disk", ["off:4", "vmdata:306/vm-306-disk-9.raw"])
def test_failed_create__leaves_no_config_and_no_volume(disk: str) -> None:
    async def work(lab: Lab) -> None:
        before = {volume.volid for volume in lab.cluster.volumes}
        ended = await exitstatus(lab, "POST", "/nodes/pve1/qemu", {"vmid": 306, "scsi0": "vmdata:1", "scsi1": disk})
        assert ended.startswith("unable to create VM 306 - ")
        assert (await lab.ask("GET", "/nodes/pve1/qemu/306/config")).status == 500
        assert {volume.volid for volume in lab.cluster.volumes} == before

    in_lab("9.2", work)


def test_concurrent_creates_of_one_vmid__have_exactly_one_winner() -> None:
    async def work(lab: Lab) -> None:
        tries = [lab.ask("POST", f"/nodes/pve{n % 3 + 1}/qemu", {"vmid": 150}) for n in range(12)]
        answers = await asyncio.gather(*tries)
        assert sorted(answer.status for answer in answers) == [200] + [500] * 11
        for answer in answers:
            if answer.status == 500:
                assert re.fullmatch(
                    r"unable to create VM 150 - (VM 150 already exists on node 'pve\d'|close \(rename\) atomic file "
                    r"'/etc/pve/nodes/pve\d/qemu-server/150.conf' failed: File exists)", str(answer.reason))

    in_lab("9.2", work, time_scale=0.01)


def test_import__takes_its_size_and_time_from_the_image() -> None:
    async def work(lab: Lab) -> None:
        lab.cluster.timing.import_seconds_per_gib = 20.0
        source = lab.cluster.guests[104].drives()["scsi0"]["file"]
        answer = await (await lab.ask("POST", "/nodes/pve1/qemu", {
            "vmid": 150, "scsi0": f"vmdata:0,import-from={source}"})).json()
        assert (await stored(lab, 150))["lock"] == "create"
        await lab.finish(answer["data"])
        assert (await stored(lab, 150))["scsi0"] == "vmdata:150/vm-150-disk-0.raw,size=1G"

    in_lab("9.2", work, time_scale=0.01)


def test_linked_clones__stand_on_their_base_and_keep_it_from_being_deleted() -> None:
    async def work(lab: Lab) -> None:
        assert await exitstatus(lab, "POST", "/nodes/pve1/qemu/9000/clone", {"newid": 121}) == "OK"
        made = await stored(lab, 121)
        assert made["scsi0"] == "vmdata:9000/base-9000-disk-0.qcow2/121/vm-121-disk-0.qcow2,size=1G"
        assert made["name"] == "Copy-of-VM-tpl"
        assert made["net0"] != (await stored(lab, 9000))["net0"]
        assert "template" not in made
        assert "still in use" in await exitstatus(lab, "DELETE", "/nodes/pve1/qemu/9000")
        assert await exitstatus(lab, "DELETE", "/nodes/pve1/qemu/121") == "OK"
        assert await exitstatus(lab, "DELETE", "/nodes/pve1/qemu/9000") == "OK"

    in_lab("9.2", work)


@pytest.mark.parametrize(
    ("path", "params", "reason"),
    [
        ("/nodes/pve1/qemu/9000/clone", {"newid": 160, "storage": "vmdata"}, "Parameter verification failed."),
        ("/nodes/pve1/qemu/9000/clone", {"newid": 160, "target": "pve2"},
         "can't clone VM to node 'pve2' (VM uses local storage)"),
        ("/nodes/pve1/qemu/101/clone", {"newid": 160, "full": 0},
         "Linked clone feature is not supported for 'vmdata:101/vm-101-disk-0.qcow2' (scsi0)"),
    ],
)
def test_clones_that_proxmox_does_not_allow__are_refused(path: str, params: dict[str, Any], reason: str) -> None:
    async def work(lab: Lab) -> None:
        response = await lab.ask("POST", path, params)
        assert response.reason == reason
        assert 160 not in lab.cluster.guests

    in_lab("9.2", work)


def test_clone_on_shared_storage__can_go_to_another_node() -> None:
    async def work(lab: Lab) -> None:
        assert await exitstatus(lab, "POST", "/nodes/pve1/qemu/140/clone", {"newid": 160, "target": "pve3"}) == "OK"
        assert (await stored(lab, 160, "pve3"))["scsi0"] == "shared:160/vm-160-disk-0.raw,size=1G"

    in_lab("9.2", work)


def test_migration__moves_the_vm_and_its_local_disks() -> None:
    async def work(lab: Lab) -> None:
        assert await exitstatus(lab, "POST", "/nodes/pve1/qemu/104/migrate", {"target": "pve2"}) == "OK"
        assert (await lab.ask("GET", "/nodes/pve1/qemu/104/config")).status == 500
        assert (await stored(lab, 104, "pve2"))["name"] == "slow"
        content = (await (await lab.ask("GET", "/nodes/pve2/storage/vmdata/content", {"vmid": 104})).json())["data"]
        assert [row["volid"] for row in content] == ["vmdata:104/vm-104-disk-0.raw"]

    in_lab("9.2", work)


def test_linked_clone_on_local_storage__cannot_leave_its_base() -> None:
    async def work(lab: Lab) -> None:
        assert await exitstatus(lab, "POST", "/nodes/pve1/qemu/9000/clone", {"newid": 121}) == "OK"
        for vmid in (121, 9000):
            ended = await exitstatus(lab, "POST", f"/nodes/pve1/qemu/{vmid}/migrate", {"target": "pve2"})
            assert ended == "migration aborted"
            assert lab.cluster.guests[vmid].node == "pve1"

    in_lab("9.2", work)


def test_running_vm__keeps_changes_pending_until_it_is_stopped() -> None:
    async def work(lab: Lab) -> None:
        await running(120)(lab)
        await lab.ask("PUT", "/nodes/pve1/qemu/120/config", {"memory": 128})
        current = (await (await lab.ask("GET", "/nodes/pve1/qemu/120/config", {"current": 1})).json())["data"]
        assert (current["memory"], (await stored(lab, 120))["memory"]) == ("64", "128")
        assert await exitstatus(lab, "POST", "/nodes/pve1/qemu/120/status/stop") == "OK"
        assert lab.cluster.guests[120].config["memory"] == "128"

    in_lab("9.2", work)


def test_detached_disk__becomes_unused_and_deleting_that_frees_the_space() -> None:
    async def work(lab: Lab) -> None:
        await lab.ask("PUT", "/nodes/pve1/qemu/104/config", {"delete": "scsi0"})
        detached = await stored(lab, 104)
        assert (detached["unused0"], detached["boot"]) == ("vmdata:104/vm-104-disk-0.raw", " ")
        await lab.ask("PUT", "/nodes/pve1/qemu/104/config", {"delete": "unused0"})
        assert lab.cluster.volumes.of_guest(104) == []

    in_lab("9.2", work)


def test_write__waits_for_the_file_lock_and_gives_up() -> None:
    async def work(lab: Lab) -> None:
        await lab.cluster.guests[101].lock.acquire()
        response = await lab.ask("PUT", "/nodes/pve1/qemu/101/config", {"cores": 1})
        assert response.reason == "can't lock file '/var/lock/qemu-server/lock-101.conf' - got timeout"

    in_lab("9.2", work, time_scale=0.005)


def test_thick_storage__runs_full_and_thin_storage_does_not() -> None:
    async def work(lab: Lab) -> None:
        storage = lab.cluster.storages["only1"]
        for kind, wanted in (("lvmthin", "OK"), ("lvm", "insufficient free space")):
            storage.type = kind
            vmid = len(lab.cluster.guests) + 500
            ended = await exitstatus(lab, "POST", "/nodes/pve1/qemu", {"vmid": vmid, "scsi0": "only1:50"})
            assert wanted in ended
        state = (await (await lab.ask("GET", "/nodes/pve1/storage/only1/status")).json())["data"]
        assert (state["avail"], state["used"]) == (0, state["total"])

    in_lab("9.2", work)


def test_guest_agent__answers_some_time_after_the_start() -> None:
    async def work(lab: Lab) -> None:
        await guest(150, config={"agent": "1", "net0": "virtio,bridge=vmbr0", "ipconfig0": "ip=10.0.0.7/24"})(lab)
        path = "/nodes/pve1/qemu/150/agent/network-get-interfaces"
        await running(150, started_at=lab.cluster.clock.now())(lab)
        lab.cluster.guests[150].started_at = lab.cluster.clock.now()
        assert (await lab.ask("GET", path)).reason == "QEMU guest agent is not running"
        lab.cluster.clock.skip(60)
        result = (await (await lab.ask("GET", path)).json())["data"]["result"]
        found = {row["name"]: row["ip-addresses"][0]["ip-address"] for row in result}
        assert found == {"lo": "127.0.0.1", "eth0": "10.0.0.7"}

    in_lab("9.2", work, time_scale=1.0)


@pytest.mark.parametrize("version", ["8.4", "9.2"])
def test_cloud_init_data_of_a_running_vm__are_stored_at_once_and_listed_until_the_drive_has_them(version: str) -> None:
    async def work(lab: Lab) -> None:
        path, data = "/nodes/pve1/qemu/150", {"ipconfig0": "ip=192.0.2.50/24", "ciuser": "admin"}
        await guest(150, config={"net0": "virtio,bridge=vmbr0", "ide2": "shared:vm-150-cloudinit", **data})(lab)
        assert await exitstatus(lab, "POST", f"{path}/status/start") == "OK"

        async def changed(**params: str) -> list[dict[str, Any]]:
            await lab.ask("PUT", f"{path}/config", params)
            assert lab.cluster.guests[150].pending == {}
            return list((await (await lab.ask("GET", f"{path}/cloudinit")).json())["data"])

        user = {"key": "ciuser", "value": "admin", "pending": "shop"}
        told = await changed(ipconfig0="ip=192.0.2.52/24", ciuser="shop", ipconfig1="ip=dhcp")
        assert told == [{"key": "ipconfig1", "pending": "ip=dhcp"}, user], "no former address"
        assert (await stored(lab, 150))["ipconfig0"] == "ip=192.0.2.52/24"
        assert await changed(ipconfig0="ip=192.0.2.50/24", delete="ipconfig1") == [user]
        assert await changed(delete="ipconfig0") == [user, {"key": "ipconfig0", "delete": 1}]
        await lab.ask("PUT", f"{path}/cloudinit")
        assert await changed(description="x") == [{"key": "ciuser", "value": "shop"}]
        assert lab.cluster.guests[150].cloud_init == {"ciuser": "shop"}

    in_lab(version, work)


def test_bridge_that_is_not_there__is_noticed_at_the_start_only() -> None:
    async def work(lab: Lab) -> None:
        assert await exitstatus(lab, "POST", "/nodes/pve1/qemu", {"vmid": 150, "net0": "virtio,bridge=vmbr77"}) == "OK"
        ended = await exitstatus(lab, "POST", "/nodes/pve1/qemu/150/status/start")
        assert ended == "bridge 'vmbr77' does not exist"

    in_lab("9.2", work)


def test_without_quorum__a_vm_is_stopped_and_a_disk_grows_whose_size_cannot_be_written() -> None:
    async def work(lab: Lab) -> None:
        await running(120)(lab)
        await no_quorum(lab)
        unwritable = r"unable to open file '/etc/pve/nodes/pve1/qemu-server/120\.conf\.tmp\.\d+' - Permission denied"
        (volume,) = lab.cluster.volumes.of_guest(120)
        grown = await exitstatus(lab, "PUT", "/nodes/pve1/qemu/120/resize", {"disk": "scsi0", "size": "2G"})
        assert re.fullmatch(unwritable, grown)
        assert (volume.size, "size=1G" in (await stored(lab, 120))["scsi0"]) == (2 * GIB, True)
        assert await exitstatus(lab, "POST", "/nodes/pve1/qemu/120/status/stop") == "OK"
        assert re.fullmatch(unwritable, await exitstatus(lab, "POST", "/nodes/pve1/qemu/120/template"))
        assert (await lab.ask("POST", "/nodes/pve1/qemu/120/status/start")).status == 500

    in_lab("9.2", work)


def test_paused_vm__does_not_shut_down() -> None:
    async def work(lab: Lab) -> None:
        await running(120)(lab)
        assert await exitstatus(lab, "POST", "/nodes/pve1/qemu/120/status/suspend") == "OK"
        refused = await lab.ask("POST", "/nodes/pve1/qemu/120/status/shutdown")
        assert (refused.status, refused.reason) == (500, "VM is paused - cannot shutdown")
        assert await exitstatus(lab, "POST", "/nodes/pve1/qemu/120/status/shutdown", {"forceStop": 1}) == "OK"
        assert lab.cluster.guests[120].status == "stopped"

    in_lab("9.2", work)


@pytest.mark.parametrize("verb", ["stop", "shutdown"])
def test_stop_of_a_vm_that_is_not_there__is_a_task_that_fails(verb: str) -> None:
    async def work(lab: Lab) -> None:
        ended = await exitstatus(lab, "POST", f"/nodes/pve2/qemu/120/status/{verb}")
        assert ended == "unable to find configuration file for VM 120 on node 'pve2'"

    in_lab("8.4", work)


def test_stopped_task__ends_and_a_cloned_vm_vanishes() -> None:
    async def work(lab: Lab) -> None:
        answer = await (await lab.ask("POST", "/nodes/pve1/qemu/104/clone", {"newid": 130, "full": 1})).json()
        assert (await stored(lab, 130))["description"] == " qmclone temporary file"
        await lab.ask("DELETE", f"/nodes/pve1/tasks/{answer['data']}")
        assert "interrupted by signal" in (await lab.finish(answer["data"]))["exitstatus"]
        assert (await lab.ask("GET", "/nodes/pve1/qemu/130/config")).status == 500

    in_lab("9.2", work, time_scale=1.0)


def test_token__sees_its_task_by_upid_and_on_its_node_but_not_in_the_clusters_list() -> None:
    async def work(lab: Lab) -> None:
        login = "token:op@pve!tok"
        answer = await (await lab.ask("POST", "/nodes/pve1/qemu", {"vmid": 150, "pool": "lab"}, login)).json()
        await lab.finish(answer["data"])
        status = (await (await lab.ask("GET", f"/nodes/pve1/tasks/{answer['data']}/status", auth=login)).json())["data"]
        assert (status["user"], status["tokenid"], status["exitstatus"]) == ("op@pve", "tok", "OK")
        assert (await (await lab.ask("GET", "/cluster/tasks", auth=login)).json())["data"] == []
        own = (await (await lab.ask("GET", "/nodes/pve1/tasks", auth=login)).json())["data"]
        assert [row["id"] for row in own] == ["150"]
        assert (await (await lab.ask("GET", "/nodes/pve1/tasks", auth="token:nobody@pve!tok")).json())["data"] == []
        listed = (await (await lab.ask("GET", "/cluster/tasks")).json())["data"]
        assert [row["status"] for row in listed] == ["OK"]

    in_lab("9.2", work)


def test_digest_from_before_a_change__is_refused() -> None:
    async def work(lab: Lab) -> None:
        digest = (await stored(lab, 101))["digest"]
        await config(101, cores=1)(lab)
        response = await lab.ask("PUT", "/nodes/pve1/qemu/101/config", {"name": "y", "digest": digest})
        assert response.reason == "checksum mismatch (file change by other user?)"

    in_lab("9.2", work)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"ciuser": "joe\nann"}, "unable to parse value of 'ciuser' - property contains a line feed"),
        ({"boot": "order=scsi0;scsi7"}, "invalid bootorder: device 'scsi7' does not exist'"),
    ],
)
def test_change_that_proxmox_refuses__is_not_made(params: dict[str, Any], reason: str) -> None:
    async def work(lab: Lab) -> None:
        refused = await lab.ask("PUT", "/nodes/pve1/qemu/101/config", params)
        assert (refused.status, (await refused.json())["message"].strip()) == (500, reason)
        assert not params.items() & (await stored(lab, 101)).items()

    in_lab("9.2", work)


def test_text__is_stored_without_whitespace_around_it() -> None:
    async def work(lab: Lab) -> None:
        await lab.ask("PUT", "/nodes/pve1/qemu/101/config", {"ciuser": " joe\t"})
        assert (await stored(lab, 101))["ciuser"] == "joe"

    in_lab("9.2", work)


def test_vm_whose_disk_is_gone__does_not_start() -> None:
    """As after a removal that lost the quorum: the disks go first, and then the config cannot be written."""

    async def work(lab: Lab) -> None:
        await guest(150, disks={"scsi0": "shared:8"})(lab)
        (disk,) = lab.cluster.volumes.of_guest(150)
        lab.cluster.volumes.remove(disk)
        said = await exitstatus(lab, "POST", "/nodes/pve1/qemu/150/status/start")
        assert said == f"volume '{disk.volid}' does not exist"

    in_lab("9.2", work)
