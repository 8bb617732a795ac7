# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Balance by what is used: relieve nodes whose load stays high, by few moves that are worth their cost.

The load of a node is a percentile of what it used during a window. It is calculated from whole curves, so that two
guests whose peaks are at different times fit on one node, and a guest that is busy at night adds to the load of the
night.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Sequence

from ...demand import CPU, MEMORY, PRESSURE_OF, Usage
from ...plans import Balance, UsedLoad
from .attempts import Attempts
from .board import NOWHERE, Board
from .items import Item
from .reach import ROUNDING
from .used_loads import Relief, UsedLoads, peak_of, size_of

TOLD = 5
"""So many nodes that stay above others are named with the reason."""

COMPARED = 6
"""For each guest, the search compares at most this many nodes that have room for it, emptiest first."""

FULL = 0.8
"""Nodes with a higher load are in need. Only these are worth a word when no move helps them."""

EASED = 1 / 3
"""For a node in need, this part of the threshold and of the margin is enough: small guests may leave it, too."""

UNSETTLED = (
    "guests left it or came to it, which one number for the whole window cannot tell (cure: give lists of values in"
    " metrics)"
)

NAMES = {CPU: "CPU", MEMORY: "memory"}


def nodes_to_relieve(usage: Usage, wanted: Balance) -> list[str]:
    """Return the names of the nodes whose load is too high above that of another one."""
    peaks = {name: peak_of(curves, usage.capacity.get(name, {}), wanted) for name, curves in usage.nodes.items()}
    loads = {name: peak.load for name, peak in peaks.items() if peak is not None}
    goal = relief_threshold(min(loads.values(), default=0.0), wanted)
    return sorted(name for name, load in loads.items() if load > goal)


def relief_threshold(other: float, wanted: Balance) -> float:
    """Return the load above which a node is relieved if another one has this load."""
    usual = max(wanted.above, other + wanted.threshold)
    return min(usual, max(FULL, other + EASED * wanted.threshold))


class Relieved(t.NamedTuple):
    """What came of it.

    Attributes:
        loads: the loads of the nodes by name and resource.
        notes: what the user should change, as nodes in need stay far above others or are not known.
        waits: why nothing more moves, as nodes that are not in need stay above others or the imbalance is new or over.
    """

    loads: dict[str, dict[str, UsedLoad]]
    notes: list[str]
    waits: list[str]


def relieve(board: Board, placer: Attempts, wanted: Balance, usage: Usage) -> Relieved:
    """Move guests off nodes whose load stays high."""
    loads = UsedLoads(board, wanted, usage)
    refused: set[tuple[int, int]] = set()
    moved: set[int] = set()
    while found := _best(board, loads, wanted, refused, moved):
        why = _reason(board, loads, wanted, usage, found)
        if placer.bring(found.item, found.target, None, why):
            loads.move(found)
            moved.add(found.item.index)
        else:
            refused.add((found.item.index, found.target))
    notes, waits = _causes_of_imbalance(board, loads, wanted)
    waits += [f"{name} takes no part: {UNSETTLED}" for name in sorted(usage.unsettled)]
    return Relieved(_used_loads(board, loads), [*_unknown(board, usage), *notes], waits)


def _best(
    board: Board, loads: UsedLoads, wanted: Balance, refused: set[tuple[int, int]], moved: set[int]
) -> Relief | None:
    """Return the next move: from the fullest node from which one is worth it. If a single move is enough, the cheapest
    that is; else the one that gains most for its cost.
    """
    emptiest = sorted(loads.hosts, key=lambda node: (loads.of(node).load, node))
    for source in reversed(emptiest):
        goal = relief_threshold(loads.of(emptiest[0]).load, wanted)
        if loads.of(source).load <= goal + ROUNDING:
            return None
        found = [
            relief
            for item in board.on[source].values()
            if item.movable and not item.new and source in item.homes and item.index not in moved
            for relief in _reliefs(board, loads, item, source, emptiest, refused)
            if _is_worth_it(loads, wanted, relief)
            and _lasts(loads, wanted, relief.source, relief.target, relief.before.resource)
        ]
        enough = [relief for relief in found if max(relief.left, relief.after) <= goal + ROUNDING]
        if enough:
            return min(enough, key=lambda each: (loads.price(each.item, each.target), -each.gain, each.item.index))
        if found:
            return max(found, key=lambda each: (each.gain / loads.price(each.item, each.target), -each.item.index))
    return None


def _is_worth_it(loads: UsedLoads, wanted: Balance, relief: Relief) -> bool:
    eased = EASED if relief.before.load > FULL else 1.0
    return relief.gain > ROUNDING and relief.gain >= wanted.margin * loads.price(relief.item, relief.target) * eased


