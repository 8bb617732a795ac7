# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done with an existing VM: change, resize, start, stop, convert to a template, delete.

Each write is sent by a GuestWriter, which proves that the VMID still belongs to that VM. Before a write is sent a
second time, the VM is read to see whether the first one was carried out.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Mapping
from functools import partial

from ..errors import (
    ApiError,
    ConnectionFailed,
    NotTheSameGuest,
    PermissionDenied,
    TaskFailed,
    TaskTimeout,
)
from ..model import HAIntent, Identity
from .api.session import Session
from .finder import TRIES, Config, Finder
from .ha_membership import join_ha
from .options.drives import drive_size, kind_of, media_of
from .outcomes import allocations, is_missing, is_running_already
from .tasks import QuorumGuard, TaskFollower, TaskResult, Upid, no_result, send_write
from .writes import GuestWriter, check_nothing

# Seconds within which the effect of a write shows in the API. After a lost answer, no effect until then means that the
# write was not carried out.
LOOK_FOR = 6.0
# Nodes report the names of their guests every ten seconds.
NAME_SHOWN_WITHIN = 30.0

R = t.TypeVar("R")


def no_fence() -> None:
    """Raise nothing: the fence for writes without a reservation."""


def check_unprotected(vmid: int, config: Config) -> None:
    """Raise ApiError if the VM is protected against deletion."""
    if config.get("protection"):
        raise ApiError(f"VM {vmid} is protected against deletion: set protection to false first", vmid=vmid)


