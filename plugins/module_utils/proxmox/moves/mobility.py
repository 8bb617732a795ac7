# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads how guests can be moved: from Proxmox's precondition check, and from their configs for what it omits."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ...errors import ApiError, CollectionError, ConnectionFailed, PermissionDenied
from ...model import Guest, Snapshot
from ...plans import Mobility
from ..api.failures import NotImplementedHere
from ..api.reader import Reader, in_parallel
from ..identity import identity_of
from ..inventory.rows import Row, read_rows
from ..outcomes import is_missing, lock_named
from .mobility_ha import Surroundings
from .mobility_rules import Permitted, container_mobility, offline_cause, storage_of, stuck, vm_mobility

Answer = Mapping[str, t.Any]


LOCKED, GONE = "it is locked", "it is no longer on"
PASSING = (LOCKED, GONE)
"""How the reasons begin that may be over a moment later: others work on the guest, or have just moved it."""


class Locked(CollectionError):
    """A guest is locked; lock is the type of the lock, for example C(backup)."""

    def __init__(self, lock: str) -> None:
        super().__init__(f"{LOCKED} ({lock})")
        self.lock = lock


def read_mobility(
    reader: Reader, snapshot: Snapshot, vmids: Iterable[int], permitted: Permitted
) -> dict[int, Mobility]:
    """Return how each of these guests can be moved. Takes two calls per guest, and one for all replication jobs.

    A guest for which that cannot be determined is stuck, with the reason. The nodes' bridges and the HA rules are
    checked only if snapshot contains them. Guests that it does not contain are left out.
    """
    guests = {guest.vmid: guest for guest in snapshot.guests}
    surroundings = Surroundings.of(snapshot, read_replication(reader))
    wanted = [guests[vmid] for vmid in vmids if vmid in guests]
    contents = _Contents(reader)

    def read(vmid: int) -> Mobility:
        guest = guests[vmid]
        why = offline_cause(guest, surroundings)
        if why is not None:
            return stuck(*why)
        try:
            check, config = _inspect(reader, guest)
            if guest.kind == "lxc":
                mobility = container_mobility(guest, check, config, surroundings, permitted)
            else:
                check = contents.with_sizes(guest, check)
                linked = contents.cloned_volumes(guest, check) if guest.template else frozenset()
                mobility = vm_mobility(guest, check, config, surroundings, permitted, linked)
            return replace(mobility, identity=identity_of(config, guest.node, guest.kind))
        except Locked as locked:
            return stuck(locked.message, CURES_OF_LOCKS.get(locked.lock, OTHER_LOCK))
        except PermissionDenied:
            return stuck("this user may not move it", f"grant VM.Migrate and VM.Audit on /vms/{vmid}")
        except ConnectionFailed:
            return stuck(f"its node {guest.node} does not answer", "bring the node back")
        except ApiError as error:
            if is_missing(error.message):
                return stuck(f"{GONE} {guest.node}", "run again")
            return stuck(error.message, "see the message of Proxmox VE")

    return in_parallel(read, [guest.vmid for guest in wanted])


def _inspect(reader: Reader, guest: Guest) -> tuple[Answer, Answer]:
    """Return what Proxmox reports about a guest's next move, empty if this release has no such check, and its config.

    Raises Locked when the guest is locked, and ApiError, ConnectionFailed and PermissionDenied as the API answers.
    """
    base = f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}"
    try:
        check: Answer = reader.get(f"{base}/migrate")
    except NotImplementedHere:
        # Before 9, Proxmox VE has no such check for containers.
        check = {}
    except ApiError as error:
        # Proxmox VE answers 500 for a locked guest.
        lock = lock_named(error.message)
        if lock is None:
            raise
        raise Locked(lock) from error
    config: Answer = reader.get(f"{base}/config")
    if config.get("lock"):
        raise Locked(str(config["lock"]))
    return check, config


_UNLOCK = "where none runs, 'qm unlock' or 'pct unlock' as root on its node"
OTHER_LOCK = f"wait for the task that holds the lock; {_UNLOCK}"
CURES_OF_LOCKS: Mapping[str, str] = {
    "backup": f"wait for the backup to end; {_UNLOCK}",
    "snapshot": f"wait for the snapshot to end; {_UNLOCK}",
    "migrate": f"wait for the migration to end; {_UNLOCK}",
    "suspended": "start it, or stop it for good: it is hibernated",
    "suspending": "wait until it is hibernated, then start it or stop it for good",
}


def read_replication(reader: Reader) -> dict[int, frozenset[str]]:
    """Return the nodes to which each replicated guest is copied, by VMID; empty if that cannot be read.

    Proxmox VE also replicates for a move if the job is disabled, and refuses moves if it is to be removed.
    """
    targets: dict[int, set[str]] = {}
    for job in read_rows(reader, "/cluster/replication") or ():
        if job.get("guest") is not None:
            known = targets.setdefault(job["guest"], set())
            known |= set() if job.get("remove_job") else {str(job.get("target"))}
    return {vmid: frozenset(nodes) for vmid, nodes in targets.items()}


@dataclass(frozen=True, slots=True)
class _Contents:
    """Reads from storages what Proxmox's check omits about volumes: one call per storage and guest, where needed."""

    reader: Reader

    def with_sizes(self, guest: Guest, check: Answer) -> Answer:
        """Return the check with the sizes of volumes that the guest does not use."""
        rows = [dict(row) for row in check.get("local_disks") or ()]
        unknown = [row for row in rows if row.get("is_unused") and "size" not in row]
        listed = self._rows(guest, {storage_of(str(row["volid"])) for row in unknown}, vmid=guest.vmid)
        sizes = {str(row.get("volid")): int(row.get("size") or 0) for row in listed}
        for row in unknown:
            row["size"] = sizes.get(str(row["volid"]), 0)
        return {**check, "local_disks": rows}

    def cloned_volumes(self, guest: Guest, check: Answer) -> frozenset[str]:
        """Return the local volumes of a template from which volumes of other guests are cloned."""
        volumes = {str(row["volid"]) for row in check.get("local_disks") or () if row.get("volid")}
        rows = self._rows(guest, set(map(storage_of, volumes)), content="images")
        # The parent is a volume's name, in some storages followed by the cloned snapshot.
        bases = {str(row["parent"]).rpartition("/")[2].partition("@")[0] for row in rows if row.get("parent")}
        return frozenset(volume for volume in volumes if re.split("[:/]", volume)[-1] in bases)

    def _rows(self, guest: Guest, storages: Iterable[str], **query: t.Any) -> list[Row]:
        found: list[Row] = []
        for storage in sorted(storages):
            found += read_rows(self.reader, f"/nodes/{guest.node}/storage/{storage}/content", **query) or ()
        return found
