# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds a VM that may have been moved meanwhile."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import ApiError, NotTheSameGuest, TaskFailed
from .api.session import Session
from .outcomes import is_missing
from .tasks import Poller
from .writes import GuestWriter

# How many attempts a write gets on a VM that is not found on its node, and the seconds between two of them.
TRIES = 3
FIND_AGAIN_AFTER = 1.0

R = t.TypeVar("R")

Config: t.TypeAlias = "Mapping[str, t.Any]"


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds VMs on the nodes where they are now. May be used from many threads."""

    session: Session
    poller: Poller

    def row(self, vmid: int) -> Mapping[str, t.Any] | None:
        """Return the guest's row in the cluster's list, where existence, node and lock show at once."""
        rows = self.session.get("/cluster/resources", type="vm")
        return next((row for row in rows if row.get("vmid") == vmid), None)

    def read_status(self, node: str, vmid: int) -> Mapping[str, t.Any] | None:
        """Return the VM's current status as Proxmox reports it; None when the VM is not on node."""
        try:
            current: Mapping[str, t.Any] = self.session.get(f"/nodes/{node}/qemu/{vmid}/status/current")
        except ApiError as error:
            if is_missing(error.message):
                return None
            raise
        return current

    def call_where_it_is(self, node: str, vmid: int, act: Callable[[str], R]) -> R:
        """Call act with node. If the VM is not found there, call act with the node on which the cluster shows it.

        The VM may have been moved meanwhile, also while a task waited for its lock. And a node whose cluster file
        system is just rejoining the cluster does not find the VM for a moment.
        """
        for tries_left in reversed(range(TRIES)):
            try:
                return act(node)
            except (ApiError, TaskFailed) as error:
                row = self.row(vmid) if tries_left and is_missing(error.message) else None
                if row is None or row["type"] != "qemu":
                    raise
                node = row["node"]
                self.poller.sleep(FIND_AGAIN_AFTER)
        raise AssertionError("the last try has returned or raised")

    def node_of(self, node: str, guest: GuestWriter) -> str | None:
        """Return the VM's node; None when it is gone, also if another VM has its VMID by now."""
        try:
            found = self.locate(node, guest)
        except NotTheSameGuest:
            return None
        return None if found is None else found[0]

    def locate(self, node: str, guest: GuestWriter) -> tuple[str, Config] | None:
        """Return the VM's node and config, looked for on node first; None when there is no such VM.

        A node whose cluster file system is just rejoining the cluster does not find its VMs for a moment. Raises
        ApiError if it still does not after three attempts.
        """
        for _try in range(TRIES):
            try:
                return node, guest.look(node)
            except ApiError as error:
                if not is_missing(error.message):
                    raise
            row = self.row(guest.vmid)
            if row is None or row["type"] != "qemu":
                return None
            if row["node"] == node:
                self.poller.sleep(FIND_AGAIN_AFTER)
            node = row["node"]
        message = f"the cluster shows VM {guest.vmid} on node {node}, which does not find it: not deleted"
        raise ApiError(message, vmid=guest.vmid)