class Lifecycle:
    """Changes existing VMs and waits until each change is complete. May be used from many threads, but not for the same
    VM at once.

    A VM that turns out to be on another node is started, stopped, paused, resumed or suspended there. When the answer
    of a write is lost, or Proxmox could not get a lock in time, the VM is read before the write is sent again. After
    three attempts the error is raised.

    All methods raise NotTheSameGuest if the VMID belongs to another guest by now.

    Attributes:
        finder: finds the VMs that have moved.
        quorum: whether the cluster has it, as far as known.
    """

    def __init__(self, session: Session, tasks: TaskFollower) -> None:
        self._session = session
        self._tasks = tasks
        self._poller = tasks.poller
        self.finder = Finder(session, tasks.poller)
        self.quorum = QuorumGuard(session, tasks.poller.clock)
        self._waiting: dict[str, set[int]] = {}

    def writer(
        self,
        vmid: int,
        identity: Identity,
        *,
        digest: str | None = None,
        check: Callable[[Config], None] = check_nothing,
        is_fresh: bool = False,
    ) -> GuestWriter:
        """Return the writer to the VM with this identity. The options are those of GuestWriter."""
        return GuestWriter(self._session, self._tasks, vmid, identity, digest=digest, check=check, is_fresh=is_fresh)

    def update(
        self,
        node: str,
        guest: GuestWriter,
        changes: Mapping[str, t.Any],
        resizes: Mapping[str, int] | None = None,
        moves: Mapping[str, str] | None = None,
        destroyed: Collection[str] = (),
    ) -> tuple[str, ...]:
        """Move the disks in moves (slot to storage), grow those in resizes (slot to bytes), set changes in the config
        (C(delete) lists the keys to unset), then destroy drives with their volumes. Returns the logs of moves that
        ended with warnings.

        Disks that changes import are grown last; one that is large enough is not changed.

        Raises:
            ApiError, PermissionDenied: a change was refused. Earlier moves and resizes are in effect, and so may be CD
                drives that were sent ahead of a boot order; the other changes are not.
            NoQuorum: nothing was sent.
            TaskFailed, TaskTimeout: a move, a resize or a change that allocates volumes failed.
        """
        if resizes or moves or destroyed or allocations(changes):
            self.quorum.require(f"VM {guest.vmid} was not changed")
        told: list[str] = []
        for slot, storage in (moves or {}).items():
            told.extend(self._move_disk(node, guest, slot, storage))
        if moves and changes.keys() & moves.keys():
            changes = on_present_volumes(changes, moves, guest.look(node))
        imported = {slot: size for slot, size in (resizes or {}).items() if slot in allocations(changes)}
        for slot, size in (resizes or {}).items():
            if slot not in imported:
                self._resize(node, guest, slot, size)
        left = dict(changes)
        media = {slot: left.pop(slot) for slot in media_of(changes)} if "boot" in changes else {}

        def forget_what_was_made() -> None:
            for slot in allocations(left) & set(guest.look(node)):
                del left[slot]

        if media:
            # Proxmox appends new CD drives to the boot order, even to one in the same request: send them first.
            self._send(lambda: guest.configure(node, media))
        if left:
            self._send(lambda: _change(node, guest, left), forget_what_was_made)
        config = guest.look(node) if imported else {}
        for slot, size in imported.items():
            if size > drive_size(slot, str(config.get(slot, ""))):
                self._resize(node, guest, slot, size)
        if destroyed:
            # In a task: removing a large volume takes longer than a response may take.
            removal = {"delete": ",".join(destroyed), "force": 1}
            self._send(lambda: guest.configure_by_task(node, removal))
        return tuple(told)

    def wait_for_name(self, vmid: int, name: str) -> bool:
        """Wait until the cluster's list shows the new name of a VM, which takes up to ten seconds, and return whether
        it does.
        """

        def shows_it() -> bool | None:
            return (self.finder.row(vmid) or {}).get("name") == name or None

        return self._poller.until(shows_it, NAME_SHOWN_WITHIN) is not None

    def regenerate_cloud_init(self, node: str, guest: GuestWriter) -> None:
        """Let a running VM find its present cloud-init data when the guest reboots: Proxmox VE writes them to the drive
        only when it starts the VM itself.
        """
        self.finder.call_where_it_is(
            node, guest.vmid, lambda node: self._send(lambda: guest.regenerate_cloud_init(node))
        )

    def start(self, node: str, guest: GuestWriter) -> str:
        """Start the VM and return the node on which it runs: HA may have moved it. A running VM is not an error.

        Only the end of the start task shows that the VM runs: a VM whose start fails is C(running) for a moment. So
        after a lost answer the start is sent again without reading the VM; Proxmox carries it out after the first one.

        Raises TaskFailed, TaskTimeout, ApiError, PermissionDenied.
        """

        def start_on(node: str) -> str:
            try:
                # Unlike a stop of a stopped VM, a start of a running one is a task that fails.
                upid = self._send(lambda: guest.command(node, "start", {}))
            except TaskFailed as error:
                if not is_running_already(error.message, guest.vmid):
                    raise
                return node
            return self._after_ha(node, guest.vmid, "running", upid)

        return self.finder.call_where_it_is(node, guest.vmid, start_on)

    def stop(self, node: str, guest: GuestWriter) -> str:
        """Stop the VM at once, like a power cut, and return its node. A stopped VM is not an error."""
        return self._switch_off(node, guest, "stop", {})

    def shutdown(self, node: str, guest: GuestWriter, *, seconds: int | None = None, force: bool = False) -> str:
        """Ask the guest to shut down within seconds; with force, stop it after that time. Returns its node."""
        return self._switch_off(node, guest, "shutdown", {"timeout": seconds, "forceStop": force})

    def pause(self, node: str, guest: GuestWriter) -> str:
        """Stop the VM's CPUs until it is resumed, and return its node. A paused VM is not an error."""
        return self._command(node, guest, "suspend", {}, lambda now: now.get("qmpstatus") == "paused")

    def resume(self, node: str, guest: GuestWriter) -> str:
        """Let a paused VM continue, and return its node. A VM that is not paused is not an error."""
        return self._command(node, guest, "resume", {}, lambda now: now.get("qmpstatus") == "running")

    def suspend(self, node: str, guest: GuestWriter) -> str:
        """Write the VM's memory to disk, stop the VM, and return its node. Its next start continues from there."""
        self.quorum.require(f"VM {guest.vmid} was not suspended")
        # A hibernated VM is stopped, and has this lock until its next start.
        return self._command(node, guest, "suspend", {"todisk": True}, lambda now: now.get("lock") == "suspended")

    def convert_to_template(self, node: str, guest: GuestWriter) -> None:
        """Convert the stopped VM to a template. A VM that is a template already is not an error."""

        def done() -> bool | None:
            return True if guest.look(node).get("template") else None

        try:
            self._send(lambda: guest.convert_to_template(node), done)
        except (ApiError, TaskFailed):
            if done() is None:
                raise

    def move_to_pool(self, node: str, guest: GuestWriter, pool: str) -> None:
        """Put the VM into a pool and remove it from its present one. Raises ApiError, PermissionDenied."""
        try:
            self.finder.call_where_it_is(
                node, guest.vmid, lambda node: self._send(lambda: guest.move_to_pool(node, pool))
            )
        except ApiError as error:
            # The first answer was lost, and this is the answer to the second request.
            if "already a pool member" not in error.message:
                raise

    def join_ha(self, node: str, guest: GuestWriter, intent: HAIntent) -> None:
        """Add the VM as an HA resource, as ha.join_ha does, wherever the HA manager moves it meanwhile."""
        self.finder.call_where_it_is(
            node,
            guest.vmid,
            lambda node: join_ha(self._session, self._poller, node, guest, intent, self._waiting),
        )

    def delete(self, node: str, guest: GuestWriter) -> bool:
        """Stop the VM if it runs, delete it with its disks, and remove it from HA, backup and replication jobs.

        Returns False when there was no such VM. Another VM that gets the VMID meanwhile is neither stopped nor deleted.

        Raises:
            ApiError: it is protected, or its node does not find it although the cluster shows it there.
            NoQuorum: the cluster has no quorum; Proxmox would remove the disks and then fail to remove the VM.
            TaskFailed: it is locked, is a template with linked clones, or a disk could not be removed.
        """
        vmid = guest.vmid
        found = self.finder.locate(node, guest)
        if found is None:
            return False
        node, config = found
        check_unprotected(vmid, config)
        self.quorum.require(f"VM {vmid} was neither stopped nor deleted")
        current = self.finder.read_status(node, vmid)
        # Proxmox refuses to delete a VM that runs.
        if current is not None and current["status"] != "stopped":
            node = self.stop(node, guest)

        def gone() -> bool | None:
            return self._poller.until(lambda: True if self.finder.node_of(node, guest) is None else None, LOOK_FOR)

        for tries_left in reversed(range(TRIES)):
            try:
                # Without purge, Proxmox refuses to delete an HA resource.
                self._send(partial(guest.delete, node, purge=1), gone)
                break
            except NotTheSameGuest:
                # It is gone: it was there a moment ago, and another VM has its VMID.
                break
            except (ApiError, TaskFailed) as error:
                # It was migrated meanwhile, or another user or process has deleted it.
                if not (tries_left and is_missing(error.message)):
                    raise
                now = self.finder.node_of(node, guest)
                if now is None:
                    break
                node = now
        return True

    def _move_disk(self, node: str, guest: GuestWriter, slot: str, storage: str) -> tuple[str, ...]:
        """Copy a disk to a storage, also while the VM runs, and delete the original. Returns the task's log if it ended
        with warnings. A disk that is already on the storage is not moved.
        """

        def done() -> TaskResult | None:
            moved = str(guest.look(node).get(slot, "")).startswith(f"{storage}:")
            return TaskResult("", "") if moved else None

        try:
            result = self._send(lambda: guest.move_disk(node, slot, storage), done)
        except (ApiError, TaskFailed):
            if done() is None:
                raise
            return ()
        return result.log if result.warnings else ()

    def _resize(self, node: str, guest: GuestWriter, slot: str, size: int) -> None:
        # The size is absolute, so the request may be sent twice.
        self._send(lambda: guest.resize(node, slot, size))

    def _switch_off(self, node: str, guest: GuestWriter, command: str, params: Mapping[str, t.Any]) -> str:
        def is_stopped(now: Mapping[str, t.Any]) -> bool:
            return str(now["status"]) == "stopped"

        self.quorum.require(f"VM {guest.vmid} was not stopped")
        return self._command(node, guest, command, params, is_stopped, by_ha="stopped")

    def _command(
        self,
        node: str,
        guest: GuestWriter,
        command: str,
        params: Mapping[str, t.Any],
        reached: Callable[[Mapping[str, t.Any]], bool],
        by_ha: str | None = None,
    ) -> str:
        """Send a command, follow its task, and return the VM's node. reached takes the VM's current status and tells
        whether the command was carried out. by_ha: the status to which the HA manager brings its resources instead.
        """

        def act(node: str) -> str:
            def done() -> str | None:
                current = self.finder.read_status(node, guest.vmid)
                return "" if current is not None and reached(current) else None

            try:
                upid = self._send(lambda: guest.command(node, command, params), done)
            except (ApiError, TaskFailed):
                if done() is None:
                    raise
                return node
            return node if by_ha is None else self._after_ha(node, guest.vmid, by_ha, upid)

        return self.finder.call_where_it_is(node, guest.vmid, act)

    def _after_ha(self, node: str, vmid: int, wanted: str, upid: str) -> str:
        """Return the VM's node. For an HA resource, Proxmox only passes the request to the HA manager, which acts many
        seconds later, perhaps on another node: wait for that.
        """
        if not upid or not Upid.parse(upid).type.startswith("ha"):
            return node

        def look() -> str | None:
            nonlocal node
            try:
                current = self.finder.read_status(node, vmid)
                if current is None:
                    row = self.finder.row(vmid)
                    node = row["node"] if row else node
                    return None
                state = (current.get("ha") or {}).get("state")
                done = current.get("status") == wanted and (wanted != "running" or self._ask_if_started_by_ha(vmid))
            except ConnectionFailed:
                return None
            if state == "error":
                message = (
                    f"HA has given up on VM {vmid} (state error, task {upid}); see the VM's tasks for the cause, "
                    "then request the HA state disabled to clear the error"
                )
                raise TaskFailed(message, upid=upid, node=node)
            return node if done else None

        reached = self._poller.until(look, self._tasks.timeout)
        if reached is None:
            message = f"HA has not brought VM {vmid} to {wanted} within {self._tasks.timeout:g} s (task {upid})"
            raise TaskTimeout(message, upid=upid, node=node)
        return reached

    def _ask_if_started_by_ha(self, vmid: int) -> bool:
        """Whether the HA manager reports the VM as started. Its own status does not prove that: a VM whose start fails
        is C(running) for a moment.

        True for a user without Sys.Audit on C(/), who cannot read it: then the VM's own status has to do.
        """
        try:
            rows = self._session.get("/cluster/ha/status/current")
        except PermissionDenied:
            return True
        return any(row.get("sid") == f"vm:{vmid}" and row.get("state") == "started" for row in rows)

    def _send(self, send: Callable[[], R], done: Callable[[], R | None] = no_result) -> R:
        return send_write(send, self._poller.sleep, done)


def _change(node: str, guest: GuestWriter, changes: Mapping[str, t.Any]) -> None:
    if allocations(changes):
        guest.configure_by_task(node, changes)
    elif changes:
        guest.configure(node, changes)


def on_present_volumes(
    changes: Mapping[str, t.Any], slots: Collection[str], config: Mapping[str, t.Any]
) -> dict[str, t.Any]:
    """Return changes in which the disks in slots refer to the volumes that config has for them now."""
    changed = dict(changes)
    for slot in changes.keys() & set(slots):
        kind = kind_of(slot)
        changed[slot] = kind.format({**kind.read(str(changes[slot])), "file": kind.read(str(config[slot]))["file"]})
    return changed
