# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What forbids the maintenance of nodes, apart from guests that cannot be moved: health, quorum, Ceph, rights."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from ...proxmox.api.failures import UNREADABLE
from ...proxmox.api.reader import Reader
from ...proxmox.ceph import monitors_lost, pools_that_stop
from ...proxmox.hidden_guests import Held
from ...proxmox.inventory.rows import Row, mark_of
from ...proxmox.moves.tour_record import POOL
from ...proxmox.node_health import NodeHealth
from ...proxmox.quorum import Quorum


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a tour is refused.

    Attributes:
        node: the node that it concerns; empty for the whole cluster.
        name: what the option accept calls it; empty if it cannot be accepted.
        why, cure: the reason and the remedy, as sentence parts.
    """

    node: str
    name: str
    why: str
    cure: str


def health_obstacles(found: Iterable[NodeHealth]) -> Iterator[Obstacle]:
    """Yield the problems of nodes; one that all of them have once."""
    told: set[tuple[str, str]] = set()
    for node in found:
        for problem in node.problems:
            shared = problem.name.partition(":")[0] in ("ceph", "quorum")
            if not shared or (problem.name, problem.text) not in told:
                told.add((problem.name, problem.text))
                cure = f"correct that, or add {problem.name} to accept"
                yield Obstacle("" if shared else node.name, problem.name, problem.text, cure)


def quorum_obstacles(quorum: Quorum, due: Iterable[str], accept: Collection[str]) -> Iterator[Obstacle]:
    """Yield the nodes whose absence would cost the cluster its quorum."""
    for name in due if "quorum" not in accept else ():
        why = quorum.objection({name})
        if why:
            cure = "bring the nodes back that are offline, add a QDevice, or add quorum to accept"
            yield Obstacle(name, "quorum", why, cure)


def ceph_obstacles(reader: Reader, due: Collection[str], accept: Collection[str]) -> Iterator[Obstacle]:
    """Yield what Ceph would stop while one node is away. Two requests. What cannot be read is no obstacle."""
    if "ceph" in accept or not due:
        return
    try:
        pools, monitors = pools_that_stop(reader, min(due), 1), monitors_lost(reader, due)
    except UNREADABLE:
        return
    for text in pools if "ceph:pool" not in accept else ():
        cure = "give the pool another copy, or add ceph:pool to accept"
        yield Obstacle("", "ceph:pool", f"Ceph {text}, so that guests on it stop while a node is away", cure)
    for name in monitors if "ceph:monitor" not in accept else ():
        why = "without its monitor, those of Ceph have no majority"
        yield Obstacle(name, "ceph:monitor", why, "add a monitor, or add ceph:monitor to accept")


def backup_obstacles(reader: Reader, hours: float, now: float, accept: Collection[str]) -> Iterator[Obstacle]:
    """Yield the backup jobs that begin within so many hours: a guest that is backed up cannot be moved or shut down.

    One request, which needs Sys.Audit on C(/).
    """
    rows: list[Row] = reader.get("/cluster/backup")
    for row in rows:
        name, begins = f"backup:{row.get('id')}", float(row.get("next-run") or 0)
        if not now < begins <= now + hours * 3600 or {name, "backup"} & set(accept):
            continue
        minutes = round((begins - now) / 60)
        why = f"backup job {row.get('id')} begins in {minutes} minutes"
        yield Obstacle("", name, why, f"choose another time, disable the job, or add {name} to accept")


def right_obstacles(
    held: Held, due: Collection[str], *, sets_options: bool, asks_agents: bool, shuts_down: Iterable[int]
) -> Iterator[Obstacle]:
    """Yield the rights that the user lacks. sets_options: whether the tour changes settings of the whole cluster.
    asks_agents: whether it asks guest agents.
    """
    wanted = [
        ("Pool.Allocate", f"/pool/{POOL}"),
        *(("Pool.Allocate", f"/pool/{mark_of(name)}") for name in sorted(due)),
    ]
    wanted += [("Sys.Modify", "/")] if sets_options else []
    wanted += [("VM.PowerMgmt", f"/vms/{vmid}") for vmid in sorted(shuts_down)]
    # Before Proxmox VE 9, it is VM.Monitor.
    wanted += [("VM.GuestAgent.Audit", "/vms")] if asks_agents and not is_granted(held, "VM.Monitor", "/vms") else []
    yield from missing_rights(held, wanted)


def missing_rights(held: Held, wanted: Iterable[tuple[str, str]]) -> Iterator[Obstacle]:
    """Yield those of these privileges, each on a path, that the user lacks."""
    for privilege, path in wanted:
        if not is_granted(held, privilege, path):
            yield Obstacle("", "", f"this user lacks {privilege} on {path}", f"grant {privilege} on {path}")


def is_granted(held: Held, privilege: str, path: str) -> bool:
    """Whether the user has a privilege on a path: by an entry for the path, or by one above it that propagates."""
    if path in held:
        return privilege in held[path]
    above = path
    while above != "/":
        above = above.rpartition("/")[0] or "/"
        if above in held:
            return bool(held[above].get(privilege))
    return False
