# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds a running cluster from a checked description."""

from __future__ import annotations

import secrets
from typing import Any

from . import identity
from .access import AclEntry, Token, User
from .clock import Clock
from .cluster import Cluster
from .description import DescriptionError
from .errors import ApiError, TaskError
from .load import described
from .model import SHARED_TYPES, Guest, Node, Storage, Volume
from .privileges import PRIVILEGES
from .property_strings import GIB, MIB, format_size, parse, parse_net, render, render_net

DEFAULT_USER, DEFAULT_TOKEN = "automation@pve", "ansible"
AUTOMATION_ROLE = (
    "VM.Allocate", "VM.Audit", "VM.Backup", "VM.Clone", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Cloudinit",
    "VM.Config.Disk", "VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options", "VM.Console",
    "VM.Migrate", "VM.PowerMgmt", "Datastore.AllocateSpace", "Datastore.Audit", "Sys.Audit", "Sys.Console",
    "Pool.Allocate", "Pool.Audit", "SDN.Audit", "SDN.Use", "Mapping.Audit", "Mapping.Use",
)


def build(
    data: dict[str, Any], *, version: str | None = None, time_scale: float = 1.0, seed: int = 0,
    clock: Clock | None = None,
) -> Cluster:
    """The cluster that ``data`` describes."""
    cluster = Cluster(version or str(data.get("version", "9.2")), clock or Clock(time_scale), seed)
    cluster.name = str(data.get("cluster", "lab"))
    for key, value in data.get("timing", {}).items():
        setattr(cluster.timing, key, float(value))
    if "tick" in data:
        cluster.timing.pvestatd_seconds = float(data["tick"])
    _nodes(cluster, data["nodes"])
    _storages(cluster, data.get("storages") or [])
    _files(cluster, data)
    _backups(cluster, data.get("backups") or [])
    cluster.backup_jobs = [dict(job) for job in data.get("backup_jobs") or []]
    cluster.replication = [dict(job) for job in data.get("replication") or []]
    _access(cluster, data)
    for entry in data.get("guests") or []:
        _guest(cluster, entry)
    _options(cluster, data)
    for kind, entries in (data.get("mappings") or {}).items():
        for entry in entries:
            cluster.mappings[kind][entry["id"]] = {key: value for key, value in entry.items() if key != "id"}
    _ha(cluster, data.get("ha") or {})
    cluster.ceph_health = data.get("ceph")
    cluster.ceph_pools = list(data.get("ceph_pools") or [])
    cluster.qdevice = dict(data.get("qdevice") or {})
    cluster.start()
    return cluster


def _nodes(cluster: Cluster, entries: list[dict[str, Any]]) -> None:
    now = cluster.clock.now()
    for number, entry in enumerate(entries, start=1):
        values = {key: value for key, value in entry.items() if key not in ("memory", "disk", "load")}
        values.setdefault("kernel", "6.14.8-2-pve" if cluster.modern else "6.8.12-8-pve")
        node = Node(number=number, memory=int(entry["memory"]) * MIB, **values)
        node.load = described(entry.get("load") or {}, now)
        node.disk = int(float(entry.get("disk", 64)) * GIB)
        node.booted_at = now - 86400 - 3600 * number
        # Offline and maintenance nodes have been so for a minute: known to all, figures not yet expired.
        node.offline_since = None if node.online else now - 60
        node.maintenance_since = now - 60 if node.maintenance else None
        cluster.nodes[node.name] = node


