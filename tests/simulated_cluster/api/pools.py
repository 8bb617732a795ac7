# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resource pools, nested ones included."""

from __future__ import annotations

from typing import Any

from ..errors import die, forbidden
from ..property_strings import split_list
from ..routing import Call, route


@route("GET", "/pools")
def pools(call: Call) -> list[dict[str, Any]]:
    wanted = call.get("poolid")
    if wanted is not None:
        call.require(f"/pool/{wanted}", "Pool.Audit")
        return [{"poolid": wanted, **_whole(call, wanted)}]
    visible = [name for name in sorted(call.cluster.access.pools) if call.allowed(f"/pool/{name}", "Pool.Audit")]
    return [{"poolid": name, **_comment(call, name)} for name in visible]


@route("GET", "/pools/{poolid}")
def pool(call: Call) -> dict[str, Any]:
    return {"poolid": call["poolid"], **_whole(call, str(call["poolid"]))}


def _comment(call: Call, name: str) -> dict[str, Any]:
    comment = call.cluster.access.pools[name].get("comment")
    return {"comment": comment} if comment else {}


def _whole(call: Call, name: str) -> dict[str, Any]:
    cluster = call.cluster
    if name not in cluster.access.pools:
        raise die(f"pool '{name}' does not exist")
    entry, view = cluster.access.pools[name], cluster.statistics.view(call.worker)
    members = [
        cluster.statistics.guest_row(cluster.guests[vmid], view, whole=False)
        for vmid in sorted(entry["vms"]) if vmid in cluster.guests
    ]
    for storage in sorted(entry["storages"]):
        members += [
            {"id": f"storage/{node}/{storage}", "type": "storage", "storage": storage, "node": node,
             "status": "available"}
            for node in cluster.nodes
        ]
    return {**_comment(call, name), "members": members}


@route("POST", "/pools")
async def create(call: Call) -> None:
    access, name = call.cluster.access, str(call["poolid"])
    await call.cluster.need_quorum_for("create pool")
    if name in access.pools:
        raise die(f"create pool failed: pool '{name}' already exists")
    parent = name.rpartition("/")[0]
    if parent and parent not in access.pools:
        raise die(f"create pool failed: parent '{parent}' of pool '{name}' does not exist")
    access.pools[name] = {"comment": call.get("comment"), "vms": set(), "storages": set()}
    access.changed()


@route("PUT", "/pools", "/pools/{poolid}")
async def change(call: Call) -> None:
    access, name = call.cluster.access, str(call["poolid"])
    if name not in access.pools:
        raise die(f"update pools failed: pool '{name}' does not exist")
    await call.cluster.need_quorum_for("update pools")
    entry = access.pools[name]
    if call.get("comment") is not None:
        entry["comment"] = call["comment"]
    for text in split_list(call.get("vms")):
        _member(call, name, int(text))
    for storage in split_list(call.get("storage")):
        call.require(f"/storage/{storage}", "Datastore.Allocate")
        (entry["storages"].discard if call.get("delete") else entry["storages"].add)(storage)
    access.changed()


def _member(call: Call, name: str, vmid: int) -> None:
    access = call.cluster.access
    if not call.allowed(f"/vms/{vmid}", "VM.Allocate") and not call.allowed(f"/vms/{vmid}", "Permissions.Modify"):
        raise forbidden(f"/vms/{vmid}, VM.Allocate")
    members, current = access.pools[name]["vms"], access.pool_of(vmid)
    if call.get("delete"):
        if vmid not in members:
            raise die(f"update pools failed: VM {vmid} is not a pool member")
        members.discard(vmid)
    elif vmid in members:
        raise die(f"update pools failed: VM {vmid} is already a pool member")
    else:
        if current is not None:
            if not call.get("allow-move"):
                raise die(
                    f"update pools failed: VM {vmid} belongs already to pool '{current}' and 'allow-move' is not set"
                )
            access.pools[current]["vms"].discard(vmid)
        members.add(vmid)
    access.changed()


@route("DELETE", "/pools", "/pools/{poolid}")
async def delete(call: Call) -> None:
    access, name = call.cluster.access, str(call["poolid"])
    if name not in access.pools:
        raise die(f"delete pool failed: pool '{name}' does not exist")
    await call.cluster.need_quorum_for("delete pool")
    for other in access.pools:
        if other.startswith(f"{name}/"):
            raise die(f"delete pool failed: pool '{name}' is not empty (contains pool '{other}')")
    entry = access.pools[name]
    for vmid in sorted(entry["vms"]):
        raise die(f"delete pool failed: pool '{name}' is not empty (contains VM {vmid})")
    for storage in sorted(entry["storages"]):
        raise die(f"delete pool failed: pool '{name}' is not empty (contains storage {storage})")
    del access.pools[name]
    access.changed()
