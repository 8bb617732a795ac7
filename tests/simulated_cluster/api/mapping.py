# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resource mappings: PCI, USB and directory names that stand for a device on each node."""

from __future__ import annotations

from typing import Any

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
    return [problem for entry in here if (problem := _check(call, kind, name, node, entry)) is not None]


def _check(call: Call, kind: str, name: str, node: str, entry: dict[str, str]) -> dict[str, str] | None:
    host = call.cluster.nodes[node]

    def error(text: str) -> dict[str, str]:
        return {"severity": "error", "message": f"Invalid configuration: {text}\n"}

    if kind == "usb":
        ids = {f"{row.get('vendid', '')}:{row.get('prodid', '')}" for row in host.usb}
        found = entry.get("id") in {text.replace("0x", "") for text in ids}
        return None if found else error(f"usb device '{entry.get('id')}' not found")
    if kind != "pci":
        return None
    path = entry.get("path", "").split(";")[0]
    device = next((row for row in host.pci if row["id"].startswith(path)), None)
    if device is None:
        return error(f"pci device '{path}' not found")
    real = f"{device['vendor']}:{device['device']}".replace("0x", "")
    if real != entry.get("id"):
        return error(f"'id' does not match for '{name}' ({real} != {entry.get('id')})")
    subsystem = f"{device.get('subsystem_vendor', '')}:{device.get('subsystem_device', '')}".replace("0x", "")
    if subsystem != ":" and "subsystem-id" not in entry:
        return error(f"missing expected property 'subsystem-id' for device '{path}'")
    return None


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
