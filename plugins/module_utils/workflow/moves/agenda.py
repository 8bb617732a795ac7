# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides which moves of a plan may start now, the longest first: by what they wait for, and by the caps. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ...plans import Move
from .options import Caps


class Agenda:
    """The moves of a plan that wait or are under way. For one thread."""

    def __init__(self, moves: Iterable[Move], caps: Caps) -> None:
        self._caps = caps
        # The longest moves first, as the last move to end determines the total time.
        self._waiting = sorted(moves, key=lambda move: (-move.estimate, move.id))
        self._unfinished = {move.id for move in self._waiting}
        self._under_way: dict[int, Move] = {}

    def start(self) -> list[Move]:
        """Return the moves that start now; each counts as under way until it has ended."""
        started: list[Move] = []
        for move in list(self._waiting):
            if not self._unfinished & set(move.after) and self._has_room(move):
                self._waiting.remove(move)
                self._under_way[move.id] = move
                started.append(move)
        return started

    def ended(self, move: Move) -> None:
        """Note that a move has ended well: what waits for it may start."""
        del self._under_way[move.id]
        self._unfinished.discard(move.id)

    def _has_room(self, move: Move) -> bool:
        out = Counter(each.source for each in self._under_way.values())
        into = Counter(each.target for each in self._under_way.values())
        between = Counter(frozenset({each.source, each.target}) for each in self._under_way.values())
        return (
            len(self._under_way) < self._caps.cluster
            and out[move.source] < self._caps.per_node_out
            and into[move.target] < self._caps.per_node_in
            and between[frozenset({move.source, move.target})] < self._caps.per_link
        )
