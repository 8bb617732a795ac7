# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tells a guest from another one that has its VMID later, and how a digest keeps a change from the wrong one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from simulated_cluster.build import add_described_guest
from simulated_cluster.errors import MODIFIED
from simulator.lab import PASSWORD, Lab, in_lab

MISMATCH = "checksum mismatch (file change by other user?)"
UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
IDENTITY = ("smbios1", "vmgenid", "meta")
BACKUP = "nas:backup/vzdump-qemu-100-2026_01_01-00_00_00.vma.zst"
LAB = {
    "nodes": [{"name": "pve1", "cores": 8, "memory": 16384}, {"name": "pve2", "cores": 8, "memory": 16384}],
    "storages": [
        {"name": "st", "type": "rbd", "size": 100, "content": ["images"]},
        {"name": "other", "type": "rbd", "size": 100, "content": ["images"]},
        {"name": "nas", "type": "nfs", "size": 100, "content": ["backup"]},
    ],
    "backups": [{"storage": "nas", "file": BACKUP.partition("/")[2], "vmid": 100, "size": 1,
                 "config": {"name": "old", "smbios1": f"uuid={'1' * 8}-2222-3333-4444-{'5' * 12}",
                            "vmgenid": f"{'6' * 8}-2222-3333-4444-{'5' * 12}",
                            "meta": "creation-qemu=8.1.0,ctime=1"}}],
    "guests": [
        {"vmid": 100, "name": "app", "node": "pve1", "disks": {"scsi0": "st:1"},
         "snapshots": {"before": {"name": "app-before", "smbios1": "uuid=x", "vmgenid": "y", "meta": "ctime=1"}}},
        {"vmid": 200, "name": "box", "node": "pve1", "type": "lxc"},
        {"vmid": 300, "name": "tpl", "node": "pve1", "template": True, "disks": {"scsi0": "st:1"},
         "config": {"smbios1": "family=QQ==,uuid=z", "vmgenid": "v"}},
    ],
    "users": [{"name": "tenant@pve", "password": PASSWORD}],
    "acl": [{"path": "/vms/100", "user": "tenant@pve", "role": "PVEVMAdmin"}],
    "ha": {"resources": [{"sid": "vm:100", "state": "stopped"}]},
}  # fmt: skip


def in_this_lab(work: Any, version: str = "9.2") -> None:
    in_lab(version, work, described={**LAB, "version": version})


async def done(lab: Lab, method: str, path: str, params: dict[str, Any] | None = None, **more: Any) -> str:
    """How the task of a request ended, or why the request was refused."""
    response = await lab.ask(method, path, params, **more)
    answer = await response.json()
    if response.status != 200:
        return str(response.reason)
    return str((await lab.finish(answer["data"]))["exitstatus"]) if answer["data"] else "OK"


def identity(lab: Lab, vmid: int) -> list[str | None]:
    return [lab.cluster.guests[vmid].config.get(key) for key in IDENTITY]


def births(lab: Lab) -> dict[int, int]:
    return {vmid: guest.birth for vmid, guest in lab.cluster.guests.items()}


def test_each_guest__has_a_birth_of_its_own_that_the_api_never_shows() -> None:
    async def work(lab: Lab) -> None:
        before = births(lab)
        assert len(set(before.values())) == len(before)
        await done(lab, "POST", "/nodes/pve1/qemu", {"vmid": 400})
        assert await done(lab, "DELETE", "/nodes/pve1/qemu/400") == "OK"
        await done(lab, "POST", "/nodes/pve1/qemu", {"vmid": 400})
        assert lab.cluster.guests[400].birth == max(before.values()) + 2
        for path in ("/cluster/resources", "/nodes/pve1/qemu/400/config", "/nodes/pve1/qemu/400/status/current"):
            assert "birth" not in await (await lab.ask("GET", path)).text()

    in_this_lab(work)


def test_birth__is_kept_by_changes_moves_and_rollbacks() -> None:
    async def work(lab: Lab) -> None:
        before, was = births(lab), identity(lab, 100)
        lab.cluster.ha.resources.clear()
        assert await done(lab, "PUT", "/nodes/pve1/qemu/100/config", {"name": "renamed"}) == "OK"
        assert await done(lab, "POST", "/nodes/pve1/qemu/100/migrate", {"target": "pve2"}) == "OK"
        assert identity(lab, 100) == was
        assert await done(lab, "POST", "/nodes/pve2/qemu/100/snapshot/before/rollback") == "OK"
        assert births(lab) == before
        smbios, generation, meta = identity(lab, 100)
        assert (smbios, meta) == ("uuid=x", "ctime=1")
        assert re.fullmatch(UUID, str(generation))
        assert lab.cluster.guests[100].name == "app-before"

    in_this_lab(work)


def test_rollback_of_a_vm_without_generation_id__gives_it_none() -> None:
    async def work(lab: Lab) -> None:
        del lab.cluster.guests[100].snapshots["before"]["vmgenid"]
        await done(lab, "POST", "/nodes/pve1/qemu/100/snapshot/before/rollback")
        assert identity(lab, 100) == ["uuid=x", None, "ctime=1"]
        ended = await done(lab, "POST", "/nodes/pve1/qemu/100/snapshot/never/rollback")
        assert ended == "snapshot 'never' does not exist"

    in_this_lab(work)


@pytest.mark.parametrize(("given", "generation"), [("0", "0"), ("1", UUID), (None, UUID)])
def test_new_vm__has_an_identity_that_proxmox_makes_up(given: str | None, generation: str) -> None:
    async def work(lab: Lab) -> None:
        asked = {"vmid": 400} if given is None else {"vmid": 400, "vmgenid": given}
        await done(lab, "POST", "/nodes/pve1/qemu", asked, auth="root@pam")
        smbios, got, meta = identity(lab, 400)
        assert re.fullmatch(f"uuid={UUID}", str(smbios))
        assert re.fullmatch(generation, str(got))
        assert re.fullmatch(r"creation-qemu=[0-9.]+,ctime=\d+", str(meta))

    in_this_lab(work)


