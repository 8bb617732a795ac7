# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the guests of a cluster for an inventory, and makes the variables, groups and names of their hosts."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ansible.constants import LOCALHOST

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import ApiError
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import MIB, OFF, Guest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.failures import NodeUnreachable
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.reader import Reader, in_parallel
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.freshness import BEING_MADE
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.snapshot import read_settled
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.addresses import SILENT, agent_addresses

Variables = dict[str, t.Any]
"""The variables of a host."""


class NotCached(Exception):
    """The data of an earlier GuestReader lack something. As VMIDs are used again, what is read now may be about other
    guests than the rest of the data: everything has to be read again.
    """


class GuestReader:
    """Reads guests and their details, each once.

    Attributes:
        data: all data that was read, serializable as JSON: C(guests), and by VMID as text C(configs) and C(agents).
            A config that could not be read, and an agent that did not answer, are None.
    """

    def __init__(self, connect: Callable[[], Reader], known: Mapping[str, t.Any] | None = None) -> None:
        """connect returns the reader; it is called before the first read. known: the data of an earlier GuestReader;
        with them nothing is read, and NotCached is raised where they lack something.
        """
        self._connect = connect
        self._cached = known is not None
        self._reader: Reader | None = None
        self.data: dict[str, t.Any] = dict(known or {"guests": None, "configs": {}, "agents": {}})

    @property
    def complete(self) -> dict[str, t.Any]:
        """The data without details that could not be read."""
        read = {
            subject: {vmid: detail for vmid, detail in self.data[subject].items() if detail is not None}
            for subject in ("configs", "agents")
        }
        return {**self.data, **read}

    def guests(self) -> list[Variables]:
        """Return the variables of guests in the order of their VMIDs.

        Templates and guests that are being created are left out.

        Takes two requests (three if the cluster has no tasks), and one per node on which guests changed within the last
        30 seconds. A user without Sys.Audit does not see the tasks of others, so that every node with guests is read.
        """
        if self.data["guests"] is None:
            self.data["guests"] = _read_guests(self._reading())
        return t.cast("list[Variables]", self.data["guests"])

    def configs(self, guests: Iterable[Variables]) -> Mapping[str, dict[str, t.Any] | None]:
        """Return the config of each guest by its VMID, None if it could not be read. Takes one request each."""
        return self._details("configs", guests, _read_config)

    def agents(self, guests: Iterable[Variables]) -> Mapping[str, list[str] | None]:
        """Return the addresses that the agents of running VMs report, by VMID; None for an agent that did not answer.
        Takes one request each.

        No request is sent for a VM whose config was read and does not enable the agent.
        """
        configs = self.data["configs"]
        running = [
            each
            for each in guests
            if each["proxmox_type"] == "qemu"
            and each["proxmox_status"] not in OFF
            and "agent" in (configs.get(str(each["proxmox_vmid"])) or {"agent": None})
        ]
        return self._details("agents", running, _read_agent)

    def _details(
        self, subject: str, guests: Iterable[Variables], read: Callable[[Reader, Variables], t.Any]
    ) -> Mapping[str, t.Any]:
        known: dict[str, t.Any] = self.data[subject]
        missing = {vmid: each for each in guests if (vmid := str(each["proxmox_vmid"])) not in known}
        if missing:
            reader = self._reading()
            known |= in_parallel(lambda vmid: read(reader, missing[vmid]), missing)
        return known

    def _reading(self) -> Reader:
        if self._cached:
            raise NotCached
        if self._reader is None:
            self._reader = self._connect()
        return self._reader


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

    A VMID follows names that are not unique, and those that mean the controller to Ansible: C(web-1-104).
    """
    names, long_names = [], []
    for each in guests:
        names.append(str(each["proxmox_name"] or each["proxmox_vmid"]))
        long_names.append(f"{names[-1]}-{each['proxmox_vmid']}")
    unique = {name for name, count in Counter(names).items() if count == 1}.difference(LOCALHOST)
    # A guest may be called as another one is with its VMID.
    while taken := unique & {long for name, long in zip(names, long_names, strict=True) if name not in unique}:
        unique -= taken
    return [name if name in unique else long for name, long in zip(names, long_names, strict=True)]


def _read_guests(reader: Reader) -> list[Variables]:
    # Guests that are being created are left out, so there is nothing to wait for.
    guests = read_settled(reader, patience=0).guests
    shown = (guest for guest in guests if not guest.template and guest.lock not in BEING_MADE)
    return [_variables_of(guest) for guest in sorted(shown, key=lambda guest: guest.vmid)]


def _variables_of(guest: Guest) -> Variables:
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
        "proxmox_ha_state": guest.ha_state or None,
        "proxmox_lock": guest.lock,
    }


def _read_config(reader: Reader, of: Variables) -> dict[str, t.Any] | None:
    path = f"/nodes/{of['proxmox_node']}/{of['proxmox_type']}/{of['proxmox_vmid']}/config"
    try:
        config: dict[str, t.Any] = reader.get(path)
    except (ApiError, NodeUnreachable):
        return None
    return config


def _read_agent(reader: Reader, of: Variables) -> list[str] | None:
    vmid = of["proxmox_vmid"]
    found = agent_addresses(reader, {vmid: of["proxmox_node"]}, (), vmid)
    addresses: list[str] | None = None if found["reason"] == SILENT else found["addresses"]
    return addresses
