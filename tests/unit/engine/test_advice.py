# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Advice from what was used: better sizes, and nodes that will be full."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.demand import (
    CPU,
    MEASURED,
    MEMORY,
    MEMORY_PRESSURE,
    Curve,
    Demand,
    Grid,
    Usage,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.advice import filling_nodes, right_sizes
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, MIB, Guest

GRID = Grid(0, 1800, 336)
VM = Guest(101, "web", "pve1", status="running", cores=8, memory=8 * GIB)


def sizes(vm: Guest = VM, **curves: float | Curve) -> dict[str, int]:
    names = {"cpu": CPU, "memory": MEMORY, "waits": MEMORY_PRESSURE}
    demands = {
        names[name]: Demand(MEASURED, curve if isinstance(curve, tuple) else (curve,) * GRID.count)
        for name, curve in curves.items()
    }
    return {size.resource: size.suggested for size in right_sizes([vm], Usage(GRID, guests={vm.vmid: demands}))}


@pytest.mark.parametrize(("used", "suggested"), [(0.1, 1), (1.4, 2), (2.7, 4), (2.9, None), (7.1, None), (7.3, 11)])
def test_cpus__suit_the_use(used: float, suggested: int | None) -> None:
    assert sizes(cpu=used).get("cpu") == suggested


@pytest.mark.parametrize(("used", "suggested"), [(100, 256), (2000, 3072), (3000, None), (8000, None)])
def test_memory__suits_the_use(used: int, suggested: int | None) -> None:
    assert sizes(memory=used * MIB).get("memory") == suggested


def test_vm_that_waits_for_memory__gets_more_of_it() -> None:
    assert sizes(memory=7 * GIB, waits=0.3) == {"memory": 11776}


def test_short_peaks__do_not_count_and_what_is_unknown_gives_no_advice() -> None:
    assert sizes(cpu=(0.5,) * 330 + (8.0,) * 6) == {"cpu": 1}
    assert sizes(cpu=(None,) * 200 + (0.5,) * 136) == {}
    assert sizes(Guest(101, "web", "pve1", status="stopped", cores=8), cpu=0.5) == {}


def grown(value: Callable[[float], float]) -> list[tuple[str, str, int]]:
    curve = tuple(value(slot / 48) for slot in range(GRID.count))
    usage = Usage(GRID, {"pve1": {MEMORY: curve}}, {"pve1": {CPU: 8, MEMORY: 1.0}})
    return [(each.node, each.resource, each.days) for each in filling_nodes(usage)]


def test_node_that_grows__is_full_in_so_many_days() -> None:
    # At the end of the week 60 % are used; the mean of the last day is half a day older.
    assert grown(lambda day: 0.53 + 0.01 * day) == [("pve1", MEMORY, 36)]
    assert grown(lambda day: 0.9 + 0.05 * day) == [("pve1", MEMORY, 0)]


def test_ups_and_downs__are_no_growth() -> None:
    assert grown(lambda day: 0.6 + 0.3 * math.sin(2 * math.pi * day)) == []
    assert grown(lambda day: 0.6 - 0.3 * math.sin(2 * math.pi * day)) == []
    assert grown(lambda day: 0.3 if int(day) in (2, 3) else 0.6) == []
    assert grown(lambda day: 0.6 - 0.01 * day) == []
    assert grown(lambda day: 0.1 + 0.001 * day) == []
