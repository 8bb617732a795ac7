# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planning problem as an integer program: how many items of each kind end up on each node.

Items of one size that may use the same nodes are one kind. The program contains only those rules that always forbid a
node, and it ignores the order of the moves. So it is a relaxation: no plan has fewer moves than its optimum, and if it
has no solution, no plan exists.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ...model import GIB
from .board import NOWHERE, Board
from .items import Item
from .reach import ReachRows

Row = tuple[float, float, dict[int, float]]


@dataclass(slots=True)
class Program:
    """Minimise the sum of costs times columns. Columns are whole numbers from 0 to upper.

    Attributes:
        rows: the lowest and the highest value of the sum of factors times columns, and the factors by column.
    """

    upper: list[float] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def column(self, upper: float, cost: float = 0.0) -> int:
        """Add a column and return its number."""
        self.upper.append(upper)
        self.cost.append(cost)
        return len(self.upper) - 1


@dataclass(slots=True)
class Alike:
    """A kind of items: how many of them are on each node, or NOWHERE."""

    item: Item
    rows: ReachRows
    at: Counter[int] = field(default_factory=Counter)


def program(board: Board, wanted: Collection[Item]) -> Program:
    """Return the program of a board: items leave closed nodes, and the wanted new items get a node.

    Items that cannot be moved stay, and so do those whose guests are on several nodes.
    """
    kinds: dict[tuple[float, int, int, tuple[int, ...]], Alike] = {}
    base = [list(board.cpu), list(board.memory)]
    for item in board.items:
        here = board.node_of(item)
        if not item.movable or (here == NOWHERE and (board.at[item.index] or item not in wanted)):
            continue
        rows = board.reach.rows(item)
        key = (item.cores, item.memory, item.weight, tuple(rows.nodes))
        kinds.setdefault(key, Alike(item, rows)).at[here] += 1
        if here != NOWHERE:
            base[0][here] -= item.cores
            base[1][here] -= item.memory
    found = Program()
    takes: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for alike in kinds.values():
        for node, column in _add_kind(found, board, alike).items():
            takes[0, node][column] = alike.item.cores
            takes[1, node][column] = alike.item.memory / GIB
    for (resource, node), factors in takes.items():
        now = (board.cpu, board.memory)[resource][node]
        limits = [(alike.rows.cpu, alike.rows.memory)[resource][node] for alike in kinds.values()]
        most = max(now, *limits)
        unit = (1, GIB)[resource]
        found.rows.append((float("-inf"), (most - base[resource][node]) / unit, factors))
    return found


def _add_kind(found: Program, board: Board, alike: Alike) -> dict[int, int]:
    """Add how many items of a kind end up on each node, and how many leave it; return the columns by node."""
    total = sum(alike.at.values())
    nodes: Sequence[int] = sorted({*alike.rows.nodes, *alike.at} - board.reach.closed - {NOWHERE})
    columns = {node: found.column(total) for node in nodes}
    found.rows.append((total, total, dict.fromkeys(columns.values(), 1.0)))
    for node, count in alike.at.items():
        if node in columns:
            leaving = found.column(count, alike.item.weight)
            found.rows.append((count, float("inf"), {columns[node]: 1.0, leaving: 1.0}))
        elif node != NOWHERE:
            found.rows.append((count, count, {found.column(count, alike.item.weight): 1.0}))
    return columns
