# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The goals that move guests which could stay: repair, undo, balance, consolidate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from ...plans import Balance
from ..framework.status import Status, unschedulable
from ..texts import join_words, of_one
from .attempts import Attempts, ItemToPlace
from .board import NOWHERE, Board
from .ejection import pick_enough
from .items import Item
from .reach import ROUNDING

EXTRA = 4
"""At most this many other guests move so that one guest can reach its goal."""

COMPARED = 20
"""At most this many guests that break rules are compared by how many violations their leaving fixes."""

# Why a guest moves.
BRINGS_BACK, BALANCES = "brings it back to {target}", "balances {source} and {target}"

_OVERALLOCATED = unschedulable("more is allocated on its node than is allowed")


# --- repair -----------------------------------------------------------------------------------------------------------


def repair(board: Board, placer: Attempts) -> dict[int, str]:
    """Move guests until no rule or limit is broken. Return the reasons that remain, by the index of the item. On a node
    that stays above its limit, they are those of the largest guests whose leaving would be enough.
    """
    over = [node for node in range(len(board.nodes)) if _excess(board, node) is not None]
    for number, node in enumerate(over):
        # Each node stands for itself: one that cannot be relieved does not use up the steps for the others.
        _relieve(board, placer, node, len(over) - number)
    tried: set[int] = set()
    while True:
        broken = broken_rules(board)
        open_now = [item for item in broken if item.movable and item.index not in tried]
        if not open_now:
            break
        item = _first_to_move(board, open_now, broken)
        tried.add(item.index)
        name = board.nodes[board.node_of(item)].name
        placer.one(item, EXTRA, f"repairs: {name} {broken[item].reason}")
    left = {item.index: status.text for item, status in broken_rules(board).items()}
    for node in range(len(board.nodes)):
        left |= dict.fromkeys(_items_to_relieve(board, node), _OVERALLOCATED.text)
    return left


def _items_to_relieve(board: Board, node: int) -> list[int]:
    """Return the largest items whose leaving would bring a node below its limit; all of them if that is too little."""
    short = _excess(board, node)
    if short is None:
        return []
    items = sorted(board.on[node].values(), key=lambda item: (-item.share, item.index))
    chosen = pick_enough([(item, 1) for item in items], *short)
    return [item.index for item, _weight in chosen] or [item.index for item in items]


def broken_now(board: Board) -> dict[int, Status]:
    """Return the items that break a rule or a limit on their node, by index, each with the reason."""
    found = {item.index: status for item, status in broken_rules(board).items()}
    for node in range(len(board.nodes)):
        if _excess(board, node) is not None:
            found.update(dict.fromkeys(board.on[node], _OVERALLOCATED))
    return found


def broken_rules(board: Board) -> dict[Item, Status]:
    """Return the items that a filter refuses on their own node for a reason other than CPU and memory."""
    found = {}
    for item in board.items:
        node = board.node_of(item)
        if node == NOWHERE or not board.nodes[node].node.online:
            continue
        status = board.broken_rule(item)
        if status is not None:
            found[item] = status
    return found


def _first_to_move(board: Board, open_now: list[Item], broken: Mapping[Item, Status]) -> Item:
    """Return the item whose leaving fixes the most violations; among equals, the cheapest."""
    if len(open_now) > COMPARED:
        return min(open_now, key=lambda item: (item.cost, item.index))
    worth: dict[int, int] = {}
    for item in open_now:
        mark = len(board.trail)
        board.lift(item)
        worth[item.index] = sum(board.broken_rule(other) is not None for other in broken if other is not item)
        board.undo(mark)
    return min(open_now, key=lambda item: (worth[item.index], item.cost, item.index))


def _relieve(board: Board, placer: Attempts, node: int, share: int) -> None:
    """Move guests off a node on which more CPU or memory is allocated than is allowed, until the rest is allowed, or as
    many as find another node.
    """
    short = _excess(board, node)
    if short is None or not board.nodes[node].node.online:
        return
    why = f"repairs: too much is allocated on {board.nodes[node].name}"
    if placer.relieve(node, *short, EXTRA, why, share + 1):
        return
    for item in sorted(board.on[node].values(), key=lambda item: (-item.share, item.index)):
        if (left := _excess(board, node)) is None:
            return
        helps = (left[0] > 0 and item.cores > 0) or (left[1] > 0 and item.memory > 0)
        if item.movable and helps and board.node_of(item) == node:
            placer.leave(item, why)


