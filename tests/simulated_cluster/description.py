# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading a cluster description: YAML or JSON, checked so that a mistake is named where it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from .cluster import Timing
from .generate import generate
from .recorded import from_recorded, is_recorded

TOP = {
    "version", "cluster", "next_id", "nodes", "storages", "guests", "pools", "mappings", "ha", "users", "tokens",
    "acl", "roles", "options", "isos", "images", "snippets", "backups", "backup_jobs", "timing", "tick", "generate",
    "ceph", "ceph_pools", "qdevice", "replication",
}
NODE = {
    "name", "cores", "memory", "online", "maintenance", "cpu_use", "memory_use", "pressure", "disk", "bridges", "vnets",
    "cpu", "pci", "usb", "dead_services", "clock_offset", "dbus_vmstate", "load",
    "votes", "updates", "kernel", "kernels", "wakeonlan",
}
CPU = {"vendor", "model", "models", "flags", "machine", "machines"}
STORAGE = {"name", "type", "shared", "nodes", "content", "size", "used", "reserved", "enabled", "options"}
GUEST = {
    "vmid", "name", "node", "type", "cores", "sockets", "memory", "status", "template", "tags", "pool", "disks",
    "config", "agent", "cpu_use", "memory_use", "acpi", "snapshots", "load",
}
BACKUP = {"storage", "file", "vmid", "size", "notes", "config", "nodes", "ctime"}
MAPPING = {"id", "description", "map", "mdev", "live-migration-capable"}
HA = {"groups", "resources", "rules"}
VERSIONS = ("9.2", "8.4")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same in C, where PyYAML has it


class DescriptionError(ValueError):
    """The description cannot be a cluster; the text says which part and why."""


def load(source: Path | dict[str, Any]) -> dict[str, Any]:
    """A checked description from a file or data, recorded answers and the short form included."""
    data = source if isinstance(source, dict) else _read(source)
    if not isinstance(data, dict):
        raise DescriptionError("a description is a mapping with 'nodes', 'storages', 'guests', ...")
    if is_recorded(data):
        data = from_recorded(data)
    _known("description", data, TOP)
    if "generate" in data:
        data = generate(data)
    check(data)
    return data


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DescriptionError(f"cannot read {path}: {error.strerror}") from None
    try:
        return json.loads(text) if path.suffix == ".json" else yaml.load(text, _LOADER)
    except (ValueError, yaml.YAMLError) as error:
        raise DescriptionError(f"{path}: {error}") from None


def check(data: dict[str, Any]) -> None:
    """DescriptionError for the first thing that is wrong."""
    if str(data.get("version", "9.2")) not in VERSIONS:
        raise DescriptionError(f"version must be one of {', '.join(VERSIONS)}, not {data['version']!r}")
    _known("timing", data.get("timing", {}), Timing.names())
    nodes = _check_nodes(_list(data, "nodes"))
    storages = _check_storages(_list(data, "storages"), nodes)
    pools = {entry if isinstance(entry, str) else _need("pool", entry, "name") for entry in _list(data, "pools")}
    _check_guests(_list(data, "guests"), nodes, storages, pools)
    for kind, entries in data.get("mappings", {}).items():
        if kind not in ("pci", "usb", "dir"):
            raise DescriptionError(f"mappings: unknown kind {kind!r}; known: pci, usb, dir")
        for entry in entries:
            _known(f"{kind} mapping", entry, MAPPING)
            _need(f"{kind} mapping", entry, "id")
            _need(f"{kind} mapping", entry, "map")
    _known("ha", data.get("ha", {}), HA)
    for entry in _list(data, "backups"):
        _known("backup", entry, BACKUP)
        if _need("backup", entry, "storage") not in storages:
            raise DescriptionError(f"backup: there is no storage {entry['storage']!r}")
    for part in ("isos", "images", "snippets"):
        for storage in data.get(part, {}):
            if storage not in storages:
                raise DescriptionError(f"{part}: there is no storage {storage!r}")


def _check_nodes(entries: list[Any]) -> set[str]:
    if not entries:
        raise DescriptionError("nodes: a cluster needs at least one node")
    names: set[str] = set()
    for entry in entries:
        name = str(_need("node", entry, "name"))
        _known(f"node {name}", entry, NODE)
        _unique("node", name, names)
        _known(f"node {name}: cpu", entry.get("cpu", {}), CPU)
        for key in ("cores", "memory"):
            if not isinstance(_need(f"node {name}", entry, key), int) or entry[key] < 1:
                raise DescriptionError(f"node {name}: {key} must be a positive whole number, not {entry[key]!r}")
    return names


def _check_storages(entries: list[Any], nodes: set[str]) -> set[str]:
    names: set[str] = set()
    for entry in entries:
        name = str(_need("storage", entry, "name"))
        _known(f"storage {name}", entry, STORAGE)
        _unique("storage", name, names)
        _need(f"storage {name}", entry, "type")
        _need(f"storage {name}", entry, "size")
        mentioned = set(entry.get("nodes") or []) | (set(entry["size"]) if isinstance(entry["size"], dict) else set())
        for node in mentioned - nodes:
            raise DescriptionError(f"storage {name}: there is no node {node!r}")
    return names


def _check_guests(entries: list[Any], nodes: set[str], storages: set[str], pools: set[str]) -> None:
    ids: set[str] = set()
    for entry in entries:
        vmid = _need("guest", entry, "vmid")
        what = f"guest {vmid}"
        _known(what, entry, GUEST)
        _unique("guest", str(vmid), ids)
        if not isinstance(vmid, int) or not 100 <= vmid <= 999999999:
            raise DescriptionError(f"{what}: vmid must be between 100 and 999999999")
        if _need(what, entry, "node") not in nodes:
            raise DescriptionError(f"{what}: there is no node {entry['node']!r}")
        if entry.get("type", "qemu") not in ("qemu", "lxc"):
            raise DescriptionError(f"{what}: type must be qemu or lxc, not {entry['type']!r}")
        if entry.get("status", "stopped") not in ("running", "stopped"):
            raise DescriptionError(f"{what}: status must be running or stopped, not {entry['status']!r}")
        if entry.get("pool") is not None and entry["pool"] not in pools:
            raise DescriptionError(f"{what}: there is no pool {entry['pool']!r}")
        for key, disk in entry.get("disks", {}).items():
            storage = str(disk).partition(":")[0]
            if storage not in storages and storage != "none":
                raise DescriptionError(f"{what}: {key}: there is no storage {storage!r}")


def _list(data: dict[str, Any], key: str) -> list[Any]:
    value = data.get(key) or []
    if not isinstance(value, list):
        raise DescriptionError(f"{key}: expected a list, got {type(value).__name__}")
    return value


def _known(what: str, entry: Any, known: set[str]) -> None:
    if not isinstance(entry, dict):
        raise DescriptionError(f"{what}: expected a mapping, got {type(entry).__name__}")
    unknown = sorted(str(key) for key in entry if key not in known)
    if unknown:
        raise DescriptionError(f"{what}: unknown key(s) {', '.join(unknown)}; known: {', '.join(sorted(known))}")


def _need(what: str, entry: Any, key: str) -> Any:
    if not isinstance(entry, dict):
        raise DescriptionError(f"{what}: expected a mapping, got {type(entry).__name__}")
    if entry.get(key) is None:
        raise DescriptionError(f"{what}: {key} is missing")
    return entry[key]


def _unique(what: str, name: str, seen: set[str]) -> None:
    if name in seen:
        raise DescriptionError(f"{what} {name} is described twice")
    seen.add(name)
