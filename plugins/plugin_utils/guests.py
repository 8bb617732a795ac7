# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the guests of a cluster for an inventory, and makes the variables and groups of their hosts."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    ApiError,
    ConnectionFailed,
    PermissionDenied,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import MIB, OFF, Guest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.reader import Reader, in_parallel
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import Session
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.config_names import (
    read_config_names,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.freshness import BEING_MADE
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.kept_names import KeptNames
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.snapshot import read_settled
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.addresses import (
    ODD,
    SILENT,
    agent_addresses,
)

UNKNOWN_FOR = 300.0
"""Seconds for which a cache keeps that a detail is unknown. Without that, one silent agent would cost a request for
each guest in every run.
"""

UNKNOWN = (ApiError, ConnectionFailed, PermissionDenied)
"""Failures of a single guest: its owner stops the agent, or gives nobody the right to ask it."""

Variables = dict[str, t.Any]
"""The variables of a host."""


class NotCached(Exception):
    """The data of an earlier GuestReader lack something. As VMIDs are used again, what is read now may be about other
    guests than the rest of the data: everything has to be read again.
    """


class GuestReader:
    """Reads guests and their details, each once.

    Attributes:
        data: all data that was read, serializable as JSON: C(guests), and by VMID as text C(configs) and C(agents),
            None for what is unknown; C(until) is the time until which nobody asks for that again.
    """

    def __init__(
        self,
        connect: Callable[[], Session],
        seconds: float,
        known: Mapping[str, t.Any] | None = None,
        kept: Callable[[], KeptNames] = lambda: KeptNames(None, None),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """connect returns the session; it is called before the first read. seconds: the time for all details together;
        what is not read by then is unknown.

        known: the data of an earlier GuestReader; with them nothing is read, and NotCached is raised where they lack
        something. kept returns where to find and to keep the names of guests.
        """
        self._connect = connect
        self._kept = kept
        self._seconds = seconds
        self._cached = known is not None
        self._clock = clock
        self._session: Session | None = None
        self._details_end: float | None = None
        self.data: dict[str, t.Any] = dict(known or {"guests": None, "configs": {}, "agents": {}, "until": None})
        until = self.data.get("until")
        if until is not None and not until - UNKNOWN_FOR <= clock() < until:
            self._forget_what_is_unknown()

    def guests(self) -> list[Variables]:
        """Return the variables of guests in the order of their VMIDs.

        Templates and guests that are being created are left out.

        Takes two requests (three if the cluster has no tasks), and one per node on which guests changed within the last
        30 seconds. A user without Sys.Audit does not see the tasks of others, so that every node with guests is read.
        One or more further ones if Proxmox VE does not tell the names of guests on nodes that are offline.
        """
        if self.data["guests"] is None:
            self.data["guests"] = _read_guests(self._require_session(), self._kept())
        return t.cast("list[Variables]", self.data["guests"])

    def configs(self, guests: Iterable[Variables]) -> Mapping[str, dict[str, t.Any] | None]:
        """Return the config of each guest by its VMID, None if it is unknown. Takes one request each."""
        return self._details("configs", guests, _read_config)

    def agents(self, guests: Iterable[Variables]) -> Mapping[str, list[str] | None]:
        """Return the addresses that the agents of running VMs report, by VMID; None if they are unknown. Takes one
        request each.

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
        """Return a detail of guests by VMID. What is not known yet is read, within the time that is left."""
        known: dict[str, t.Any] = self.data[subject]
        missing = {vmid: each for each in guests if (vmid := str(each["proxmox_vmid"])) not in known}
        if missing:
            session = self._require_session()
            if self._details_end is None:
                self._details_end = time.monotonic() + self._seconds
            bounded = session.until(self._details_end)
            try:
                found = in_parallel(lambda vmid: read(bounded, missing[vmid]), missing)
            finally:
                bounded.close()
            known |= found
            if None in found.values():
                self.data["until"] = self._clock() + UNKNOWN_FOR
        return known

    def _forget_what_is_unknown(self) -> None:
        for subject in ("configs", "agents"):
            known = self.data[subject]
            self.data[subject] = {vmid: detail for vmid, detail in known.items() if detail is not None}

    def _require_session(self) -> Session:
        if self._cached:
            raise NotCached
        if self._session is None:
            self._session = self._connect()
        return self._session


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


def is_silent(variables: Mapping[str, t.Any]) -> bool:
    """Whether the name of a guest is not known, as its node does not answer."""
    return variables["proxmox_name"] is None and variables["proxmox_status"] == "unknown"


def _read_guests(reader: Reader, kept: KeptNames) -> list[Variables]:
    """Read the guests of the cluster, without templates and those that are being created."""
    # Guests that are being created are left out, so there is nothing to wait for.
    snapshot = read_settled(reader, patience=0)
    silent = {guest.vmid for guest in snapshot.guests if guest.name is None and guest.status == "unknown"}
    if silent:
        names = kept.recall(snapshot, silent) | read_config_names(reader, silent)
        guests = (replace(guest, name=names.get(guest.vmid, guest.name)) for guest in snapshot.guests)
        snapshot = replace(snapshot, guests=tuple(guests))
    kept.keep(snapshot)
    shown = (guest for guest in snapshot.guests if not guest.template and guest.lock not in BEING_MADE)
    return [_variables_of(guest) for guest in sorted(shown, key=lambda guest: guest.vmid)]


def _variables_of(guest: Guest) -> Variables:
    """Return a guest as variables of a host."""
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
    """Read the config with which a guest runs; None if it cannot be read."""
    path = f"/nodes/{of['proxmox_node']}/{of['proxmox_type']}/{of['proxmox_vmid']}/config"
    try:
        # Pending values take effect at the next start: until then, the guest is reached by those with which it runs.
        config: dict[str, t.Any] = reader.get(path, current=1)
    except UNKNOWN:
        return None
    return config


def _read_agent(reader: Reader, of: Variables) -> list[str] | None:
    """Read the addresses that the agent of a VM reports; None if they cannot be read."""
    vmid = of["proxmox_vmid"]
    try:
        found = agent_addresses(reader, {vmid: of["proxmox_node"]}, (), vmid)
    except UNKNOWN:
        return None
    addresses: list[str] | None = None if found["reason"] in (SILENT, ODD) else found["addresses"]
    return addresses
