# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for VMs that others are creating, and finds those whose creation no process continues.

A task that is killed, or a node that crashes, leaves a VM locked by its creation forever. A user with Sys.Audit on the
node finds that out from the node's list of running tasks; other users see only their own tasks there.
"""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..engine.texts import join_words
from ..errors import PermissionDenied, TaskTimeout
from ..model import Guest
from .api.failures import UNREADABLE
from .api.reader import Reader
from .inventory.freshness import BEING_MADE, CLONING, RESTORING, read_config
from .outcomes import is_killed
from .tasks import Poller, task_rows

# A task is in the list some moments after it was begun.
_CERTAIN_AFTER = 3.0

# More tasks than run on one node at a time; by default the list ends after 50.
_TASKS = 1000


class BeingCreated(TaskTimeout):
    """Others are creating VMs, and what to do depends on these.

    Attributes:
        guests: such VMs.
    """

    def __init__(self, message: str, guests: Collection[Guest]) -> None:
        super().__init__(message, vmids=sorted(guest.vmid for guest in guests))
        self.guests = guests


@dataclass(eq=False)
class Creations:
    """Polls whether VMs are still being created. May be used from many threads.

    Attributes:
        timeout: seconds to wait in total, from the first call of wait on.
        abandoned: the VMIDs of VMs that are locked by their creation although no task is creating them.
    """

    reader: Reader
    timeout: float
    poller: Poller = field(default_factory=Poller)
    abandoned: set[int] = field(default_factory=set)
    _deadline: float | None = None
    _idle_since: dict[int, float] = field(default_factory=dict)
    _unseen: set[str] = field(default_factory=set)

    def wait(self, guests: Collection[Guest]) -> bool:
        """Wait until one of the VMs has its config, no longer exists or is found to be abandoned. Returns False when
        the time is over or guests is empty.
        """
        now = self.poller.clock()
        if self._deadline is None:
            self._deadline = now + self.timeout
        if not guests or now >= self._deadline:
            return False
        return bool(self.poller.until(lambda: self._check_all(guests) or None, self._deadline - now))

    def doubt(self, guests: Collection[Guest]) -> str:
        """Return the end of a message about VMs that are still locked: that this user cannot see whether tasks are
        creating them. Empty if the user can.
        """
        unseen = [guest for guest in guests if guest.node in self._unseen]
        if not unseen:
            return ""
        privileges = join_words(sorted({f"Sys.Audit on /nodes/{guest.node}" for guest in unseen}))
        removal = f"'{removal_of(unseen[0].vmid)}' on {unseen[0].node}"
        return f"; without {privileges}, you cannot see whether a task creates it: if none does, run {removal} as root"

    def _check_all(self, guests: Collection[Guest]) -> bool:
        """Check all of the VMs, and return whether the creation of one of them is over."""
        # Each check records since when no task has been creating the VM.
        over = [guest for guest in guests if self._check(guest)]
        return bool(over)

    def _check(self, guest: Guest) -> bool:
        """Whether the creation of a VM is over. Note the VM if it is abandoned."""
        if not self._ask_if_unwritten(guest):
            return True
        if self._look_for_its_task(guest):
            self._idle_since.pop(guest.vmid, None)
            return False
        now = self.poller.clock()
        if now - self._idle_since.setdefault(guest.vmid, now) < _CERTAIN_AFTER:
            return False
        self.abandoned.add(guest.vmid)
        return True

    def _ask_if_unwritten(self, guest: Guest) -> bool:
        """Whether the VM's config is not written yet, as far as is known."""
        try:
            config = read_config(self.reader, guest.node, guest.vmid)
        except UNREADABLE:
            return True
        return config is not None and ask_if_unwritten(self.reader, guest.node, guest.vmid, config)

    def _look_for_its_task(self, guest: Guest) -> bool:
        """Whether a task may be creating the VM. Note the node if this user cannot see its tasks.

        The task runs on the VM's node. A clone for another node is on the node of its template until the task moves it.
        """
        try:
            tasks = self.reader.get(f"/nodes/{guest.node}/tasks", source="active", limit=_TASKS)
            running = [task for task in tasks if "endtime" not in task]
            # The task of a clone names its source.
            if any(task.get("type") in CLONING or task.get("id") == str(guest.vmid) for task in running):
                return True
            # A user who may not read this does not see the tasks of others.
            self.reader.get(f"/nodes/{guest.node}/status")
        except PermissionDenied:
            self._unseen.add(guest.node)
            return not self._ask_if_killed(guest)
        except UNREADABLE:
            return True
        return False

    def _ask_if_killed(self, guest: Guest) -> bool:
        """Whether the VM was created by a task of this user that was killed."""
        newest = max(task_rows(self.reader, guest.node, guest.vmid), key=lambda row: row["starttime"], default={})
        return newest.get("type") in ("qmcreate", RESTORING) and is_killed(str(newest.get("status")))


def ask_if_unwritten(reader: Reader, node: str, vmid: int, config: Mapping[str, t.Any]) -> bool:
    """Whether a VM's config is not written yet: it has the lock of its creation, or it is empty, without a lock, while
    a backup is restored. Raises ConnectionFailed.
    """
    if config.get("lock") in BEING_MADE:
        return True
    tasks = [] if "name" in config else task_rows(reader, node, vmid)
    return any(task.get("type") == RESTORING and "endtime" not in task for task in tasks)


def removal_of(vmid: int) -> str:
    """Return the command that removes a VM locked by its creation, with the disks that its config does not name."""
    return f"qm destroy {vmid} --skiplock --destroy-unreferenced-disks"
