# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes what a failed create, clone or restore leaves behind, if it is certainly ours; reports it otherwise."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import ApiError, CollectionError, NotTheSameGuest, TaskFailed, TaskTimeout
from .api.failures import VMIDTaken
from .api.session import ROOT, Session
from .creations import removal_of
from .identity import identity_of
from .inventory.freshness import BEING_MADE, RESTORING, read_config
from .lifecycle import Lifecycle
from .making import Adjustment, Ended, LeftBehind, Making, Unknown
from .outcomes import is_killed, is_missing
from .tasks import Upid, task_rows
from .writes import GuestWriter

R = t.TypeVar("R")


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Removes the remains of VMs that could not be made. May be used from many threads."""

    session: Session
    lifecycle: Lifecycle

    def remove_if_this_fails(
        self,
        making: Making,
        guest: GuestWriter,
        work_out: Callable[[], Adjustment],
        apply: Callable[[Adjustment], R],
    ) -> R:
        """Adjust the VM that this call has made. If that fails, delete the VM, unless another one has its VMID by then.

        Raises VMIDTaken in that case.
        """
        try:
            return apply(work_out())
        except TaskTimeout as error:
            raise Ended(Unknown(making.vmid, making.node, error, begun=True)) from error
        except NotTheSameGuest as error:
            raise VMIDTaken(error.message, making.vmid) from error
        except CollectionError as error:
            self._remove(making, error, guest)
            raise

    def remove_leftover(self, making: Making, error: ApiError | TaskFailed, upid: str | None) -> None:
        """Delete what a failed create or restore left and Proxmox should have removed; never what others made since.

        The remains of a killed process are only reported: some of its disks may exist that no config names.
        """
        if isinstance(error, TaskFailed) and is_killed(error.exitstatus):
            self._raise_if_locked(making, error)
            return
        # Unlike a failed create or clone, a failed restore keeps an empty VM, which holds the VMID.
        if making.task_type == RESTORING and upid:
            self._remove_if(making, error, _is_stub)
        if making.task_type == "qmcreate" and making.name and upid:
            self._remove_if(making, error, lambda config: self._ask_if_leftover(making, Upid.parse(upid), config))

    def remove_stub(self, making: Making, error: CollectionError) -> None:
        """Delete the empty VM that Proxmox makes for a create before it starts the task.

        That VM is certainly ours: Proxmox refuses a VMID in use before it makes one. Raises Ended when it could not be
        deleted.
        """
        config = read_config(self.session, making.task_node, making.vmid)
        if config is None or config.get("lock") not in BEING_MADE or "name" in config:
            return
        reason = f"only {ROOT} may remove a locked VM"
        if self.session.user == ROOT:
            try:
                self.writer_of(making.task_node, making.vmid, config).delete(making.task_node, skiplock=1)
            except CollectionError as second:
                reason = second.message
            else:
                return
        taken = VMIDTaken(error.message, making.vmid)
        raise Ended(LeftBehind(making.vmid, making.task_node, taken, reason, stub=True)) from error

    def _raise_if_locked(self, making: Making, error: CollectionError) -> None:
        """Raise Ended when the VM is still locked by its creation, which no process continues."""
        try:
            config = read_config(self.session, making.task_node, making.vmid)
        except CollectionError:
            return
        locked = config is not None and (config.get("lock") in BEING_MADE or making.task_type == RESTORING)
        if config is not None and locked and "name" not in config:
            cure = f"its creation was broken off; remove it there as root with '{removal_of(making.vmid)}'"
            raise Ended(LeftBehind(making.vmid, making.task_node, error, cure)) from error

    def _ask_if_leftover(self, making: Making, task: Upid, config: Mapping[str, t.Any]) -> bool:
        """Whether the VM has our name and was made while our task ran, when nobody else could use the VMID."""
        # Proxmox VE itself writes meta when it makes a VM, by the clock of the node; no request can set it.
        created = re.search(r"\bctime=(\d{1,18})\b", str(config.get("meta", "")))
        if config.get("name") != making.name or config.get("lock") or created is None:
            return False
        rows = task_rows(self.session, making.task_node, making.task_id)
        ended = next((row.get("endtime") for row in rows if row.get("upid") == task.text), None)
        later = [row for row in rows if row.get("type") == task.type and row.get("starttime", 0) > task.started]
        return ended is not None and not later and task.started <= int(created[1]) <= int(ended)

    def _remove_if(
        self, making: Making, error: CollectionError, is_ours: Callable[[Mapping[str, t.Any]], bool]
    ) -> None:
        """Delete the VM if its config shows that it is ours. Raises Ended when it could not be deleted."""
        try:
            config = read_config(self.session, making.node, making.vmid)
            if config is None or not is_ours(config):
                return
        except CollectionError as second:
            raise Ended(LeftBehind(making.vmid, making.node, error, second.message)) from error
        self._remove(making, error, self.writer_of(making.node, making.vmid, config))

    def _remove(self, making: Making, error: CollectionError, guest: GuestWriter) -> None:
        """Delete the VM, unless another one has its VMID by now. Raises Ended when it could not be deleted."""
        try:
            config = guest.look(making.node)
            # Without quorum, a deletion would remove the disks and keep the VM.
            self.lifecycle.quorum.require(f"VM {making.vmid} was not deleted", fresh=True)
            # A restored VM is protected if the one in the backup was; Proxmox then refuses to delete it.
            if config.get("protection"):
                self.lifecycle.update(making.node, guest, {"delete": "protection"})
            self.lifecycle.delete(making.node, guest)
        except NotTheSameGuest:
            return
        except CollectionError as second:
            if isinstance(second, ApiError) and is_missing(second.message):
                return
            raise Ended(LeftBehind(making.vmid, making.node, error, second.message)) from error

    def writer_of(self, node: str, vmid: int, config: Mapping[str, t.Any], *, is_fresh: bool = True) -> GuestWriter:
        """Return the writer to the VM that config shows. C(is_fresh): it was read right now."""
        return self.lifecycle.writer(vmid, identity_of(config, node), digest=config.get("digest"), is_fresh=is_fresh)


def _is_stub(config: Mapping[str, t.Any]) -> bool:
    """Whether a config is one that a failed restore leaves behind."""
    return config.keys() <= {"memory", "digest"}
