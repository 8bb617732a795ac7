# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plain data of plans: the goals, how each guest can be moved, and the plan itself.

Sizes are bytes, times are seconds. Nothing here reads, writes or decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .demand import ALLOCATED, Curve, Usage
from .model import NO_DEMANDS, Decision, Demands, Guest, Identity, Request

LIVE, OFFLINE, RESTART = "live", "offline", "restart"
"""How a guest is moved: while it runs, while it is stopped, or (containers) stopped, moved and started again."""

API, HA = "api", "ha"
"""Who moves a guest: a migration task of Proxmox, or the HA manager."""


# --- what is wanted ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Balance:
    """Even out the nodes: only while their imbalance exceeds threshold, and only by moves that reduce it by at least
    margin.

    Both are fractions (0..1) of what a node may allocate, or of the node if it is balanced by use.

    Attributes:
        by: C(allocated), C(used) or C(pressure); the rest is for the last two.
        percentile: which percentile of the window is the load of a node (0..100).
        window: the seconds of the past that count.
        hold: for how many seconds an imbalance must have lasted.
        above: nodes with a lower load are not relieved.
    """

    threshold: float = 0.15
    margin: float = 0.02
    by: str = ALLOCATED
    percentile: float = 95.0
    window: float = 86_400.0
    hold: float = 3600.0
    above: float = 0.0


