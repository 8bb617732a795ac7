# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resource mappings: PCI, USB and directory names that stand for a device on each node."""

from __future__ import annotations

from typing import Any

from ..cluster import Cluster
from ..errors import die, forbidden
from ..property_strings import parse, split_list
from ..routing import Call, Handler, route

_RIGHTS = ("Mapping.Modify", "Mapping.Use", "Mapping.Audit")


@route("GET", "/cluster/mapping")
def index(call: Call) -> list[dict[str, str]]:
    return [{"name": kind} for kind in sorted(call.cluster.mappings)]


def _row(call: Call, kind: str, name: str) -> dict[str, Any]:
    entry = call.cluster.mappings[kind][name]
    return {**entry, "type": kind, "digest": call.cluster.ha.digest(call.cluster.mappings[kind])}


def _list(kind: str) -> Handler:
    def handler(call: Call) -> list[dict[str, Any]]:
        rows = []
        for name in call.cluster.mappings[kind]:
            if not call.allowed(f"/mapping/{kind}/{name}", *_RIGHTS, any_of=True):
                continue
            row = {"id": name, **_row(call, kind, name)}
            if call.get("check-node"):
                key = "errors" if kind == "usb" else "checks"
                row[key] = _checks(call, kind, name, str(call["check-node"]))
            rows.append(row)
        return call.cluster.shuffled(rows)

    return handler


def _checks(call: Call, kind: str, name: str, node: str) -> list[dict[str, str]]:
    """What is wrong with a mapping on a node: nothing mapped, or a device that is not there."""
    entries = [parse(text, "node") for text in call.cluster.mappings[kind][name]["map"]]
    here = [entry for entry in entries if entry.get("node") == node]
    if not here:
        return [{"severity": "warning", "message": f"No mapping for node {node}."}]
    problems = [mapping_problem(call.cluster, kind, name, node, entry) for entry in here]
    return [{"severity": "error", "message": f"Invalid configuration: {text}\n"} for text in problems if text]


def mapping_problem(cluster: Cluster, kind: str, name: str, node: str, entry: dict[str, str]) -> str | None:
    """What is wrong with an entry of a mapping, as the check says and as the start of a VM fails."""
    if kind == "usb":
        return _usb_problem(cluster.nodes[node].usb, name, entry)
    if kind != "pci":
        return None
    devices = {row["id"]: row for row in cluster.nodes[node].pci}
    for number, function in enumerate(entry.get("path", "").split(";")):
        path = function if "." in function else f"{function}.0"
        if path not in devices:
            return f"pci device '{path}' not found"
        expected = _expected(devices[path])
        configured = {"mdev": str(int(cluster.mappings["pci"][name].get("mdev") or 0)), **entry}
        for key in sorted(expected):
            if (key == "iommugroup" and number) or expected[key] == configured.get(key):
                continue
            if key not in configured:
                return f"missing expected property '{key}' for device '{path}'"
            if expected[key] is None:
                return f"unexpected property '{key}' configured for device '{path}'"
            return f"'{key}' does not match for '{name}' ({expected[key]} != {configured[key]})"
    return None


def _expected(device: dict[str, Any]) -> dict[str, str | None]:
    """The properties that an entry for a PCI device has to have."""

    def pair(vendor: str, product: str) -> str:
        return f"{device[vendor]}:{device[product]}".replace("0x", "")

    group = int(device.get("iommugroup", -1))
    return {
        "id": pair("vendor", "device"),
        "iommugroup": str(group) if group >= 0 else None,
        "mdev": str(int("mdevs" in device)),
        "subsystem-id": pair("subsystem_vendor", "subsystem_device") if "subsystem_device" in device else None,
    }


def _usb_problem(rows: list[dict[str, Any]], name: str, entry: dict[str, str]) -> str | None:
    ids = {f"{row.get('busnum')}-{row.get('usbpath')}": _usb_id(row) for row in rows}
    if "path" not in entry:
        return None if entry.get("id") in ids.values() else f"usb device '{entry.get('id')}' not found"
    if entry["path"] not in ids:
        return f"usb device '{entry['path']}' not found"
    real = ids[entry["path"]]
    return None if real == entry.get("id") else f"'id' does not match for '{name}' ({real} != {entry.get('id')})"


def _usb_id(row: dict[str, Any]) -> str:
    return f"{row.get('vendid', '')}:{row.get('prodid', '')}".replace("0x", "")


def _one(kind: str) -> Handler:
    def handler(call: Call) -> dict[str, Any]:
        name = str(call["id"])
        if not call.allowed(f"/mapping/{kind}/{name}", *_RIGHTS, any_of=True):
            raise forbidden()
        if name not in call.cluster.mappings[kind]:
            raise die(f"mapping '{name}' not found")
        return _row(call, kind, name)

    return handler


def _create(kind: str) -> Handler:
    def handler(call: Call) -> None:
        name, known = str(call["id"]), call.cluster.mappings[kind]
        if name in known:
            raise die(f"create hardware mapping failed: {kind} ID '{name}' already defined")
        known[name] = {key: value for key, value in call.values.items() if key not in ("id", "digest")}

    return handler


def _change(kind: str) -> Handler:
    def handler(call: Call) -> None:
        name, known = str(call["id"]), call.cluster.mappings[kind]
        if name not in known:
            raise die(f"update hardware mapping failed: {kind} '{name}' not found")
        known[name] |= {key: value for key, value in call.values.items() if key not in ("id", "digest", "delete")}
        for option in split_list(call.get("delete")):
            known[name].pop(option, None)

    return handler


def _delete(kind: str) -> Handler:
    def handler(call: Call) -> None:
        call.cluster.mappings[kind].pop(str(call["id"]), None)

    return handler


for _kind in ("pci", "usb", "dir"):
    route("GET", f"/cluster/mapping/{_kind}")(_list(_kind))
    route("POST", f"/cluster/mapping/{_kind}")(_create(_kind))
    route("GET", f"/cluster/mapping/{_kind}/{{id}}")(_one(_kind))
    route("PUT", f"/cluster/mapping/{_kind}/{{id}}")(_change(_kind))
    route("DELETE", f"/cluster/mapping/{_kind}/{{id}}")(_delete(_kind))