def _storages(cluster: Cluster, entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        shared = bool(entry.get("shared", entry["type"] in SHARED_TYPES))
        size = entry["size"]
        limited = entry.get("nodes") or (list(size) if isinstance(size, dict) and not shared else None)
        storage = Storage(
            str(entry["name"]), str(entry["type"]), list(entry.get("content") or ["images", "rootdir"]), shared,
            limited, bool(entry.get("enabled", True)), options=dict(entry.get("options") or {}),
        )
        places: list[str | None] = [None] if shared else list(limited or cluster.nodes)
        for place in places:
            storage.sizes[place] = _bytes(size, place)
            storage.base_used[place] = _bytes(entry.get("used", 0), place)
            storage.reserved[place] = _bytes(entry.get("reserved", 0), place)
        cluster.storages[storage.name] = storage


def _bytes(size: Any, place: str | None) -> int:
    return int(float(size.get(place, 0) if isinstance(size, dict) else size) * GIB)


def _files(cluster: Cluster, data: dict[str, Any]) -> None:
    for part, content in (("isos", "iso"), ("images", "import"), ("snippets", "snippets")):
        for storage_name, files in (data.get(part) or {}).items():
            storage = cluster.storages[storage_name]
            for name, gib in files.items():
                for place in [each for each in storage.sizes if not isinstance(gib, dict) or each in gib]:
                    extension = str(name).rpartition(".")[2]
                    cluster.volumes.add(Volume(
                        f"{storage_name}:{content}/{name}", storage_name, place, _bytes(gib, place), content,
                        {"iso": "iso", "snippets": "snippet"}.get(content, extension), ctime=int(cluster.clock.now()),
                    ))


def _backups(cluster: Cluster, entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        storage = cluster.storages[entry["storage"]]
        form = "pbs-vm" if storage.type == "pbs" else str(entry["file"]).partition(".")[2]
        for place in [storage.place(node) for node in entry["nodes"]] if "nodes" in entry else storage.sizes:
            volume = cluster.volumes.add(Volume(
                f"{storage.name}:backup/{entry['file']}", storage.name, place, _bytes(entry.get("size", 1), place),
                "backup", form, ctime=int(entry.get("ctime", cluster.clock.now())),
                backup=dict(entry["config"]), notes=str(entry.get("notes", "")),
            ))
            # A backup names its guest but does not belong to it: it remains when the guest is removed.
            volume.vmid = int(entry["vmid"])


def _access(cluster: Cluster, data: dict[str, Any]) -> None:
    access = cluster.access
    access.users["root@pam"] = User("root@pam", password=secrets.token_urlsafe(12))
    for name, privileges in (data.get("roles") or {}).items():
        unknown = sorted(set(privileges) - PRIVILEGES)
        if unknown:
            raise DescriptionError(f"role {name}: unknown privilege(s) {', '.join(unknown)}")
        # One description serves both versions: privileges that only the other version has are ignored.
        access.roles[name] = access.all_privileges.intersection(privileges)
    for entry in data.get("users") or []:
        access.users[entry["name"]] = User(
            entry["name"], password=entry.get("password"), enable=bool(entry.get("enable", True)),
            expire=int(entry.get("expire", 0)),
        )
    for entry in data.get("tokens") or []:
        userid, _, name = entry["id"].partition("!")
        if userid not in access.users:
            raise DescriptionError(f"token {entry['id']}: there is no user {userid!r}")
        access.users[userid].tokens[name] = Token(
            entry.get("secret") or cluster.random_uuid(), bool(entry.get("privsep", True)), int(entry.get("expire", 0))
        )
    for entry in data.get("acl") or []:
        kind = next(kind for kind in ("user", "token", "group") if kind in entry)
        if entry["role"] not in access.roles:
            raise DescriptionError(f"acl {entry['path']}: there is no role {entry['role']!r}")
        access.acl.append(AclEntry(entry["path"], kind, entry[kind], entry["role"], bool(entry.get("propagate", True))))
    for entry in data.get("pools") or []:
        pool = {"name": entry} if isinstance(entry, str) else entry
        access.pools[pool["name"]] = {
            "comment": pool.get("comment"), "vms": set(), "storages": set(pool.get("storages", [])),
        }
    _default_token(cluster)
    access.changed()


def _default_token(cluster: Cluster) -> None:
    """The collection's own user, unless the description has it otherwise."""
    access = cluster.access
    if DEFAULT_USER not in access.users:
        access.users[DEFAULT_USER] = User(DEFAULT_USER)
        access.roles.setdefault("Automation", frozenset(AUTOMATION_ROLE))
        access.acl.append(AclEntry("/", "user", DEFAULT_USER, "Automation"))
    if DEFAULT_TOKEN not in access.users[DEFAULT_USER].tokens:
        access.users[DEFAULT_USER].tokens[DEFAULT_TOKEN] = Token(cluster.random_uuid(), privsep=False)


def _guest(cluster: Cluster, entry: dict[str, Any]) -> None:
    add_described_guest(cluster, entry)


def add_described_guest(cluster: Cluster, entry: dict[str, Any]) -> Guest:
    """A guest as the description (or the control plane) words it, disks allocated."""
    vmid, kind = int(entry["vmid"]), entry.get("type", "qemu")
    guest = Guest(vmid, entry["node"], kind)
    config = guest.config
    if kind == "qemu":
        config |= {
            "boot": " ", "memory": str(entry.get("memory", 512)), **identity.created(cluster, {}),
        }
    else:
        config |= {"memory": int(entry.get("memory", 512)), "ostype": "debian", "arch": "amd64"}
    for key in ("cores", "sockets"):
        if entry.get(key):
            config[key] = int(entry[key])
    if entry.get("name"):
        config["name" if kind == "qemu" else "hostname"] = str(entry["name"])
    if entry.get("tags"):
        tags = entry["tags"]
        config["tags"] = tags if isinstance(tags, str) else ";".join(sorted(tags))
    try:
        _disks(cluster, guest, entry)
    except (TaskError, ApiError) as error:
        raise DescriptionError(f"guest {vmid}: {error}") from None
    if entry.get("template"):
        config["template"] = 1
    if entry.get("status") == "running":
        guest.status = guest.qmpstatus = "running"
        guest.started_at = cluster.clock.now() - 3600
        guest.pid = cluster.rng.randrange(1000, 30000)
    guest.snapshots = {name: dict(config) for name, config in (entry.get("snapshots") or {}).items()}
    for name in guest.snapshots:
        guest.config["parent"] = name
    for key in ("agent", "acpi", "cpu_use", "memory_use"):
        if key in entry:
            setattr(guest, key, entry[key])
    guest.load = described(entry.get("load") or {}, cluster.clock.now())
    cluster.add_guest(guest)
    # It has always been there.
    guest.measured_since = 0.0
    if entry.get("pool"):
        cluster.access.pools[entry["pool"]]["vms"].add(vmid)
        cluster.access.changed()
    return guest


def _disks(cluster: Cluster, guest: Guest, entry: dict[str, Any]) -> None:
    config = dict(entry.get("config") or {})
    for key, text in {**config, **(entry.get("disks") or {})}.items():
        guest.config[key] = _disk(cluster, guest, key, str(text), bool(entry.get("template"))) if (
            key in (entry.get("disks") or {}) or str(text).endswith(":cloudinit")
        ) else _option(cluster, key, text)
    for volume in cluster.volumes.add_missing(guest, config):
        # In a recording, the used space already includes these volumes.
        used = cluster.storages[volume.storage].base_used
        used[volume.place] = max(0, used.get(volume.place, 0) - volume.size)
    if guest.kind == "qemu" and guest.config["boot"] == " ":
        order = [key for key in guest.config if key in (entry.get("disks") or {}) and key[:3] in ("scs", "vir", "sat")]
        order += [key for key in guest.config if key.startswith("net")][:1]
        guest.config["boot"] = "order=" + ";".join(order) if order else " "


def _option(cluster: Cluster, key: str, value: Any) -> Any:
    if key.startswith("net") and key[3:].isdigit():
        parts = parse_net(str(value))
        if "model" in parts:
            parts.setdefault("macaddr", cluster.random_mac())
            return render_net(parts)
    return value


def _disk(cluster: Cluster, guest: Guest, key: str, text: str, template: bool) -> str:
    parts = parse(text)
    storage_name, _, size = parts.pop("file").partition(":")
    storage = cluster.storages[storage_name]
    if size == "cloudinit":
        volume = cluster.volumes.allocate_cloudinit(storage, guest.node, guest.vmid)
        return render({"file": volume.volid, "media": "cdrom", **parts})
    if not size.replace(".", "").isdigit():
        return text
    volume = cluster.volumes.allocate(storage, guest.node, guest.vmid, int(float(size) * GIB), parts.get("format"))
    if template:
        cluster.volumes.remove(volume)
        volume.volid = volume.volid.replace(f"vm-{guest.vmid}-", f"base-{guest.vmid}-")
        cluster.volumes.add(volume)
    parts.pop("format", None)
    return render({"file": volume.volid, "size": format_size(volume.size), **parts})


def _options(cluster: Cluster, data: dict[str, Any]) -> None:
    cluster.options = dict(data.get("options") or {})
    if data.get("next_id"):
        cluster.options["next-id"] = {key: str(value) for key, value in data["next_id"].items()}


def _ha(cluster: Cluster, entries: dict[str, Any]) -> None:
    ha, past = cluster.ha, ("digest", "errors", "order")
    for entry in entries.get("groups") or []:
        ha.groups[entry["group"]] = {k: v for k, v in entry.items() if k not in (*past, "group", "type")}
    for entry in entries.get("resources") or []:
        sid = str(entry["sid"])
        ha.resources[sid] = {"type": sid.partition(":")[0], **{k: v for k, v in entry.items() if k not in past}}
        ha.ever_active = True
    for entry in entries.get("rules") or []:
        ha.rules[entry["rule"]] = {k: v for k, v in entry.items() if k not in (*past, "rule")}
