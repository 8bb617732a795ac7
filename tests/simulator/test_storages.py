# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is shown which storages and pools, and how much of a storage is available."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_cluster.access import AclEntry
from simulated_cluster.model import Volume
from simulator.lab import Lab, in_lab, keys
from support.recordings import recording

ALLOCATOR = "nobody@pve"


@pytest.mark.parametrize(
    "name", ["cluster-resources-storage-allocatespace-only", "node-storage-allocatespace-only",
             "storage-allocatespace-only"]
)
def test_allocate_space_alone__is_shown_the_storages_in_their_lists_but_not_in_the_resources(name: str) -> None:
    recorded = recording("9.2", name)

    async def replay(lab: Lab) -> Any:
        access = lab.cluster.access
        access.roles["Allocator"] = frozenset({"Datastore.AllocateSpace"})
        access.acl.append(AclEntry("/", "user", ALLOCATOR, "Allocator"))
        access.changed()
        request = recorded["request"]
        response = await lab.ask(request["method"], request["path"], request["params"], f"token:{ALLOCATOR}!tok")
        return (await response.json())["data"]

    shown, wanted = in_lab("9.2", replay), recorded["body"]["data"]
    assert bool(shown) == bool(wanted)
    assert keys(shown).keys() == keys(wanted).keys()


def test_available_space__is_less_than_what_is_not_used_where_some_is_reserved() -> None:
    rows = {row["storage"]: row for row in recording("9.2", "node-storage-avail-not-total-minus-used")["body"]["data"]}
    recorded = rows["shared"]

    async def replay(lab: Lab) -> Any:
        shared = lab.cluster.storages["shared"]
        shared.sizes[None], shared.base_used[None] = recorded["total"], recorded["used"]
        shared.reserved[None] = recorded["total"] - recorded["used"] - recorded["avail"]
        shared.allocated[None] = 0
        found = (await (await lab.ask("GET", "/nodes/pve1/storage")).json())["data"]
        return next(row for row in found if row["storage"] == "shared")

    shown = in_lab("9.2", replay)
    assert {key: shown[key] for key in ("total", "used", "avail")} == {
        key: recorded[key] for key in ("total", "used", "avail")
    }


@pytest.mark.parametrize("name", ["cluster-resources-vm-with-pool-audit", "cluster-resources-vm-without-pool-audit"])
def test_pool_of_a_vm__is_shown_with_pool_audit_only(name: str) -> None:
    recorded = recording("9.2", name)

    async def replay(lab: Lab) -> Any:
        access = lab.cluster.access
        privileges = {"VM.Audit", "Pool.Audit"} if "without" not in name else {"VM.Audit"}
        access.roles["Reader"] = frozenset(privileges)
        access.acl.append(AclEntry("/", "user", ALLOCATOR, "Reader"))
        access.changed()
        response = await lab.ask("GET", "/cluster/resources", {"type": "vm"}, f"token:{ALLOCATOR}!tok")
        return (await response.json())["data"]

    def pools(rows: Any) -> bool:
        return any("pool" in row for row in rows)

    assert pools(in_lab("9.2", replay)) == pools(recorded["body"]["data"])


@pytest.mark.parametrize("version", ["8.4", "9.2"])
def test_without_quorum__a_delete_removes_the_disks_and_leaves_the_config(version: str) -> None:
    async def delete(lab: Lab) -> tuple[str, bool, int]:
        lab.cluster.quorate = False
        upid = (await (await lab.ask("DELETE", "/nodes/pve1/qemu/105")).json())["data"]
        ended = await lab.finish(upid)
        return ended["exitstatus"], 105 in lab.cluster.guests, len(lab.cluster.volumes.of_guest(105))

    exitstatus, there, volumes = in_lab(version, delete)
    assert exitstatus.endswith("Permission denied")
    assert (there, volumes) == (True, 0)


def test_content_of_a_guest__has_the_imports_and_snippets_of_nobody_too() -> None:
    async def listed(lab: Lab) -> set[str]:
        for kind in ("import", "iso", "snippets"):
            lab.cluster.volumes.add(Volume(f"shared:{kind}/file", "shared", None, 1, kind))
        answer = await lab.ask("GET", "/nodes/pve1/storage/shared/content", {"vmid": 140})
        return {row["volid"] for row in (await answer.json())["data"]}

    assert in_lab("9.2", listed) == {"shared:140/vm-140-disk-0.raw", "shared:import/file", "shared:snippets/file"}


@pytest.mark.parametrize(
    ("disk", "storage", "refusal"),
    [
        ("scsi7", "shared", "disk 'scsi7' does not exist"),
        ("ide2", "shared", "you can't move a cdrom"),
        ("scsi0", "vmdata", "you can't move to the same storage with same format"),
        ("scsi0", "nope", "storage 'nope' does not exist"),
        ("scsi1", "shared", "you can't move a disk with snapshots and delete the source"),
    ],
)
def test_disk__is_not_moved(disk: str, storage: str, refusal: str) -> None:
    async def refused(lab: Lab) -> Any:
        guest = lab.cluster.guests[105]
        kept = await lab.ask("POST", "/nodes/pve1/qemu/105/config", {"scsi1": "vmdata:1", "ide2": "none,media=cdrom"})
        await lab.finish((await kept.json())["data"])
        guest.snapshots = {"before": {"scsi1": guest.config["scsi1"]}}
        sent = {"disk": disk, "storage": storage, "delete": 1}
        answer = await lab.ask("POST", "/nodes/pve1/qemu/105/move_disk", sent)
        return answer.status, (await answer.json())["message"]

    assert in_lab("9.2", refused) == (500, f"{refusal}\n")
