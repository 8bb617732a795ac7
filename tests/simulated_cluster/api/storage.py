# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Storages: definitions, what each node sees of them, and what lies on them."""

from __future__ import annotations

from typing import Any

from ..errors import die, parameter_error
from ..model import SHARED_TYPES, Storage
from ..property_strings import GIB, split_list
from ..routing import Call, route
from .backups import may_restore

_AUDIT = ("Datastore.Audit", "Datastore.AllocateSpace")
# Content that `vmid` does not filter: it is listed whichever guest is asked for.
_WITHOUT_GUEST = ("import", "snippets")
FORMATS = {"dir": ("qcow2", "raw", "subvol", "vmdk"), "nfs": ("qcow2", "raw", "vmdk"), "cifs": ("qcow2", "raw", "vmdk")}


def _visible(call: Call, storage: Storage) -> bool:
    return call.allowed(f"/storage/{storage.name}", *_AUDIT, any_of=True)


def _digest(call: Call) -> str:
    return call.cluster.ha.digest(sorted(call.cluster.storages))


def _definition(call: Call, storage: Storage) -> dict[str, Any]:
    row: dict[str, Any] = {
        "storage": storage.name, "type": storage.type, "content": ",".join(storage.content), "digest": _digest(call),
        **{key: value for key, value in storage.options.items() if key != "default_format"},
    }
    if storage.type in ("dir", "nfs", "cifs"):
        row.setdefault("path", storage.path)
    if storage.nodes is not None:
        row["nodes"] = ",".join(storage.nodes)
    if storage.shared:
        row["shared"] = 1
    if not storage.enabled:
        row["disable"] = 1
    return row


def _named(call: Call) -> Storage:
    storage = call.cluster.storages.get(str(call["storage"]))
    if storage is None:
        raise die(f"storage '{call['storage']}' does not exist")
    return storage


@route("GET", "/storage")
def definitions(call: Call) -> list[dict[str, Any]]:
    wanted = call.get("type")
    rows = [
        _definition(call, storage) for storage in call.cluster.storages.values()
        if _visible(call, storage) and wanted in (None, storage.type)
    ]
    return call.cluster.shuffled(rows)


@route("GET", "/storage/{storage}")
def definition(call: Call) -> dict[str, Any]:
    return _definition(call, _named(call))


@route("POST", "/storage")
async def create(call: Call) -> dict[str, Any]:
    cluster, name, kind = call.cluster, str(call["storage"]), str(call["type"])
    if kind == "dir" and not call.get("path"):
        raise die("missing value for required option 'path'")
    await cluster.need_quorum_for("create storage", "file-storage_cfg")
    if name in cluster.storages:
        raise die(f"create storage failed: storage ID '{name}' already defined")
    shared = bool(call.get("shared", kind in SHARED_TYPES))
    nodes = split_list(call.get("nodes")) or None
    storage = Storage(
        name, kind, split_list(call.get("content", "images,rootdir")), shared, nodes,
        not call.get("disable"),
        options={key: call[key] for key in ("path", "pool", "vgname", "thinpool") if call.get(key)},
    )
    for place in [None] if shared else (nodes or list(cluster.nodes)):
        storage.sizes[place] = 100 * GIB
        storage.base_used[place] = 0
    cluster.statistics_settle()
    cluster.storages[name] = storage
    return {"storage": name, "type": kind}


@route("PUT", "/storage/{storage}")
async def change(call: Call) -> dict[str, Any]:
    storage = _named(call)
    await call.cluster.need_quorum_for("update storage", "file-storage_cfg")
    call.cluster.statistics_settle()
    if call.get("content"):
        storage.content = split_list(call["content"])
    if call.get("nodes") is not None:
        storage.nodes = split_list(call["nodes"]) or None
    if call.get("disable") is not None:
        storage.enabled = not call["disable"]
    for option in split_list(call.get("delete")):
        if option == "nodes":
            storage.nodes = None
        elif option == "disable":
            storage.enabled = True
    return {"storage": storage.name, "type": storage.type}


@route("DELETE", "/storage/{storage}")
async def remove(call: Call) -> None:
    storage = _named(call)
    await call.cluster.need_quorum_for("delete storage", "file-storage_cfg")
    call.cluster.statistics_settle()
    del call.cluster.storages[storage.name]


def _state(storage: Storage, node: str) -> dict[str, Any]:
    usable = storage.usable(node)
    total = storage.total(node) if usable else 0
    used = storage.used(node) if usable else 0
    avail = storage.available(node) if usable else 0
    return {
        "type": storage.type, "content": ",".join(storage.content), "shared": int(storage.shared),
        "active": int(usable), "enabled": int(usable), "total": total, "used": used, "avail": avail,
    }


@route("GET", "/nodes/{node}/storage")
def node_storages(call: Call) -> list[dict[str, Any]]:
    content, rows = split_list(call.get("content")), []
    for storage in call.cluster.storages.values():
        if not _visible(call, storage) or (call.get("storage") and call["storage"] != storage.name):
            continue
        if content and not set(content) & set(storage.content):
            continue
        if (call.get("enabled") or content) and not storage.usable(call.node):
            continue
        target = call.get("target")
        if target and not storage.usable(target):
            continue
        row = {"storage": storage.name, **_state(storage, call.node)}
        if row["total"]:
            row["used_fraction"] = row["used"] / row["total"]
        if call.get("format") and row["active"]:
            formats = FORMATS.get(storage.type, ("raw",))
            row["format"] = [dict.fromkeys(formats, 1), "raw"]
            if call.cluster.modern:
                row["formats"] = {"default": "raw", "supported": sorted(formats)}
        rows.append(row)
    return call.cluster.shuffled(rows)


@route("GET", "/nodes/{node}/storage/{storage}/status")
def node_storage_status(call: Call) -> dict[str, Any]:
    storage = call.cluster.storages.get(str(call["storage"]))
    if storage is None:
        raise parameter_error(storage="No such storage.")
    return _state(storage, call.node)


@route("GET", "/nodes/{node}/storage/{storage}/content")
def content(call: Call) -> list[dict[str, Any]]:
    cluster, storage = call.cluster, _named(call)
    if not storage.enabled:
        raise die(f"storage '{storage.name}' is disabled")
    if not storage.on_node(call.node):
        raise die(f"storage '{storage.name}' is not available on node '{call.node}'")
    rows = []
    for volume in cluster.volumes:
        if volume.storage != storage.name or volume.place != storage.place(call.node):
            continue
        if call.get("content") and volume.content != call["content"]:
            continue
        if call.get("vmid") and volume.content not in _WITHOUT_GUEST and volume.vmid != int(call["vmid"]):
            continue
        if volume.vmid is not None and not (
            may_restore(call, volume) if volume.backup is not None
            else call.allowed(f"/storage/{storage.name}", "Datastore.Allocate")
            or call.allowed(f"/vms/{volume.vmid}", "VM.Config.Disk")
        ):
            continue
        if volume.content == "snippets" and not call.allowed(f"/storage/{storage.name}", "Datastore.Allocate"):
            continue
        row: dict[str, Any] = {
            "volid": volume.volid, "content": volume.content, "format": volume.format, "size": volume.size,
            "ctime": volume.ctime,
        }
        if volume.backup is not None:
            row |= {"vmid": volume.vmid, "subtype": "qemu", "notes": volume.notes}
        elif volume.vmid is not None:
            row |= {"vmid": volume.vmid, "parent": volume.parent, "used": volume.size}
        rows.append(row)
    return rows