def test_clone__has_the_meta_of_its_source_and_ids_of_its_own() -> None:
    async def work(lab: Lab) -> None:
        for vmid in (401, 402):
            assert await done(lab, "POST", "/nodes/pve1/qemu/300/clone", {"newid": vmid, "full": 1}) == "OK"
        (first, one, meta), (second, two, same) = identity(lab, 401), identity(lab, 402)
        assert meta == same == lab.cluster.guests[300].config["meta"]
        assert re.fullmatch(f"family=QQ==,uuid={UUID}", str(first))
        assert len({first, second, "family=QQ==,uuid=z"}) == len({one, two, "v"}) == 3
        del lab.cluster.guests[300].config["vmgenid"]
        await done(lab, "POST", "/nodes/pve1/qemu/300/clone", {"newid": 403})
        assert "vmgenid" not in lab.cluster.guests[403].config

    in_this_lab(work)


@pytest.mark.parametrize("unique", [0, 1])
def test_restored_vm__has_the_meta_of_the_archive_and_a_new_generation(unique: int) -> None:
    async def work(lab: Lab) -> None:
        asked = {"vmid": 400, "archive": BACKUP, "unique": unique}
        assert await done(lab, "POST", "/nodes/pve1/qemu", asked) == "OK"
        smbios, generation, meta = identity(lab, 400)
        assert (smbios == LAB["backups"][0]["config"]["smbios1"]) == (not unique)  # type: ignore[index]
        assert re.fullmatch(UUID, str(generation))
        assert meta == "creation-qemu=8.1.0,ctime=1"

    in_this_lab(work)


def test_container__has_nothing_of_the_kind() -> None:
    async def work(lab: Lab) -> None:
        assert identity(lab, 200) == [None, None, None]

    in_this_lab(work)


@pytest.mark.parametrize(
    ("option", "value", "answer"),
    [
        ("smbios1", f"uuid={'1' * 8}-2222-3333-4444-{'5' * 12}", "OK"),
        ("vmgenid", "1", "only root can set 'vmgenid' config"),
        ("meta", "ctime=1", "Parameter verification failed."),
        ("delete", "vmgenid", "only root can set 'vmgenid' config"),
    ],
)
def test_owner_of_a_vm__may_change_its_smbios_but_not_its_generation_or_creation(
    option: str, value: str, answer: str
) -> None:
    async def work(lab: Lab) -> None:
        path = "/nodes/pve1/qemu/100/config"
        assert await done(lab, "PUT", path, {option: value}, auth="tenant@pve") == answer

    in_this_lab(work)


@pytest.mark.parametrize(
    ("method", "path", "params", "refusal"),
    [
        ("PUT", "/nodes/pve1/qemu/100/config", {"cores": 2}, MISMATCH),
        ("POST", "/nodes/pve1/qemu/100/config", {"cores": 2}, MISMATCH),
        ("PUT", "/nodes/pve1/qemu/100/resize", {"disk": "scsi0", "size": "2G"}, MISMATCH),
        ("POST", "/nodes/pve1/qemu/100/move_disk", {"disk": "scsi0", "storage": "other"}, MODIFIED),
        ("PUT", "/nodes/pve1/lxc/200/config", {"description": "x"}, MODIFIED),
        ("PUT", "/cluster/ha/resources/vm:100", {"comment": "x"}, f"update resources config failed: {MODIFIED}"),
    ],
)
def test_change_with_the_digest_of_another_state__is_refused(
    method: str, path: str, params: dict[str, Any], refusal: str
) -> None:
    async def work(lab: Lab) -> None:
        read = path.replace("/resize", "/config").replace("/move_disk", "/config")
        shown = (await (await lab.ask("GET", read)).json())["data"]
        if "/ha/" in path:
            lab.cluster.ha.resources["vm:100"]["comment"] = "changed"
        else:
            lab.cluster.guests[int(path.split("/")[4])].config["tags"] = "changed"
        assert await done(lab, method, path, {**params, "digest": shown["digest"]}) == refusal
        shown = (await (await lab.ask("GET", read)).json())["data"]
        assert await done(lab, method, path, {**params, "digest": shown["digest"]}) == "OK"

    in_this_lab(work)


def test_digest__is_that_of_the_snapshots_too() -> None:
    async def work(lab: Lab) -> None:
        guest = lab.cluster.guests[100]
        before = guest.digest()
        guest.snapshots["now"] = dict(guest.config)
        assert guest.digest() != before

    in_this_lab(work)


def test_request_log__has_the_births_of_the_guests_that_a_request_reached() -> None:
    async def work(lab: Lab) -> None:
        before, stale = lab.cluster.guests[100].birth, lab.cluster.guests[100].digest()
        for params in ({"cores": 2, "digest": stale}, {"cores": 3, "digest": stale}, {"cores": 4}):
            await done(lab, "PUT", "/nodes/pve1/qemu/100/config", params)
        lab.cluster.ha.resources.clear()
        await done(lab, "DELETE", "/nodes/pve1/qemu/100")
        add_described_guest(lab.cluster, {"vmid": 100, "name": "payroll", "node": "pve1"})
        await done(lab, "POST", "/nodes/pve1/qemu/100/status/start")
        writes = [entry["guests"] for entry in lab.cluster.log.entries if entry["method"] != "GET"]
        assert writes == [{100: before}, {}, {100: before}, {100: before}, {100: lab.cluster.guests[100].birth}]

    in_this_lab(work)
