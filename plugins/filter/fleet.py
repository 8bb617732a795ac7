# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A filter that formats the result of fleet_info as lines of plain text."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

from ansible.errors import AnsibleFilterError

from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.tables import (
    EMPTY,
    counts_text,
    list_changes,
    table,
    width_for,
    wrap,
)

HEADINGS = ("VM", "STATE", "CLUSTER", "NODE", "VMID", "WHAT")
OK = "ok"


def fleet_table(fleet: Mapping[str, t.Any], width: int | None = None) -> list[str]:
    """Return a line with the totals, then a row per VM that is not V(ok), the worst first.

    fleet is the result of fleet_info; width is the length of a line, by default that of the terminal.
    """
    if not isinstance(fleet, Mapping) or not {"summary", "vms", "unmanaged"} <= fleet.keys():
        raise AnsibleFilterError("expected the result of fleet_info")
    size, summary = width_for(width), fleet["summary"]
    rows = [_row(vm) for vm in worst_first(fleet) if vm["state"] != OK]
    rows += [_row_of_unmanaged(vm) for vm in fleet["unmanaged"]]
    totals = counts_text((count, state) for state, count in summary.items())
    lines = wrap(f"{len(fleet['vms'])} VMs in the list: {totals or 'none'}", size)
    for doubt in fleet.get("doubts") or []:
        lines += wrap(doubt, size)
    return [*lines, *(table([HEADINGS, *rows], size) if rows else [])]


def worst_first(fleet: Mapping[str, t.Any]) -> list[Mapping[str, t.Any]]:
    """Return the VMs of the list in the order of the states in the summary."""
    order = list(fleet["summary"])
    return sorted(fleet["vms"], key=lambda vm: order.index(vm["state"]))


def what_of(vm: Mapping[str, t.Any]) -> str:
    """Return the reason for the state of a VM of the list."""
    error = vm.get("error")
    pending = list_changes(vm["pending"])
    texts = [
        f"{error['code']}: {error['message']}" if error else "",
        list_changes(vm["drift"]),
        *vm["broken"],
        f"pending until it is stopped and started: {pending}" if pending else "",
    ]
    plain = {"missing": "does not exist", "unwanted": "is to be absent", "unfinished": "was begun and not finished"}
    return "; ".join(text for text in texts if text) or plain.get(vm["state"], EMPTY)


def _row(vm: Mapping[str, t.Any]) -> tuple[str, ...]:
    name = str(vm.get("name") or vm.get("vmid") or EMPTY)
    return name, vm["state"], *_place(vm), what_of(vm)


def _row_of_unmanaged(vm: Mapping[str, t.Any]) -> tuple[str, ...]:
    facts = [vm["status"], *([f"pool {vm['pool']}"] if vm.get("pool") else []), *vm["tags"]]
    return str(vm.get("name") or vm["vmid"]), "unmanaged", *_place(vm), ", ".join(facts)


def _place(vm: Mapping[str, t.Any]) -> tuple[str, str, str]:
    return vm.get("cluster") or EMPTY, vm.get("node") or EMPTY, str(vm.get("vmid") or EMPTY)


class FilterModule:
    """The filter by its name."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        return {"fleet_table": fleet_table}
