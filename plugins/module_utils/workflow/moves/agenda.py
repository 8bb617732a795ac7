# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides which moves of a plan may start now, the longest first: by what they wait for, and by the caps. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from ...plans import Move
from .move_options import Caps

SENDS_MUCH = 512 * 1024**2
"""A move that sends at least as many bytes takes most of its time for sending."""


class Agenda:
    """The moves of a plan that wait or are under way. For one thread.

    The move with the longest chain of moves behind it starts first. Two moves that send much and leave, or come to, the
    same node share its network link: together they take no less time, and more memory changes in the meantime. So they
    run at the same time only where all moves that are left use that link.
    """

    def __init__(self, moves: Iterable[Move], caps: Caps) -> None:
        self._caps = caps
        listed = list(moves)
        length = chains(listed)
        self._waiting = sorted(listed, key=lambda move: (-length[move.id], move.id))
        self._unfinished = {move.id: move for move in self._waiting}
        self._under_way: dict[int, Move] = {}

    def start(self) -> list[Move]:
        """Return the moves that start now; each counts as under way until it has ended."""
        started: list[Move] = []
        for alone in (True, False):
            for move in list(self._waiting):
                if self._unfinished.keys() & set(move.after) or not self._has_room(move):
                    continue
                if self._shares_a_link(move) and (alone or not self._is_for_one_link(move)):
                    continue
                self._waiting.remove(move)
                self._under_way[move.id] = move
                started.append(move)
        return started

    def end(self, move: Move) -> None:
        """Note that a move has ended well: what waits for it may start."""
        del self._under_way[move.id]
        self._unfinished.pop(move.id, None)

    def _shares_a_link(self, move: Move) -> bool:
        others = [other for other in self._under_way.values() if _sends_much(other)]
        return _sends_much(move) and any(o.source == move.source or o.target == move.target for o in others)

    def _is_for_one_link(self, move: Move) -> bool:
        """Whether all moves that are left leave the node that this one leaves, or come to the one to which it goes."""
        left = self._unfinished.values()
        return all(o.source == move.source for o in left) or all(o.target == move.target for o in left)

    def _has_room(self, move: Move) -> bool:
        """Whether the caps allow one more move between these nodes."""
        out = Counter(each.source for each in self._under_way.values())
        into = Counter(each.target for each in self._under_way.values())
        between = Counter(frozenset({each.source, each.target}) for each in self._under_way.values())
        return (
            len(self._under_way) < self._caps.cluster
            and out[move.source] < self._caps.per_node_out
            and into[move.target] < self._caps.per_node_in
            and between[frozenset({move.source, move.target})] < self._caps.per_link
        )


def chains(moves: Iterable[Move]) -> Mapping[int, float]:
    """Return for each move the estimated seconds from its start to the end of the longest chain of moves behind it."""
    listed = {move.id: move for move in moves}
    behind: dict[int, list[int]] = defaultdict(list)
    missing = {number: sum(other in listed for other in move.after) for number, move in listed.items()}
    for number, move in listed.items():
        for other in move.after:
            behind[other].append(number)
    order = [number for number, count in missing.items() if not count]
    for number in order:
        for other in behind[number]:
            missing[other] -= 1
            if not missing[other]:
                order.append(other)
    length: dict[int, float] = {}
    for number in reversed(order):
        length[number] = listed[number].estimate + max((length[other] for other in behind[number]), default=0.0)
    # Moves that wait for each other never start.
    return {number: length.get(number, move.estimate) for number, move in listed.items()}


def _sends_much(move: Move) -> bool:
    return move.memory + move.copied >= SENDS_MUCH
