# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the guests of a cluster for an inventory, and makes the variables, groups and names of their hosts."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import ApiError
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import MIB, OFF
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.failures import NodeUnreachable
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.reader import Reader, in_parallel
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.freshness import BEING_MADE
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.rows import (
    GUEST_KINDS,
    Row,
    guest_of_row,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.addresses import agent_addresses


class GuestReader:
    """Reads guests and their details, each once.

    Attributes:
        data: all data that was read, serializable as JSON: C(guests), and by VMID as text C(configs) and C(agents).
    """

    def __init__(self, connect: Callable[[], Reader], known: Mapping[str, t.Any] | None) -> None:
        """connect returns the reader; it is called before the first read. known: the data of an earlier GuestReader."""
        self._connect = connect
        self._reader: Reader | None = None
        self.data: dict[str, t.Any] = dict(known or {"guests": None, "configs": {}, "agents": {}})

    def guests(self) -> list[Row]:
        """Return the rows of guests, without templates and guests that are being created.

        Takes one request, and one per node with guests that do not show their name yet.
        """
        if self.data["guests"] is None:
            self.data["guests"] = _read_guests(self._reading())
        return t.cast("list[Row]", self.data["guests"])

    def configs(self, guests: Iterable[Row]) -> Mapping[str, dict[str, t.Any] | None]:
        """Return the config of each guest by its VMID, None if it could not be read. Takes one request each."""
        return self._details("configs", guests, _read_config)

    def agents(self, guests: Iterable[Row]) -> Mapping[str, list[str]]:
        """Return the addresses that the agents of running VMs report, by VMID. Takes one request each.

        No request is sent for a VM whose config was read and does not enable the agent.
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
    """Return the host variables of a guest from its row."""
    guest = guest_of_row(row)
    return {
        "proxmox_vmid": guest.vmid,
        "proxmox_name": guest.name,
        "proxmox_type": guest.kind,
        "proxmox_node": guest.node,
        "proxmox_status": guest.status,
        "proxmox_pool": guest.pool,
        "proxmox_tags": sorted(guest.tags),
        "proxmox_cores": int(guest.cores) if guest.cores == int(guest.cores) else guest.cores,
        "proxmox_memory": guest.memory // MIB,
        "proxmox_ha_state": row.get("hastate"),
        "proxmox_lock": guest.lock,
    }


def groups_of(variables: Mapping[str, t.Any], groupings: Sequence[str], prefix: str) -> Iterator[str]:
    """Yield the names of the groups of a host, such as C(<prefix>node_pve1). They may contain invalid characters."""
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
    """Return the host name of each guest, in their order: the guest's name, or its VMID if it has none.

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
    # The list shows a new guest at once, but its name, sizes and template flag up to ten seconds later.
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
