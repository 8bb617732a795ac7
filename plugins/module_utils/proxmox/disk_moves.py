# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moving the disks of a VM to other storages, on its node."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping

from ..errors import ApiError, TaskFailed
from .api.session import Session
from .options.drives import kind_of
from .tasks import TaskFollower, TaskResult, sent


def move_disk(session: Session, tasks: TaskFollower, path: str, slot: str, storage: str) -> tuple[str, ...]:
    """Copy a disk to a storage, also while the VM runs, and delete the original. Returns the task's log if it ended
    with warnings.

    path is the API path of the VM. A disk that is already on the storage is not moved. Raises ApiError,
    PermissionDenied, TaskFailed or TaskTimeout: the disk is where it was, or the copying continues.
    """

    def move() -> TaskResult:
        return tasks.wait(session.post(f"{path}/move_disk", disk=slot, storage=storage, delete=1))

    def done() -> TaskResult | None:
        config = session.get(f"{path}/config")
        return TaskResult("", "") if str(config.get(slot, "")).startswith(f"{storage}:") else None

    try:
        result = sent(move, tasks.poller.sleep, done)
    except (ApiError, TaskFailed):
        if done() is None:
            raise
        return ()
    return result.log if result.warnings else ()


def on_present_volumes(
    changes: Mapping[str, t.Any], slots: Collection[str], config: Mapping[str, t.Any]
) -> dict[str, t.Any]:
    """Return changes in which the disks in slots refer to the volumes that config has for them now."""
    changed = dict(changes)
    for slot in changes.keys() & set(slots):
        kind = kind_of(slot)
        changed[slot] = kind.format({**kind.read(str(changes[slot])), "file": kind.read(str(config[slot]))["file"]})
    return changed
