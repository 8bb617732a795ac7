# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a cluster description from recorded API answers by path, as in snapshots and bug reports."""

from __future__ import annotations

import re
from typing import Any

from .property_strings import GIB, MIB, is_drive, parse, parse_size

_CONFIG = re.compile(r"/nodes/([^/]+)/(qemu|lxc)/(\d+)/config")
_STORAGE = re.compile(r"/nodes/([^/]+)/storage")
_NETWORK = re.compile(r"/nodes/([^/]+)/network")
_HARDWARE = re.compile(r"/nodes/([^/]+)/hardware/(pci|usb)")
_DERIVED = ("digest", "pending", "lock")


def is_recorded(data: dict[str, Any]) -> bool:
    """True for data whose keys are API paths."""
    return bool(data) and all(isinstance(key, str) and key.startswith("/") for key in data)


def from_recorded(answers: dict[str, Any]) -> dict[str, Any]:
    """Return the description of the cluster that gave these answers, with sizes in GiB and MiB."""
    paths = {path.partition("?")[0]: _data(answer) for path, answer in answers.items()}
    rows = paths.get("/cluster/resources") or []
    version = str((paths.get("/version") or {}).get("release", "9.2"))
    options = dict(paths.get("/cluster/options") or {})
    next_id = options.pop("next-id", None)
    nodes = {row["node"]: _node(row) for row in rows if row["type"] == "node"}
    _details(nodes, paths)
    description: dict[str, Any] = {
        "version": "8.4" if version.startswith("8") else "9.2",
        "nodes": list(nodes.values()),
        "storages": _storages(rows, paths),
        "guests": _guests(rows, paths),
        "pools": sorted({row["pool"] for row in rows if row.get("pool")}),
        "options": {key: value for key, value in options.items() if key != "allowed-tags"},
        "mappings": {
            kind: [_mapping(entry) for entry in paths.get(f"/cluster/mapping/{kind}") or []] for kind in ("pci", "usb")
        },
        "ha": {
            "resources": paths.get("/cluster/ha/resources") or [],
            "groups": paths.get("/cluster/ha/groups") or [],
            "rules": paths.get("/cluster/ha/rules") or [],
        },
    }
    if next_id:
        description["next_id"] = {key: int(value) for key, value in next_id.items()}
    return description


def _data(answer: Any) -> Any:
    return answer["data"] if isinstance(answer, dict) and set(answer) <= {"data", "total"} and answer else answer


def _node(row: dict[str, Any]) -> dict[str, Any]:
    memory = int(row.get("maxmem", 8 * GIB))
    return {
        "name": row["node"], "cores": int(row.get("maxcpu", 1)), "memory": max(1, memory // MIB),
        "online": row.get("status") == "online", "maintenance": row.get("hastate") == "maintenance",
        "cpu_use": float(row.get("cpu", 0)), "memory_use": float(row.get("mem", 0)) / memory,
    }


def _details(nodes: dict[str, dict[str, Any]], paths: dict[str, Any]) -> None:
    for path, answer in paths.items():
        if match := _NETWORK.fullmatch(path):
            kinds = ("bridge", "OVSBridge")
            nodes[match[1]]["bridges"] = [entry["iface"] for entry in answer if entry.get("type") in kinds]
        elif match := _HARDWARE.fullmatch(path):
            nodes[match[1]][match[2]] = answer


def _storages(rows: list[dict[str, Any]], paths: dict[str, Any]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["type"] == "storage":
            _note(found, row["storage"], row["node"], row.get("plugintype", "dir"), row.get("shared", 0),
                  row.get("content", ""), row.get("maxdisk", 0), row.get("disk", 0))
    for path, answer in paths.items():
        if match := _STORAGE.fullmatch(path):
            for row in answer:
                if row.get("enabled", 1):
                    _note(found, row["storage"], match[1], row["type"], row.get("shared", 0), row.get("content", ""),
                          row.get("total", 0), row.get("used", 0))
    return list(found.values())


def _note(
    found: dict[str, dict[str, Any]], name: str, node: str, kind: str, shared: Any, content: str, total: int, used: int
) -> None:
    entry = found.setdefault(name, {
        "name": name, "type": kind, "shared": bool(shared), "nodes": [], "size": {}, "used": {},
        "content": [word for word in content.split(",") if word],
    })
    if node not in entry["nodes"]:
        entry["nodes"].append(node)
    if entry["shared"]:
        entry["size"], entry["used"] = total / GIB, used / GIB
    else:
        entry["size"][node], entry["used"][node] = total / GIB, used / GIB


def _guests(rows: list[dict[str, Any]], paths: dict[str, Any]) -> list[dict[str, Any]]:
    configs = {int(match[3]): answer for path, answer in paths.items() if (match := _CONFIG.fullmatch(path))}
    guests = []
    for row in rows:
        if row["type"] not in ("qemu", "lxc"):
            continue
        guest: dict[str, Any] = {
            "vmid": int(row["vmid"]), "node": row["node"], "type": row["type"], "pool": row.get("pool"),
            "status": "running" if row.get("status") == "running" else "stopped", "tags": row.get("tags"),
            "template": bool(row.get("template")), "name": row.get("name"), "cores": row.get("maxcpu"),
            "memory": row["maxmem"] // MIB if row.get("maxmem") else None,
        }
        config = {key: value for key, value in configs.get(guest["vmid"], {}).items() if key not in _DERIVED}
        guest["config"] = config
        guests.append({key: value for key, value in guest.items() if value is not None})
    return guests


def _mapping(entry: dict[str, Any]) -> dict[str, Any]:
    known = ("id", "description", "map", "mdev", "live-migration-capable")
    return {key: entry[key] for key in known if key in entry}


def recorded_volumes(config: dict[str, Any]) -> list[tuple[str, int]]:
    """Volume id and size of every disk that a recorded config names."""
    volumes = []
    for key, value in config.items():
        if is_drive(key) or key.startswith("unused") or key == "rootfs":
            drive = parse(str(value))
            volid = drive.get("file", "")
            if ":" in volid and "size" in drive:
                volumes.append((volid, parse_size(drive["size"])))
    return volumes
