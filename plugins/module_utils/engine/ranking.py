# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which node is the best, without sorting: heaps from which what is outdated is only taken when it comes to the top."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator

Rank = tuple[float, ...]
"""What nodes are ranked by: the least is the best."""


class Ranking:
    """Nodes, each by its index, in order of rank; of one rank the lowest index counts.

    current tells which rank an index has now, None when it is not in this ranking any more. What was pushed before
    stays until it comes to the top: whoever pushes without end makes a new ranking now and then.
    """

    def __init__(self, current: Callable[[int], Rank | None]) -> None:
        self._current = current
        self._heap: list[tuple[Rank, int]] = []

    def push(self, rank: Rank, index: int) -> None:
        """Note that index has come to that rank."""
        heapq.heappush(self._heap, (rank, index))

    def top(self) -> int | None:
        """The lowest index of the best rank."""
        heap = self._heap
        while heap and self._current(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][1] if heap else None


class RankingByRank(Ranking):
    """The same where the best of the next ranks are asked for as well, however many nodes have the same rank."""

    def __init__(self, current: Callable[[int], Rank | None]) -> None:
        super().__init__(current)
        self._ranks: list[Rank] = []
        self._indices: dict[Rank, list[int]] = {}

    def push(self, rank: Rank, index: int) -> None:
        indices = self._indices.get(rank)
        if indices is None:
            self._indices[rank] = [index]
            heapq.heappush(self._ranks, rank)
        else:
            heapq.heappush(indices, index)

    def top(self) -> int | None:
        while self._ranks:
            rank = self._ranks[0]
            indices = self._indices[rank]
            while indices and self._current(indices[0]) != rank:
                heapq.heappop(indices)
            if indices:
                return indices[0]
            del self._indices[rank]
            heapq.heappop(self._ranks)
        return None

    def tops(self) -> Generator[int]:
        """The lowest index of each rank, from the best on. To be closed before anything else is asked."""
        passed: list[Rank] = []
        try:
            while (index := self.top()) is not None:
                yield index
                passed.append(heapq.heappop(self._ranks))
        finally:
            for rank in passed:
                heapq.heappush(self._ranks, rank)
