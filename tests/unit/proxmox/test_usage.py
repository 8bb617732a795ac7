# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the statistics of the releases tell of nodes and guests, as recorded on a real cluster where there is one."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping
from dataclasses import replace

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.demand import (
    CONFIGURED,
    CPU,
    CPU_PRESSURE,
    LIKE,
    MEASURED,
    MEMORY,
    Grid,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import PermissionDenied
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Guest, Node, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.answers import failure_of_answer
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.usage import (
    DAY,
    HOUR,
    WEEK,
    Statistics,
    Timeframe,
    grid_for,
    read_demands,
    read_node_curves,
    timeframe_for,
    with_demand_of,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.moves.recent import departures

MINUTES = Timeframe("hour", 60)
GRID = Grid(0, 60, 2)
VM = Guest(101, "web", "pve1", status="running", cores=2, memory=GIB)


class Answers:
    """Answers by path; an error is raised."""

    def __init__(self, answers: Mapping[str, t.Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        self.asked.append(path)
        if isinstance(self.answers[path], Exception):
            raise self.answers[path]
        return self.answers[path]

    def server_time(self) -> float | None:
        return None


def node_memory(**row: float) -> t.Any:
    rows = [{"time": time, **row} for time in (60, 120)]
    return read_node_curves(Answers({"/nodes/pve1/rrddata": rows}), ["pve1"], MINUTES, GRID)["pve1"].get(MEMORY)


def test_memory_of_a_node__is_without_caches() -> None:
    # 9: the files that Linux caches count as available, ZFS's cache does not.
    assert node_memory(memtotal=100, memavailable=40, memused=60, arcsize=25) == (35, 35)
    # 8: only what is used is told.
    assert node_memory(memtotal=100, memused=60) == (60, 60)
    assert node_memory(memtotal=100) is None


@pytest.mark.parametrize(
    ("row", "expected"),
    [({"mem": 5, "memhost": 7}, (7, 7)), ({"mem": 5}, (5, 5)), ({"mem": 0, "memhost": 0}, None), ({}, None)],
)
def test_memory_of_a_vm__is_what_it_takes_on_its_host(row: dict[str, float], expected: t.Any) -> None:
    rows = [{"time": time, **row} for time in (60, 120)]

    found = read_demands(Answers({"/nodes/pve1/qemu/101/rrddata": rows}), [VM], MINUTES, GRID)[101].get(MEMORY)

    assert (None if found is None else found.curve) == expected


def test_values_that_cannot_be__are_unknown() -> None:
    good = {"cpu": 0.5, "maxcpu": 2, "memtotal": 100, "memavailable": 40, "pressurecpusome": 10}
    bad = {**good, "cpu": 1e9, "memavailable": -1e12, "pressurecpusome": 1e5}
    worse = {**good, "cpu": -0.5, "memavailable": 1e12, "pressurecpusome": -1}
    answer = [{"time": time, **row} for time, row in ((60, good), (120, bad), (180, worse))]

    found = read_node_curves(Answers({"/nodes/pve1/rrddata": answer}), ["pve1"], MINUTES, Grid(0, 60, 3), 1)

    assert found["pve1"] == {CPU: (1, None, None), MEMORY: (60, None, None), CPU_PRESSURE: (0.1, None, None)}


def test_recorded_statistics__of_nodes_and_guests(recording: t.Any) -> None:
    rows = recording("9.2", "node-rrddata-hour")["body"]["data"]
    last = rows[-1]
    grid = Grid(last["time"] - 120, 60, 2)

    found = read_node_curves(Answers({"/nodes/pve1/rrddata": rows}), ["pve1"], MINUTES, grid)["pve1"]

    assert found[CPU][-1] == pytest.approx(last["cpu"] * last["maxcpu"])
    assert found[MEMORY][-1] == pytest.approx(last["memtotal"] - last["memavailable"])
    assert found[CPU_PRESSURE][-1] == pytest.approx(last["pressurecpusome"] / 100)


def test_what_may_not_be_read__is_unknown(recording: t.Any) -> None:
    refused = recording("9.2", "node-rrddata-hour-nobody")
    error = failure_of_answer("GET", "", refused["status"], refused["reason"], json.dumps(refused["body"]), {})
    assert isinstance(error, PermissionDenied)

    assert read_node_curves(Answers({"/nodes/pve1/rrddata": error}), ["pve1"], MINUTES, GRID) == {"pve1": {}}
    assert read_demands(Answers({"/nodes/pve1/qemu/101/rrddata": error}), [VM], MINUTES, GRID) == {101: {}}


@pytest.mark.parametrize(
    ("release", "window", "expected"),
    [
        ("9.1", HOUR, Timeframe("hour", 60)),
        ("9.1", DAY, Timeframe("week", 1800)),
        ("9.1", WEEK, Timeframe("week", 1800)),
        ("8.4", DAY, Timeframe("day", 1800)),
        ("8.4", WEEK, Timeframe("week", 10_800)),
    ],
)
def test_period__is_the_shortest_that_covers_the_window(release: str, window: int, expected: Timeframe) -> None:
    assert timeframe_for(window, Answers({"/version": {"release": release}})) == expected


@pytest.mark.parametrize("now", [999_060.0, 1_000_000.0, 1_000_859.0])
def test_window__ends_with_the_last_slot_that_is_over_for_a_minute(now: float) -> None:
    assert grid_for(DAY, Timeframe("week", 1800), now) == Grid(999_000 - DAY, 1800, 48)


def rows(time: float, count: int, **values: float) -> list[dict[str, float]]:
    """The samples of half an hour, the last of which ends at a time."""
    return [{"time": time - 1800 * number, **values} for number in reversed(range(count))]


def test_what_nodes_and_guests_usually_use__is_of_what_is_known() -> None:
    now = 1800.0 * 1000
    node = {"maxcpu": 8, "memtotal": 100, "memused": 40}
    other = Guest(102, "db", "pve1", status="stopped", cores=2, memory=GIB)
    answers = Answers(
        {
            "/version": {"release": "9.2.1"},
            # The busy hour of a node that runs since three hours: the last one.
            "/nodes/pve1/rrddata": rows(now - 3600, 4, cpu=0.25, **node) + rows(now, 2, cpu=0.5, **node),
            "/nodes/pve1/qemu/101/rrddata": rows(now, 4, cpu=0.5, maxcpu=2, memhost=10),
        }
    )
    answers.server_time = lambda: now + 60  # type: ignore[method-assign]
    snapshot = Snapshot(nodes=(Node("pve1"), Node("pve2", online=False)), guests=(VM, other))

    found = with_demand_of(Statistics(answers), snapshot, {101, 102})

    assert {key: demand.curve for key, demand in found.guests[0].demand.items()} == {CPU: (1.0,), MEMORY: (10,)}
    assert {key: demand.curve for key, demand in found.nodes[0].demand.items()} == {CPU: (3.0,), MEMORY: (30,)}
    assert (found.nodes[1].demand, found.guests[1].demand) == ({}, {})
    assert answers.asked == ["/version", "/nodes/pve1/rrddata", "/nodes/pve1/qemu/101/rrddata"]


def test_guests_that_have_just_come__count_besides_what_the_node_used() -> None:
    now = 1800.0 * 1000
    left = {"status": "OK", "id": "104", "endtime": now - 600}
    used = rows(now, 48, cpu=0.5, maxcpu=2, memhost=10)
    answers = Answers(
        {
            "/version": {"release": "9.2.1"},
            "/nodes/pve1/rrddata": rows(now, 48, cpu=0.5, maxcpu=8, memtotal=100, memused=40),
            "/nodes/pve1/tasks": [left],
            "/nodes/pve1/qemu/101/rrddata": used,
            "/nodes/pve1/qemu/102/rrddata": rows(now, 1, cpu=0.01, maxcpu=4, memhost=1),
            "/nodes/pve1/qemu/103/rrddata": [],
            "/nodes/pve1/qemu/104/rrddata": used,
            "/nodes/pve1/qemu/105/rrddata": used,
        }
    )
    answers.server_time = lambda: now + 60  # type: ignore[method-assign]
    old = replace(VM, name="web-1", uptime=100_000)
    made_like_it = replace(VM, vmid=102, name="web-2", cores=4, uptime=60)
    made = replace(VM, vmid=103, name="db", uptime=60)
    came = replace(VM, vmid=104, name="mail", uptime=60)
    restarted = replace(VM, vmid=105, name="dns", uptime=60)
    snapshot = Snapshot(nodes=(Node("pve1"),), guests=(old, made_like_it, made, came, restarted))

    # 101 is read because 102 is like it.
    found = with_demand_of(Statistics(answers), snapshot, set())

    assert [(guest.demand[CPU].usual, guest.demand[CPU].source) for guest in found.guests] == [
        (1, MEASURED), (2, LIKE), (2, CONFIGURED), (1, MEASURED), (1, MEASURED)
    ]  # fmt: skip
    # 4 of 8 cores are used: by 101, by 105 and by others.
    assert found.nodes[0].demand[CPU].usual == 2


def test_moves_of_guests__have_the_time_that_they_took() -> None:
    rows = [{"status": "OK", "id": "104", "starttime": 1000, "endtime": 1300}]
    snapshot = Snapshot(nodes=(Node("pve1"),), guests=(VM,))

    assert departures(Answers({"/nodes/pve1/tasks": rows}), snapshot, 0) == [(1300, 104, "pve1", 300)]
