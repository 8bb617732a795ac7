# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests of a cluster as hosts of an inventory: how they are read, and their variables and groups."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import ApiError
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import MIB, OFF
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.failures import NodeUnreachable
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.freshness import BEING_MADE
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.parallel import in_parallel
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.reader import Reader
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.rows import (
    GUEST_KINDS,
    Row,
    guest_of_row,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.addresses import agent_addresses

# A running VM is called so until some seconds after a live migration.
_STATUS = {"postmigrate": "running"}


class GuestReader:
    """Reads guests and their details; what was read before is not read again.

    Attributes:
        data: everything that was read, JSON-able: C(guests), C(configs) and C(agents), both by VMID as text.
    """

    def __init__(self, connect: Callable[[], Reader], known: Mapping[str, t.Any] | None) -> None:
        """connect returns what to read with; it is called before the first read. known: the data of an earlier one."""
        self._connect = connect
        self._reader: Reader | None = None
        self.data: dict[str, t.Any] = dict(known or {"guests": None, "configs": {}, "agents": {}})

    def guests(self) -> list[Row]:
        """Return the row of each guest that is no template and is not being created.

        Costs one request, and one per node with guests that do not show their name yet.
        """
        if self.data["guests"] is None:
            self.data["guests"] = _read_guests(self._reading())
        return t.cast("list[Row]", self.data["guests"])

    def configs(self, guests: Iterable[Row]) -> Mapping[str, dict[str, t.Any] | None]:
        """Return the config of each guest by its VMID, None where it could not be read. Costs one request each."""
        return self._details("configs", guests, _read_config)

    def agents(self, guests: Iterable[Row]) -> Mapping[str, list[str]]:
        """Return the addresses that the agents of running VMs tell, by VMID. Costs one request each.

        A VM whose config was read, and enables no agent, is not asked.
        """
        configs = self.data["configs"]
        running = [
            row
            for row in guests
            if row["type"] == "qemu"
            and guest_of_row(row).status not in OFF
            and "agent" in (configs.get(str(row["vmid"])) or {"agent": None})
        ]
        return self._details("agents", running, _read_agent)

    def _details(
        self, subject: str, guests: Iterable[Row], read: Callable[[Reader, Row], t.Any]
    ) -> Mapping[str, t.Any]:
        known: dict[str, t.Any] = self.data[subject]
        missing = {str(row["vmid"]): row for row in guests if str(row["vmid"]) not in known}
        if missing:
            reader = self._reading()
            known |= in_parallel(lambda vmid: read(reader, missing[vmid]), missing)
        return known

    def _reading(self) -> Reader:
        if self._reader is None:
            self._reader = self._connect()
        return self._reader


def variables_of(row: Row) -> dict[str, t.Any]:
    """Return what the row of a guest tells, as variables of its host."""
    guest = guest_of_row(row)
    return {
        "proxmox_vmid": guest.vmid,
        "proxmox_name": guest.name,
        "proxmox_type": guest.kind,
        "proxmox_node": guest.node,
        "proxmox_status": _STATUS.get(guest.status, guest.status),
        "proxmox_pool": guest.pool,
        "proxmox_tags": sorted(guest.tags),
        "proxmox_cores": int(guest.cores) if guest.cores == int(guest.cores) else guest.cores,
        "proxmox_memory": guest.memory // MIB,
        "proxmox_ha_state": row.get("hastate"),
        "proxmox_lock": guest.lock,
    }


def groups_of(variables: Mapping[str, t.Any], groupings: Sequence[str], prefix: str) -> Iterator[str]:
    """Yield the names of the groups of a host, not made valid yet: C(<prefix>node_pve1) and so on."""
    values = {
        "node": [variables["proxmox_node"]],
        "pool": [variables["proxmox_pool"]],
        "status": [variables["proxmox_status"]],
        "tag": variables["proxmox_tags"],
        "ha": [variables["proxmox_ha_state"]],
    }
    for grouping in groupings:
        yield from (f"{prefix}{grouping}_{value}" for value in values[grouping] if value)


def host_names(guests: Iterable[Mapping[str, t.Any]]) -> list[str]:
    """Return the name of the host of each guest, in their order: that of the guest, or its VMID if it has none.

    Guests that share a name are distinguished by their VMIDs: C(web-1-104).
    """
    variables = list(guests)
    names = [str(each["proxmox_name"] or each["proxmox_vmid"]) for each in variables]
    shared = {name for name in names if names.count(name) > 1}
    return [
        f"{name}-{each['proxmox_vmid']}" if name in shared else name
        for name, each in zip(names, variables, strict=True)
    ]


def _read_guests(reader: Reader) -> list[Row]:
    rows = [
        row
        for row in reader.get("/cluster/resources", type="vm")
        if row.get("type") in GUEST_KINDS and row.get("lock") not in BEING_MADE
    ]
    # Names, sizes and whether it is a template come up to ten seconds after the guest itself.
    late = {(row["node"], row["type"]) for row in rows if guest_of_row(row).name is None}
    lists = in_parallel(lambda place: _read_list(reader, *place), sorted(late))
    fresh = {row["vmid"]: row for rows_of_place in lists.values() for row in rows_of_place}
    rows = [{**row, **fresh.get(row["vmid"], {})} for row in rows]
    return sorted((row for row in rows if not row.get("template")), key=lambda row: int(row["vmid"]))


def _read_list(reader: Reader, node: str, kind: str) -> list[Row]:
    try:
        rows: list[Row] = reader.get(f"/nodes/{node}/{kind}")
    except (ApiError, NodeUnreachable):
        return []
    return rows


def _read_config(reader: Reader, row: Row) -> dict[str, t.Any] | None:
    try:
        config: dict[str, t.Any] = reader.get(f"/nodes/{row['node']}/{row['type']}/{row['vmid']}/config")
    except (ApiError, NodeUnreachable):
        return None
    return config


def _read_agent(reader: Reader, row: Row) -> list[str]:
    addresses: list[str] = agent_addresses(reader, {row["vmid"]: row["node"]}, (), row["vmid"])["addresses"]
    return addresses