def _excess(board: Board, node: int) -> tuple[float, float] | None:
    """Return the CPU and memory allocated beyond the limit, or None."""
    limits = board.reach.limits(node)
    short = (board.cpu[node] - limits[0], board.memory[node] - limits[1])
    return short if short[0] > 0 or short[1] > 0 else None


# --- undo -------------------------------------------------------------------------------------------------------------


def bring_back(board: Board, placer: Attempts, wanted: Mapping[int, str]) -> dict[int, str]:
    """Move guests to the given nodes. Return the reasons for those that cannot go there, by VMID. Guests that are there
    already stay.
    """
    targets: dict[int, int] = {}
    back: list[Item] = []
    failed: dict[int, str] = {}
    for vmid, name in sorted(wanted.items()):
        info, item = board.state.by_name.get(name), board.item_of.get(vmid)
        if item is None:
            continue
        if info is None:
            failed[vmid] = f"node {name} is not there"
        elif board.node_of(item) != info.index:
            targets[item.index] = info.index
        else:
            back.append(item)
    for item in back:
        if item.index not in targets:
            board.hold(item)
    while targets:
        # Guests that can return at once may make room for the rest. Others move away only when none can.
        at_once = _bring(board, placer, targets, None, len(targets), BRINGS_BACK)
        if not (at_once or _bring(board, placer, targets, EXTRA, 1, BRINGS_BACK)):
            break
    for index, node in targets.items():
        item = board.items[index]
        status = board.reach.rows(item).refusals.get(node) or board.refusal(item, node)
        name = board.nodes[node].name
        why = item.not_to.get(name) or (status.text if status is not None else "had no room")
        failed.update({part.vmid: f"{name} {of_one(why)}" for part in item.parts if part.vmid in wanted})
    return failed


def _bring(
    board: Board,
    placer: Attempts,
    targets: dict[int, int],
    extra: int | None,
    most: int,
    why: str,
) -> int:
    """Bring items to their targets, largest first, and drop these from targets; return how many arrived."""
    done = 0
    for index in sorted(targets, key=lambda index: (-board.items[index].share, index)):
        node = targets[index]
        item = board.items[index]
        if done < most and placer.bring(item, node, extra, _reason_of(board, item, node, why)):
            del targets[index]
            done += 1
    return done


def _reason_of(board: Board, item: Item, target: int, why: str) -> str:
    return why.format(source=board.nodes[board.node_of(item)].name, target=board.nodes[target].name)


# --- balance ----------------------------------------------------------------------------------------------------------


def balance(board: Board, placer: Attempts, wanted: Balance) -> None:
    """Move guests from the fullest nodes to the emptiest that take any while each move gains more than the margin."""
    hosts = sorted({node for item in board.items if item.movable for node in board.reach.rows(item).nodes})
    mark = len(board.trail)
    moved: Counter[int] = Counter()
    refused: set[tuple[int, int]] = set()
    while found := _best_move(board, hosts, wanted, refused, ()) or _best_move(board, hosts, wanted, refused, moved):
        item, target = found
        if placer.bring(item, target, None, _reason_of(board, item, target, BALANCES)):
            moved[item.index] += 1
        else:
            refused.add((item.index, target))
    if max(moved.values(), default=0) > 1:
        # The first move of a guest seemed good until others moved. It goes straight to its last node.
        targets = {index: board.node_of(board.items[index]) for index in moved}
        board.undo(mark)
        targets = {index: node for index, node in targets.items() if node not in board.items[index].homes}
        while _bring(board, placer, targets, None, len(targets), BALANCES):
            pass


