# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether there is so much room that the guests of any lost node surely find another one."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from itertools import accumulate

from .cache import ClusterState
from .evacuees import Bonds, Limits, Loads, Room, loads_of

_TRADES = (1.0, 4.0, 0.25)
"""What all CPU weighs against all memory, in turn."""

_ENDLESS = 1e30
"""What is left of a resource without a limit."""

_SLACK = 1e-9
"""How much of all room outweighs the rounding of sums."""


def has_plenty(cluster: ClusterState, limits: Limits) -> bool:
    """Whether there is so much room that plans are found without searching: for every loss, now and with any of the
    decided VMs missing.
    """
    bonds = Bonds(cluster)
    online = [info for info in cluster.nodes if info.node.online]
    room = {info.index: limits.room(info) for info in online if info.node.is_open}
    for info in online:
        others = {index: left for index, left in room.items() if index != info.index}
        loads = loads_of(info, bonds)
        if not any(_is_plenty(others, loads, trade) for trade in _TRADES):
            return False
    return True


def _is_plenty(room: Mapping[int, Room], loads: Iterable[Loads], trade: float) -> bool:
    """Whether loads surely find a place, one after the other, whatever node each of them takes.

    A guest finds none only where every node has less memory or less CPU left than its size. The guests before it would
    then have taken the rest, of one of the two on each node. With both in one unit, they are too small for that if they
    are smaller together than the sum of what each node has more than the guest needs, of that of which it has less.
    """
    memories = [min(max(left.memory, 0.0), _ENDLESS) for left in room.values()]
    vcpus = [min(max(left.cores, 0.0), _ENDLESS) for left in room.values()]
    per_byte, per_core = 1 / (sum(memories) or 1.0), trade / (sum(vcpus) or 1.0)
    each = [min(memory * per_byte, cores * per_core) for memory, cores in zip(memories, vcpus, strict=True)]
    size_of, sizes = dict(zip(room, each, strict=True)), sorted(each)
    sums = [0.0, *accumulate(reversed(sizes))]
    placed = 0.0
    for (memory, cores), guests, within in loads:
        by_memory, by_cores = memory * per_byte, cores * per_core
        needed = max(by_memory, by_cores)
        if within is None:
            larger = len(sizes) - bisect.bisect_right(sizes, needed)
            left = sums[larger] - larger * needed
        else:
            left = sum(max(size_of[index] - needed, 0.0) for index in size_of.keys() & within)
        takes = by_memory + by_cores
        if left <= placed + takes * (len(guests) - 1) + _SLACK:
            return False
        placed += takes * len(guests)
    return True