@dataclass(frozen=True, slots=True)
class Goals:
    """What a plan shall reach; any of these may be combined.

    Attributes:
        place: new VMs, which are placed together.
        drain: nodes to empty.
        repair: whether to fix rules and limits that are broken now.
        balance: how evenly to load the nodes.
        consolidate: whether to empty as many nodes as possible.
        undo: guests to move back, by VMID, with the node where each was before.
        homes: the storages of their disks there, by VMID and slot, where they are known.
        stays: guests that may stay on nodes to be drained, by VMID.
        resting: guests that were moved a moment ago, by VMID. They are not moved to balance or to consolidate.
        prefer: nodes to which guests of drained nodes go first, before the scores of the profile count.
        usage: what nodes and guests used, to balance by it.
    """

    place: tuple[Request, ...] = ()
    drain: frozenset[str] = frozenset()
    repair: bool = False
    balance: Balance | None = None
    consolidate: bool = False
    undo: Mapping[int, str] = field(default_factory=dict)
    homes: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    stays: frozenset[int] = frozenset()
    resting: frozenset[int] = frozenset()
    prefer: frozenset[str] = frozenset()
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class LocalDisk:
    """A volume that a move has to copy, as the target does not share its storage.

    slot is its key in the guest's config, storage its current storage; content is the content type that the target
    storage must have. home is the node that it left and its storage there, if it is to come back.
    """

    slot: str
    storage: str
    size: int
    content: str = "images"
    home: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Mobility:
    """How one guest can be moved, if at all.

    Attributes:
        how: C(live), C(offline) or C(restart).
        restart_to: the nodes to which it cannot move live, but by being restarted.
        via: C(api) or C(ha).
        disks: the volumes that have to be copied.
        stuck: why it cannot be moved at all, and the remedy; both empty if it can.
        not_to: nodes that Proxmox would refuse as a target or that cannot run it, each with the reason.
        cure: the remedy where not_to keeps it from leaving its node; empty if there is none in particular.
        together: VMIDs of the guests that the HA manager moves along with it.
        cost: bytes that a move sends: memory of a running guest, and local disks.
        replicated_to: the nodes that have a copy of its disks, of which a move sends only what has changed.
        map_storages: whether the storages of its disks can be chosen (the HA manager drops the choice).
        demands: what its config asks of a node.
        identity: the guest itself; None if its config was not read.
    """

    how: str = LIVE
    via: str = API
    disks: tuple[LocalDisk, ...] = ()
    stuck: tuple[str, str] = ("", "")
    not_to: Mapping[str, str] = field(default_factory=dict)
    cure: str = ""
    together: frozenset[int] = frozenset()
    cost: int = 0
    restart_to: frozenset[str] = frozenset()
    replicated_to: frozenset[str] = frozenset()
    map_storages: bool = True
    demands: Demands = NO_DEMANDS
    identity: Identity | None = None

    def how_to(self, node: str) -> str:
        """Return how it moves to a node."""
        return RESTART if node in self.restart_to else self.how


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a plan may go; None is no bound.

    steps bounds the search, in steps and not in seconds, so that the same input gives the same plan on every machine.
    """

    max_moves: int | None = None
    max_bytes: int | None = None
    steps: int = 200_000


# --- the plan ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Move:
    """One guest from one node to another.

    Attributes:
        id: its number in the plan, from 1; creations continue the numbering.
        why: the reason, as a sentence part ("drains pve3", "makes room on pve5 for 140").
        after: ids of the moves and creations that must have ended before it starts.
        cores, memory: vCPUs and bytes that count on both nodes during the move; 0 for a guest that is off.
        storages: the target storage of each disk that is copied, by slot.
        sizes: the bytes that are sent of each of these disks, by slot.
        copied: the bytes that are sent of all disks.
        together: VMIDs that the HA manager moves along; these have no move of their own.
        identities: the guests that move, by VMID. The move is not made if one of them is another guest by then.
        estimate: its estimated duration in seconds.
    """

    id: int
    vmid: int
    name: str
    source: str
    target: str
    why: str
    kind: str = "qemu"
    after: tuple[int, ...] = ()
    how: str = LIVE
    via: str = API
    cores: float = 0.0
    memory: int = 0
    storages: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    copied: int = 0
    together: tuple[int, ...] = ()
    identities: Mapping[int, Identity] = field(default_factory=dict)
    estimate: float = 0.0

    @property
    def vmids(self) -> tuple[int, ...]:
        """The VMIDs of all guests that move."""
        return (self.vmid, *self.together)

    @property
    def copied_to(self) -> dict[tuple[str, str], int]:
        """The bytes that are copied, by storage and node."""
        found = Counter[tuple[str, str]]()
        for slot, storage in self.storages.items():
            found[storage, self.target] += self.sizes.get(slot, 0)
        return dict(found)

    def guest_after(self, guest: Guest) -> Guest:
        """Return the guest as it is after the move."""
        copied = self.copied_to if guest.vmid == self.vmid else {}
        return replace(guest, node=self.target, storage_pending=copied)


@dataclass(frozen=True, slots=True)
class Creation:
    """One new VM of a plan, with what it has to wait for."""

    id: int
    decision: Decision
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Stuck:
    """A guest that should leave its node and cannot, with the reason and the remedy."""

    vmid: int
    name: str
    node: str
    why: str
    cure: str


@dataclass(frozen=True, slots=True)
class Load:
    """What is allocated on a node: cores and bytes of memory, and the number of guests."""

    cores: float
    memory: int
    guests: int

    def plus(self, move: Move, sign: int) -> Load:
        """Return the load with the guests of a move (sign 1), or without them (sign -1)."""
        cores = round(self.cores + sign * move.cores, 6)
        return Load(cores, self.memory + sign * move.memory, self.guests + sign * len(move.vmids))

    def or_more(self, other: Load) -> Load:
        """Return the larger of two loads, in each of the three."""
        return Load(max(self.cores, other.cores), max(self.memory, other.memory), max(self.guests, other.guests))


@dataclass(frozen=True, slots=True)
class NodeCourse:
    """What is allocated on a node before a plan, at the peak and after it, and what the node may allocate."""

    allocatable: Load
    before: Load
    peak: Load
    after: Load

    def then(self, later: NodeCourse) -> NodeCourse:
        """Return the course of two plans, one after the other."""
        return replace(later, before=self.before, peak=self.peak.or_more(later.peak))


@dataclass(frozen=True, slots=True)
class UsedLoad:
    """What a node uses of one resource, as fractions of the node: a percentile of it before a plan, at its peak and
    after it, and the curve before it.
    """

    before: float
    peak: float
    after: float
    curve: Curve = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """How to reach the goals.

    Attributes:
        goal: the goals in words ("drain pve3").
        feasible: whether it reaches them; if not, stuck and unplaced tell what is missing.
        unplaced: the reason for each new VM that cannot be placed, by name.
        notes: why goals that are about no single guest were not reached, and what would help.
        optimal: whether it is proved that no plan needs fewer moves; None if no proof was requested.
        moves_lower_bound: a proved lower bound of the number of moves; None if no proof was requested or found.
        impossible: whether it is proved that no plan reaches the goals; None if no proof was requested.
        used: what nodes use, by name and resource, if they were balanced by that.
        waits: why nodes that used more than others are not relieved now, although nothing is wrong.
        steps: how many steps the search took.
        exhausted: whether the search ended at its bound, so that a better plan may exist.
    """

    goal: str
    feasible: bool
    moves: tuple[Move, ...] = ()
    creations: tuple[Creation, ...] = ()
    stuck: tuple[Stuck, ...] = ()
    unplaced: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    nodes: Mapping[str, NodeCourse] = field(default_factory=dict)
    used: Mapping[str, Mapping[str, UsedLoad]] = field(default_factory=dict)
    waits: tuple[str, ...] = ()
    optimal: bool | None = None
    moves_lower_bound: int | None = None
    impossible: bool | None = None
    steps: int = 0
    exhausted: bool = False

    def restrict_to(self, identities: Mapping[int, Identity]) -> Plan:
        """Return the plan whose moves are about these guests, by VMID."""
        moves = (
            replace(move, identities={vmid: identities[vmid] for vmid in move.vmids if vmid in identities})
            for move in self.moves
        )
        return replace(self, moves=tuple(moves))

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.moves and not self.creations