def _best_move(
    board: Board,
    hosts: Iterable[int],
    wanted: Balance,
    refused: Collection[tuple[int, int]],
    again: Collection[int],
) -> tuple[Item, int] | None:
    """Return the move to the emptiest node that lowers the fuller of the two nodes most; the fullest sources come
    first. If the emptiest node takes no guest that such a move gains from, the next one is considered. Guests that have
    moved already are considered if they are in again.
    """
    load = {node: _load(board, node) for node in hosts}
    for target in sorted(load, key=lambda node: (load[node], node)):
        if max(load.values()) - load[target] <= wanted.threshold:
            return None
        for source in sorted(load, key=lambda node: (-load[node], node)):
            best: tuple[float, int, int] | None = None
            for item in board.on[source].values():
                settled = source not in item.homes and item.index not in again
                if not item.movable or item.new or settled or (item.index, target) in refused:
                    continue
                if not board.fits(item, target):
                    continue
                gain = _gain(board, item, source, target)
                # Each move gains something, so that none is ever taken back.
                enough_gained = gain > ROUNDING and gain >= wanted.margin
                if enough_gained and (best is None or (-gain, item.cost, item.index) < best):
                    best = (-gain, item.cost, item.index)
            if best is not None:
                return board.items[best[2]], target
    return None


def _gain(board: Board, item: Item, source: int, target: int) -> float:
    """Return by how much a move lowers the load of the fuller of two nodes."""
    return _load(board, source) - max(_load(board, source, item, -1), _load(board, target, item, 1))


def imbalance(board: Board, wanted: Balance) -> tuple[int, int] | None:
    """Return the fullest and the emptiest node if they differ by more than the threshold. Nodes that take no guests, or
    from which none can leave, do not count.
    """
    there = [item for item in board.items if not item.new]
    hosts = {node for item in there for node in (*board.reach.rows(item).nodes, board.node_of(item))}
    load = {node: _load(board, node) for node in sorted(hosts - {NOWHERE}) if board.nodes[node].node.online}
    if not load:
        return None
    fullest, emptiest = max(load, key=lambda node: load[node]), min(load, key=lambda node: load[node])
    return (fullest, emptiest) if load[fullest] - load[emptiest] > wanted.threshold + ROUNDING else None


def load_of(board: Board, node: int) -> float:
    """Return the larger of a node's allocated fractions of CPU and memory."""
    return _load(board, node)


def can_gain(board: Board, item: Item, wanted: Balance) -> bool:
    """Whether some node could take over the item and stay sufficiently below the item's node."""
    source = board.node_of(item)
    others = (node for node in board.reach.rows(item).nodes if node != source)
    return any(_gain(board, item, source, node) > max(wanted.margin, ROUNDING) for node in others)


def _load(board: Board, node: int, item: Item | None = None, sign: int = 0) -> float:
    """Return the larger of a node's allocated fractions of CPU and memory, with or without an item."""
    cpu, memory = board.reach.limits(node, enforced=False)
    cores = board.cpu[node] + (sign * item.cores if item is not None else 0)
    used = board.memory[node] + (sign * item.memory if item is not None else 0)
    return max(cores / cpu if cpu > 0 else 0.0, used / memory if memory > 0 else 0.0)


# --- consolidate ------------------------------------------------------------------------------------------------------


def consolidate(board: Board, placer: Attempts) -> list[str]:
    """Empty as many nodes as possible, starting with those that need the least moved. Return their names."""
    closed = set(board.reach.closed)
    empty = {node for node, info in enumerate(board.nodes) if not info.guests and not board.on[node]}
    emptied: list[str] = []
    board.close(closed | empty)
    for node in sorted(range(len(board.nodes)), key=lambda node: (_cost(board.on[node].values()), node)):
        items = list(board.on[node].values())
        if node in board.reach.closed or not items or not all(item.movable for item in items):
            continue
        before = board.reach.closed
        board.close(before | {node})
        mark = len(board.trail)
        tasks = []
        for item in items:
            # A guest that came here from a node that was emptied before leaves that node; a new VM leaves none.
            homes = [board.nodes[home].name for home in sorted(item.homes)]
            tasks.append(ItemToPlace(item, f"empties {join_words(homes)}" if homes else ""))
        if placer.place(tasks, None, by_score=False):
            board.undo(mark)
            board.close(before)
        else:
            emptied.append(board.nodes[node].name)
    return emptied


def _cost(items: Iterable[Item]) -> tuple[int, int]:
    counted = list(items)
    return sum(item.cost for item in counted), len(counted)
