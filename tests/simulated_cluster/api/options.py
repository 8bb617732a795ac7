# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Datacenter options: next-id bounds, registered tags, tag style, CRS and the like."""

from __future__ import annotations

from typing import Any

from ..errors import die
from ..property_strings import parse, split_list
from ..routing import Call, route
from .config_rights import user_tag_access

# Options that are property strings and come back as objects; their booleans come back as numbers.
_OBJECTS = {"next-id", "tag-style", "user-tag-access", "crs", "migration", "ha", "notify", "webauthn", "u2f"}
_BOOLEANS = {"ha-rebalance-on-start", "ha-auto-rebalance", "case-sensitive"}
_OPEN_TO_ALL = ("tag-style", "console")


@route("GET", "/cluster/options")
def read(call: Call) -> dict[str, Any]:
    options = call.cluster.options
    allowed = _allowed_tags(call)
    if not call.allowed("/", "Sys.Audit"):
        return {key: options[key] for key in _OPEN_TO_ALL if key in options} | {"allowed-tags": allowed}
    return {"mac_prefix": "BC:24:11", "description": "", **options, "allowed-tags": allowed}


def _allowed_tags(call: Call) -> list[str]:
    """Tags that the caller may set, as far as they can be listed."""
    options = call.cluster.options
    mode, tags = user_tag_access(call)
    if mode == "existing":
        for guest in call.cluster.guests.values():
            if call.allowed(f"/vms/{guest.vmid}", "VM.Audit"):
                tags.update(split_list(guest.tags))
    registered = set(options.get("registered-tags", []))
    if call.allowed("/", "Sys.Modify"):
        tags |= registered
    else:
        tags -= registered
    return sorted(tags)


@route("PUT", "/cluster/options")
def change(call: Call) -> None:
    options = call.cluster.options
    call.cluster.need_quorum()
    new: dict[str, Any] = {}
    for key, value in call.values.items():
        if key in ("delete", "node"):
            continue
        if key == "registered-tags":
            new[key] = split_list(value)
        elif key == "description":
            new[key] = f"{value}\n"
        elif key in _OBJECTS:
            new[key] = _object(str(value))
        else:
            new[key] = value
    bounds = new.get("next-id", {})
    if "lower" in bounds and "upper" in bounds and int(bounds["lower"]) > int(bounds["upper"]):
        raise die(f"lower ({bounds['lower']}) <= upper ({bounds['upper']}) boundary rule broken")
    for key, value in new.items():
        if value in ({}, ""):
            options.pop(key, None)
        else:
            options[key] = value
    for key in split_list(call.get("delete")):
        options.pop(key, None)


def _object(text: str) -> dict[str, Any]:
    return {key: int(value) if key in _BOOLEANS else value for key, value in parse(text, "type").items()}