def _reliefs(
    board: Board,
    loads: UsedLoads,
    item: Item,
    source: int,
    emptiest: Iterable[int],
    refused: set[tuple[int, int]],
) -> Iterable[Relief]:
    able, compared = set(board.reach.rows(item).nodes), 0
    left = loads.without(item, source)
    if left is None:
        return
    for target in emptiest:
        if target == source or compared == COMPARED or loads.of(target).load >= loads.of(source).load:
            return
        if target not in able or (item.index, target) in refused or not board.fits(item, target):
            continue
        compared += 1
        yield loads.relief(item, source, target, left)


def _lasts(loads: UsedLoads, wanted: Balance, node: int, other: int, resource: str) -> bool:
    """Whether two nodes have differed recently, too, and not only some time ago."""
    now, there = loads.recent_load(node, resource), loads.recent_load(other, resource)
    return now is not None and there is not None and now > relief_threshold(there, wanted)


# --- in words ---------------------------------------------------------------------------------------------------------


def _reason(board: Board, loads: UsedLoads, wanted: Balance, usage: Usage, relief: Relief) -> str:
    resource = relief.before.resource
    before, left, other, after = loads.resource_loads(relief, resource)
    source, target = board.nodes[relief.source].name, board.nodes[relief.target].name
    names = ", ".join(part.guest.name or str(part.vmid) for part in relief.item.parts if part.guest is not None)
    verb = "had" if resource in PRESSURE_OF else "used"
    window = f"p{wanted.percentile:g} of {in_hours(usage.grid.window)}"
    return (
        f"{source} {verb} {before:.0%} {NAMES.get(resource, resource)} ({window}); without {names} {left:.0%}; "
        f"{target} goes from {other:.0%} to {after:.0%}"
    )


def in_hours(seconds: float) -> str:
    """Return a period in words."""
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"


def _unknown(board: Board, usage: Usage) -> list[str]:
    online = (info.name for info in board.nodes if info.node.online)
    names = [name for name in online if not usage.nodes.get(name) and name not in usage.unsettled]
    told = ", ".join(names)
    cure = "cure: give the user Sys.Audit on the nodes, wait until they have statistics, or choose a shorter window"
    return [f"what was used is not known of {told}, which takes no part ({cure})"] if names else []


def _causes_of_imbalance(board: Board, loads: UsedLoads, wanted: Balance) -> tuple[list[str], list[str]]:
    """Return why nodes stay above the others: those in need whose load has lasted, and all others."""
    notes: list[str] = []
    waits: list[str] = []
    emptiest = min(loads.hosts, key=lambda node: (loads.of(node).load, node), default=NOWHERE)
    for node in sorted(loads.hosts, key=lambda node: (-loads.of(node).load, node)):
        peak = loads.of(node)
        if node == emptiest or peak.load <= relief_threshold(loads.of(emptiest).load, wanted) + ROUNDING:
            continue
        name, other = board.nodes[node].name, board.nodes[emptiest].name
        what = NAMES.get(peak.resource, peak.resource)
        told = f"{name} stays at {peak.load:.0%} {what} and {other} at {loads.of(emptiest).load:.0%}"
        if not _lasts(loads, wanted, node, emptiest, peak.resource):
            recent = (loads.recent_load(each, peak.resource) for each in (node, emptiest))
            now, there = ("unknown" if load is None else f"{load:.0%}" for load in recent)
            waits.append(f"{told}, but not in the last {in_hours(wanted.hold)} (hold): {now} and {there}")
            continue
        cause = f"{told}, as no move that is worth its cost and allowed helps"
        cure = "cure: lower the margin, or let more of its guests move"
        (notes if peak.load > FULL else waits).append(f"{cause} ({cure})")
    return _few(notes), _few(waits)


def _few(texts: Sequence[str]) -> list[str]:
    more = len(texts) - TOLD
    return [*texts[:TOLD], *([f"{more} more node(s) stay above the others"] if more > 0 else [])]


def _used_loads(board: Board, loads: UsedLoads) -> dict[str, dict[str, UsedLoad]]:
    found: dict[str, dict[str, UsedLoad]] = {}
    for node in sorted(loads.hosts):
        found[board.nodes[node].name] = {
            resource: UsedLoad(
                before=loads.fraction(node, resource, before) or 0.0,
                peak=loads.fraction(node, resource, loads.highest[node][resource]) or 0.0,
                after=loads.fraction(node, resource, loads.curves[node][resource]) or 0.0,
                curve=tuple(v if v is None else v / size_of(resource, loads.size[node]) for v in before),
            )
            for resource, before in loads.at_first[node].items()
        }
    return found
