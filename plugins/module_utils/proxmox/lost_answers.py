# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds out, after a lost answer, whether the request made the VM."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import ApiError, ConnectionFailed, PermissionDenied, TaskTimeout
from .api.failures import AnswerLost, VMIDTaken
from .api.session import Session
from .creations import ask_if_unwritten
from .finder import Finder
from .inventory.freshness import BEING_MADE, read_config
from .lifecycle import LOOK_FOR
from .making import Ended, Making, Unknown
from .tasks import TaskFollower, TaskResult, begun_since, task_rows


@dataclass(frozen=True, slots=True)
class LostAnswers:
    """Looks for VMs whose requests got no answer. May be used from many threads."""

    session: Session
    tasks: TaskFollower
    finder: Finder

    def look_for(self, making: Making) -> TaskResult | None:
        """Look for the VM after a lost answer: return the result if it was made, None if there is no such guest.

        Raises VMIDTaken when another guest has the VMID, TaskFailed when the VM's task failed, and Ended when it cannot
        be determined whether the VM was made.
        """
        shown = False
        try:
            shown = self.tasks.poller.until(lambda: self.finder.row(making.vmid), LOOK_FOR) is not None
            return self._wait_for(making) if shown else None
        except TaskTimeout as error:
            raise Ended(Unknown(making.vmid, making.node, error, begun=shown)) from error
        except (ApiError, ConnectionFailed, PermissionDenied) as error:
            text = f"cannot determine whether VM {making.vmid} was created on node {making.node}: {error.message}"
            lost = AnswerLost(text, vmid=making.vmid, node=making.node)
            raise Ended(Unknown(making.vmid, making.node, lost, begun=False)) from error

    def _wait_for(self, making: Making) -> TaskResult | None:
        """Wait until the guest with our VMID has its complete config, and return our task's result if it is our VM."""
        upid = self._own_task(making)
        if upid:
            making.note(task=upid)
        result = self.tasks.wait(upid) if upid else TaskResult("", making.node)

        def complete() -> Mapping[str, t.Any] | None:
            row = self.finder.row(making.vmid)
            if row is None or row["type"] != "qemu":
                # A container may have taken the VMID: containers and VMs share the numbers.
                return row or {}
            # A clone for another node is first made on the node of its template.
            node, vmid = row["node"], making.vmid
            config = read_config(self.session, node, vmid) or {}
            unwritten = row.get("lock") in BEING_MADE or ask_if_unwritten(self.session, node, vmid, config)
            return None if unwritten else {**row, **config}

        guest = self.tasks.poller.until(complete, self.tasks.timeout)
        if guest is None:
            message = f"VM {making.vmid} is still being created for node {making.node} after {self.tasks.timeout:g} s"
            raise TaskTimeout(message, upid=upid, node=making.node)
        if not guest:
            return None
        if guest["type"] == "qemu" and guest.get("name", "") == making.name:
            return result
        raise VMIDTaken(f"VMID {making.vmid} is taken by another guest on node {guest['node']}", making.vmid)

    def _own_task(self, making: Making) -> str | None:
        """Return the task that makes the VM, if it can be identified."""
        if making.since is None:
            return None
        rows = task_rows(self.session, making.task_node, making.task_id)
        new = [task for task in begun_since(rows, {making.task_type}, making.since) if task.user == self.session.user]
        # A clone's task names only its source, and other clones of it may have been made at the same time.
        if not new or (making.task_type != "qmcreate" and len(new) > 1):
            return None
        return max(new, key=lambda task: task.started).text
