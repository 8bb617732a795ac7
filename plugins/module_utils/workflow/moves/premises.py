# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The assumptions of a plan about the cluster, and which of them no longer hold. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...engine.cache import ClusterState
from ...engine.findings import amount_text
from ...model import Guest, Identity, Snapshot
from ...plans import NodeCourse, Plan


@dataclass(frozen=True, slots=True)
class GuestPremise:
    """What a plan assumes of a guest that it moves. memory is in bytes; identity is the guest itself."""

    name: str
    node: str
    running: bool
    cores: float
    memory: int
    identity: Identity

    @classmethod
    def of(cls, guest: Guest, identity: Identity) -> GuestPremise:
        return cls(guest.name or "", guest.node, guest.running, guest.cores, guest.memory, identity)


@dataclass(frozen=True, slots=True)
class Premises:
    """What a plan assumes: the identity of the cluster, and the guests that it moves, by VMID."""

    cluster: str = ""
    guests: Mapping[int, GuestPremise] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, snapshot: Snapshot) -> Premises:
        moved = {vmid: identity for move in plan.moves for vmid, identity in move.identities.items()}
        guests = {
            guest.vmid: GuestPremise.of(guest, moved[guest.vmid]) for guest in snapshot.guests if guest.vmid in moved
        }
        return cls(snapshot.cluster, dict(sorted(guests.items())))

    @property
    def identities(self) -> dict[int, Identity]:
        """The guests themselves, by VMID."""
        return {vmid: guest.identity for vmid, guest in self.guests.items()}


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left of a plan, what that assumes, and the cluster with the guests that it has moved where they were."""

    plan: Plan
    premises: Premises
    state: ClusterState


def rest_of(plan: Plan, premises: Premises, state: ClusterState) -> Rest:
    """Return what is left of a plan that may have been carried out in part: a guest that stands where one of its moves
    takes it has made its moves up to that one.
    """
    done: set[int] = set()
    for move in plan.moves:
        before = premises.guests[move.vmid]
        nodes = {guest and guest.node for guest in map(state.guests.get, move.vmids)}
        if before.node != move.target and nodes == {move.target}:
            done.update(each.id for each in plan.moves if each.vmid == move.vmid and each.id <= move.id)
    if not done:
        return Rest(plan, premises, state)
    moves = tuple(move for move in plan.moves if move.id not in done)
    left = {vmid for move in moves for vmid in move.vmids}
    guests = {vmid: guest for vmid, guest in premises.guests.items() if vmid in left}
    home = {vmid: premises.guests[vmid].node for move in plan.moves if move.id in done for vmid in move.vmids}
    back = tuple(replace(guest, node=home.get(guest.vmid, guest.node)) for guest in state.guests.values())
    begun = ClusterState(replace(state.snapshot, guests=back))
    return Rest(replace(plan, moves=moves), replace(premises, guests=guests), begun)


def changes_since(plan: Plan, premises: Premises, state: ClusterState) -> list[str]:
    """Return what no longer is as the plan assumes, as sentence parts; nothing when it can be carried out as it stands.

    state is the cluster now, with what others have reserved.
    """
    if premises.cluster and premises.cluster != state.snapshot.cluster:
        return [f"it was made for cluster {premises.cluster}, and this is {state.snapshot.cluster}"]
    return [*_lost_nodes(plan, state), *_changed_guests(premises, state), *_lost_room(plan, state)]


def _lost_nodes(plan: Plan, state: ClusterState) -> Iterator[str]:
    """Yield the nodes of the plan that are missing or offline now, as sentence parts."""
    for name in sorted({node for move in plan.moves for node in (move.source, move.target)}):
        info = state.by_name.get(name)
        if info is None:
            yield f"node {name} is gone"
        elif not info.node.online:
            yield f"node {name} is offline"
        elif info.node.maintenance and any(move.target == name for move in plan.moves):
            yield f"node {name} is in maintenance"


def _changed_guests(premises: Premises, state: ClusterState) -> Iterator[str]:
    """Yield how guests differ from those for which the plan was made, as sentence parts."""
    for vmid, before in sorted(premises.guests.items()):
        guest = state.guests.get(vmid)
        if guest is None:
            yield f"guest {vmid} ({before.name}) is gone"
            continue
        now = GuestPremise.of(guest, before.identity)
        if now.name != before.name:
            yield f'guest {vmid} is called "{now.name}" instead of "{before.name}"'
        if now.node != before.node:
            yield f"guest {vmid} ({before.name}) is on {now.node} instead of {before.node}"
        if now.running != before.running:
            yield f"guest {vmid} ({before.name}) was {'started' if now.running else 'stopped'}"
        if (now.cores, now.memory) != (before.cores, before.memory):
            sizes = f"{amount_text('cpu', now.cores)} and {amount_text('memory', now.memory)}"
            yield f"guest {vmid} ({before.name}) has {sizes} now"


def _lost_room(plan: Plan, state: ClusterState) -> Iterator[str]:
    """Yield the nodes on which others have taken capacity that the plan needs at its peak."""
    for name, course in sorted(plan.nodes.items()):
        info = state.by_name.get(name)
        if info is None or not any(move.target == name for move in plan.moves):
            continue
        yield from _shortages(name, course, info.cores, info.memory)


def _shortages(name: str, course: NodeCourse, cores: float, memory: int) -> Iterator[str]:
    more = {
        "cpu": (course.peak.cores - course.before.cores, cores, course.before.cores, course.allocatable.cores),
        "memory": (course.peak.memory - course.before.memory, memory, course.before.memory, course.allocatable.memory),
    }
    for resource, (wanted, now, before, allocatable) in more.items():
        # The plan takes into account that a node was too full already.
        if now > before and now + wanted > allocatable:
            left, takes = amount_text(resource, max(allocatable - now, 0)), amount_text(resource, wanted)
            yield f"node {name} has {left} left, and the plan takes {takes}"
