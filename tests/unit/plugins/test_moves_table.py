# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the filter makes of plans and of results of modules that move guests."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.moves import GIB, moves_table


def load(gib: int, cores: int = 1) -> dict[str, Any]:
    return {"cores": cores, "memory": gib * GIB, "guests": 1}


def move(number: int, vmid: int, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "vmid": vmid,
        "name": f"vm{vmid}",
        "from": "pve3",
        "to": "pve1",
        "why": "drains pve3",
        "after": [],
        "how": "live",
        "via": "api",
        "memory": 4 * GIB,
        "copied": 0,
        **more,
    }


def plan(*moves: dict[str, Any], **more: Any) -> dict[str, Any]:
    node = {"allocatable": load(16, 32), "before": load(2), "peak": load(10), "after": load(10)}
    still = {"allocatable": load(16, 32), "before": load(2), "peak": load(2), "after": load(2)}
    nodes = {"pve1": node, "pve2": still}
    return {"goal": "drain pve3", "moves": list(moves), "stuck": [], "nodes": nodes, **more}


def test_table__has_a_row_for_each_move_and_for_each_node_that_changes() -> None:
    lines = moves_table(plan(move(1, 101), move(2, 102, after=[1], via="ha", copied=GIB)))

    assert lines == [
        "drain pve3: 2 move(s), 9.0 GiB",
        "ID  GUEST        FROM  TO    HOW       GIB  AFTER  WHY",
        " 1  vm101 (101)  pve3  pve1  live      4.0      -  drains pve3",
        " 2  vm102 (102)  pve3  pve1  live, ha  5.0      1  drains pve3",
        "NODE  BEFORE  PEAK  AFTER    OF  ",
        "pve1     2.0  10.0   10.0  16.0  GiB of memory",
    ]


def test_table__shows_the_vcpus_of_a_node_where_these_are_full() -> None:
    course = {"before": 20, "peak": 32, "after": 32, "allocatable": 32}
    node = {when: load(16 if when == "allocatable" else 4, cores) for when, cores in course.items()}
    assert moves_table(plan(move(1, 101), nodes={"pve1": node}))[-2:] == [
        "NODE  BEFORE  PEAK  AFTER  OF  ",
        "pve1      20    32     32  32  vCPUs",
    ]
    nothing = {when: {"cores": 0, "memory": 0, "guests": 0} for when in course}
    assert moves_table(plan(move(1, 101), nodes={"pve1": {**nothing, "before": load(1)}}))[-1].endswith("GiB of memory")


def test_table__of_a_result_tells_what_became_of_each_move() -> None:
    done = {**move(1, 101), "outcome": "moved", "seconds": 11.2}
    lines = moves_table({"plan": plan(move(1, 101)), "moves": [done], "loads": {}, "stuck": []})

    assert lines[1:3] == [
        "ID  GUEST        FROM  TO    HOW   GIB  OUTCOME       WHY",
        " 1  vm101 (101)  pve3  pve1  live  4.0  moved (11 s)  drains pve3",
    ]


def test_table__of_a_run_with_several_plans_has_the_moves_and_loads_of_all() -> None:
    first = plan(move(1, 101), move(2, 102), move(3, 103))
    moved = [
        {**move(1, 101), "outcome": "failed", "seconds": 2.0},
        {**move(4, 101, to="pve2"), "outcome": "moved", "seconds": 9.0},
        {**move(5, 102), "outcome": "moved", "seconds": 8.0},
    ]
    course = {"allocatable": load(16, 32), "before": load(8), "peak": load(8), "after": load(3)}
    lines = moves_table({"plan": first, "moves": moved, "loads": {"pve3": course}, "stuck": []})

    assert lines == [
        "drain pve3: 4 move(s), 16.0 GiB",
        "ID  GUEST        FROM  TO    HOW   GIB  OUTCOME       WHY",
        " 1  vm101 (101)  pve3  pve1  live  4.0  failed (2 s)  drains pve3",
        " 3  vm103 (103)  pve3  pve1  live  4.0  -             drains pve3",
        " 4  vm101 (101)  pve3  pve2  live  4.0  moved (9 s)   drains pve3",
        " 5  vm102 (102)  pve3  pve1  live  4.0  moved (8 s)   drains pve3",
        "NODE  BEFORE  PEAK  AFTER    OF  ",
        "pve3     8.0   8.0    3.0  16.0  GiB of memory",
    ]


def test_table__names_the_guests_that_stay() -> None:
    stuck = [{"vmid": 103, "name": "old", "node": "pve3", "why": "it is locked (backup)", "cure": "wait"}]

    assert moves_table(plan(stuck=stuck))[:2] == [
        "drain pve3: nothing moves, 1 guest(s) stay",
        "old (103) stays on pve3: it is locked (backup); wait",
    ]


def test_table__of_a_plan_of_vms_has_the_moves_that_make_room() -> None:
    vms = [{"name": "big", "status": "absent", "actions": ["create", "start"]},
           {"name": "old", "status": "running", "actions": ["update"]},
           {"name": "gone", "status": "absent", "actions": []}]  # fmt: skip
    document = {"vms": vms, "moves": [move(1, 101, why="makes room on pve3 for big")], "nodes": {}}

    expected = [
        "place 1 VM(s): 1 move(s), 4.0 GiB",
        "ID  GUEST        FROM  TO    HOW   GIB  WHY",
        " 1  vm101 (101)  pve3  pve1  live  4.0  makes room on pve3 for big",
    ]
    assert moves_table(document) == moves_table({"changed": True, "vm_plan": document}) == expected


def test_table__has_what_nodes_use_the_hottest_first_and_few_that_do_not_change() -> None:
    def used(before: float, after: float) -> dict[str, Any]:
        return {"cpu": {"before": before, "peak": max(before, after), "after": after, "curve": []}}

    nodes = {f"pve{number}": used(0.3 - number / 100, 0.3 - number / 100) for number in range(1, 8)}
    nodes |= {"pve8": used(0.1, 0.4), "pve9": used(0.9, 0.6)}

    lines = moves_table({"plan": plan(), "moves": [], "usage": {"nodes": nodes}})

    assert lines[-8:-5] == [
        "NODE  USED  BEFORE  PEAK  AFTER",
        "pve9  cpu      90%   90%  60%",
        "pve1  cpu      29%   29%  29%",
    ]
    assert (lines[-2], lines[-1]) == ("pve5  cpu      25%   25%  25%", "pve8  cpu      10%   40%  40%")


@pytest.mark.parametrize("given", [None, [], {}, {"plan": {}}, {"plan": None}])
def test_table__of_something_else_is_refused(given: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="expected a plan"):
        moves_table(given)


def test_table__of_a_failure_without_a_plan_says_why() -> None:
    with pytest.raises(AnsibleFilterError, match="because the module failed: nodes: unknown node 'pve9'"):
        moves_table({"failed": True, "msg": "nodes: unknown node 'pve9'", "error_code": "InvalidRequest"})


def test_cures__name_the_variable_of_the_role() -> None:
    stuck = {"name": "old", "vmid": 103, "node": "pve1", "why": "it is a container", "cure": "containers: restart"}
    plan = {"goal": "drain pve1", "moves": [], "stuck": [stuck], "nodes": {}}
    line = "Options that these lines name belong in node_drain_options, also with -e."
    assert line in moves_table(plan, options_in="node_drain_options")
    assert line not in moves_table({**plan, "stuck": []}, options_in="node_drain_options")
    assert not any("belong in" in each for each in moves_table(plan))
