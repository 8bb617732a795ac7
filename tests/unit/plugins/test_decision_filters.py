# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the filters make of results of qemu_schedule."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.capacity import capacity_table
from ansible_collections.qemu_scheduler.proxmox.plugins.filter.decisions import (
    decision_table,
    explain,
    rank_nodes,
    vm_facts,
)


def passed(node: str, score: float, **plugins: float) -> dict[str, Any]:
    scores = {name: {"raw": value, "normalized": value, "weight": 1.0} for name, value in plugins.items()}
    return {"node": node, "feasible": True, "score": score, "scores": scores, "rejected_by": None, "reason": None}


def rejected(node: str, plugin: str, reason: str) -> dict[str, Any]:
    return {
        "node": node, "feasible": False, "score": None, "scores": {}, "rejected_by": plugin, "reason": reason,
    }


def placed(name: str, node: str, vmid: int, *nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    score = next(n["score"] for n in nodes if n["node"] == node)
    decision = {"node": node, "vmid": vmid, "score": score, "nodes": list(nodes), "findings": {}}
    vm = {
        "name": name, "vmid": vmid, "node": node, "status": "running", "changed": True, "action": "create",
        "actions": ["create", "start"], "tags": [], "storages": {"scsi0": "ceph"}, "drift": {}, "decision": decision,
    }
    return {**vm, **more}


def existing(**more: Any) -> dict[str, Any]:
    vm = {
        "name": "db", "vmid": 100, "node": "pve1", "status": "running", "changed": False, "action": "none",
        "actions": [], "tags": [], "storages": {}, "drift": {}, "decision": None,
    }
    return {**vm, **more}


DOWN = rejected("pve3", "NodeReady", "were offline")
WEB = placed("web", "pve2", 120, passed("pve1", 70.0), passed("pve2", 80.25), DOWN)
ONLY = placed(
    "big", "pve3", 121, passed("pve3", 50.0),
    rejected("pve1", "MemoryOvercommit", "would exceed it (9 GiB against 8)"),
    rejected("pve2", "MemoryOvercommit", "would exceed it (7 GiB against 6)"),
    rejected("pve4", "NodeReady", "were offline"),
)
HELD_BACK = {
    **WEB, "node": None, "vmid": None, "storages": {}, "status": "absent", "changed": False, "action": "none",
    "actions": [], "not_done": ["create", "start"], "decision": {**WEB["decision"], "storages": {"scsi0": "ceph"}},
}
FAILED = existing(
    name="lost", vmid=None, node=None, status=None, error={"code": "NoNodesAvailable", "message": "0/3 nodes"},
    decision={
        "node": None, "vmid": None, "score": None, "nodes": [rejected("pve1", "NodeRegex", "didn't match")],
        "findings": {"WhatIf": {"rules": {"NodeRegex": ["pve1"]}, "nearest": None}, "Own": "ask Ann"},
    },
)


def test_row__says_how_far_ahead_the_node_is_and_how_many_fit() -> None:
    assert decision_table([WEB]) == [
        "VM   ACTION        NODE  VMID  STORAGE  SCORE  WHY",
        "web  create+start  pve2   120  ceph      80.2  10.2 ahead of pve1, 2 of 3 nodes fit",
    ]


def test_tie__is_called_one() -> None:
    tied = placed("web", "pve1", 120, passed("pve1", 70.0), passed("pve2", 70.0))
    assert decision_table([tied])[1].endswith("level with pve2, 2 of 2 nodes fit")


def test_only_node__is_explained_by_what_rejected_the_others_without_their_figures() -> None:
    assert decision_table([ONLY])[1].endswith("the only node: 2 would exceed it, 1 was offline")


def test_failed_vm__says_why_with_its_code() -> None:
    assert decision_table([FAILED])[1].split("  ") == ["lost", "failed", "NoNodesAvailable: 0/3 nodes"]


def test_what_was_not_done_because_of_another_vm__says_so_and_where_it_would_be() -> None:
    totals, _headings, failed, held_back = decision_table([HELD_BACK, FAILED])
    assert totals == "2 VMs: 1 failed, 1 not done"
    assert failed.startswith("lost")
    assert held_back.split()[:5] == ["web", "create+start", "pve2", "120", "ceph"]
    assert held_back.endswith("not done, because another VM failed")
    assert explain([HELD_BACK])[0].startswith("web: create+start on pve2 as 120, disks on ceph: not done, because")
    update = existing(drift={"cores": {"old": 2, "new": 4}}, not_done=["update"])
    assert explain([update]) == ["db: not done, because another VM failed"]


@pytest.mark.parametrize(
    ("vm", "why"),
    [
        (existing(), "exists, nothing differs"),
        (existing(drift={"cores": {"old": 2, "new": 4}}), "exists, not changed without update: cores 2 => 4"),
        (
            existing(pending={"cores": {"old": None, "new": 4}}),
            "exists, nothing differs; pending until it is stopped and started: cores unset => 4",
        ),
        (
            existing(drift={"tags": {"old": None, "new": "a"}}, actions=["update"], changed=True),
            "tags unset => a",
        ),
        (existing(actions=["finish"], changed=True), "was begun and not finished"),
        (
            existing(drift={"cores": {"old": 2, "new": 4}}, actions=["finish", "start"], changed=True),
            "was begun and not finished: cores 2 => 4",
        ),
        (existing(status="absent"), "does not exist"),
        (existing(status="absent", actions=["stop", "delete"], changed=True), "removed with its disks"),
    ],
)
def test_existing_vm__says_what_became_of_it(vm: dict[str, Any], why: str) -> None:
    assert decision_table([vm])[1].endswith(f"  {why}")


def test_disks_on_several_storages__are_told_apart() -> None:
    row = decision_table([{**WEB, "storages": {"scsi1": "nfs", "scsi0": "ceph"}}])[1]
    assert "  scsi0=ceph,scsi1=nfs  " in row


def test_columns_without_a_value__are_left_out() -> None:
    assert decision_table([existing()])[0].split() == ["VM", "ACTION", "NODE", "VMID", "WHY"]


def test_long_reason__goes_on_below_itself() -> None:
    lines = decision_table([ONLY], width=80)
    column = lines[0].index("WHY")
    assert len(lines) > 2
    assert all(line.startswith(" " * column) and not line[column].isspace() for line in lines[2:])


def test_many_vms__fit_a_page() -> None:
    unchanged = [existing(name=f"db-{number}", vmid=200 + number) for number in range(60)]
    lines = decision_table([*unchanged, WEB, FAILED], width=100)
    assert lines[0] == "62 VMs: 1 failed, 1 create+start, 60 unchanged"
    assert [line.split()[0] for line in lines[1:4]] == ["VM", "lost", "web"]
    assert lines[4].startswith("unchanged: db-0, db-1, ")
    assert len(lines) < 12


def test_many_new_vms__have_a_row_for_each_node_and_action() -> None:
    nodes = [passed("pve1", 70.0), passed("pve2", 70.0)]
    new = [placed(f"web-{number}", f"pve{number % 2 + 1}", 100 + number, *nodes) for number in range(62)]
    for width in (80, 120):
        lines = decision_table([*new, FAILED, existing(actions=["update"], changed=True)], width)
        assert lines[0] == "64 VMs: 1 failed, 62 create+start, 1 update"
        assert next(line for line in lines if line.startswith("pve1")).split()[:4] == [
            "pve1", "create+start", "web-0", "(100),",
        ]  # fmt: skip
        assert all(f"web-{number} ({100 + number})" in " ".join(" ".join(lines).split()) for number in range(62))
        assert max(map(len, lines)) <= width
        assert len(lines) < 40


def test_many_failures__are_told_of_the_first_and_named_of_the_rest() -> None:
    lines = decision_table([*({**FAILED, "name": f"lost-{number}"} for number in range(30)), *[HELD_BACK] * 30], 120)
    assert lines[0] == "60 VMs: 30 failed, 30 not done"
    assert sum("NoNodesAvailable" in line for line in lines) == 20
    assert "failed: lost-20, lost-21" in lines[-4] + lines[-3]
    assert lines[-2].startswith("not done: ")


@pytest.mark.parametrize("width", [44, 80, 120])
def test_lines__fit_the_width(width: int) -> None:
    lines = [*decision_table([WEB, ONLY, FAILED, HELD_BACK], width), *explain([WEB, ONLY, FAILED], width)]
    assert max(map(len, lines)) <= width
    assert any("121" in line.replace(",", " ").split() for line in lines)


def test_no_vms__are_said_to_be_none() -> None:
    assert decision_table([]) == ["no VMs"]


def test_explanation__ranks_the_nodes_and_gives_each_its_reason() -> None:
    weighted = passed("pve1", 70.0, A=60.0, B=80.0)
    weighted["scores"]["B"]["weight"] = 2.0
    vm = placed("web", "pve2", 120, weighted, passed("pve2", 80.0, A=80.0), DOWN)
    assert explain([vm]) == [
        "web: create+start on pve2 as 120, disks on ceph: 10.0 ahead of pve1, 2 of 3 nodes fit",
        "   1. pve2  80.0 = A 80.0",
        "   2. pve1  70.0 from A 60.0, B 80.0 x 2",
        "   -  pve3  rejected by node state: was offline",
    ]


def test_cluster__is_named_where_a_task_is_about_several() -> None:
    tried = [
        {"cluster": "eu", "node": "pve2", "score": 80.25, "preference": 100.0, "reason": None},
        {"cluster": "us", "node": None, "score": None, "preference": 0.0, "reason": "no route to host"},
    ]
    vm = {**WEB, "cluster": "eu", "decision": {**WEB["decision"], "clusters": tried}}
    assert decision_table([vm])[0].split()[:4] == ["VM", "ACTION", "CLUSTER", "NODE"]
    assert decision_table([vm])[1].split()[:4] == ["web", "create+start", "eu", "pve2"]
    assert explain([vm])[:3] == [
        "web: create+start on cluster eu, pve2 as 120, disks on ceph: 10.2 ahead of pve1, 2 of 3 nodes fit",
        "   -  cluster eu  80.2 on pve2, preference 100.0",
        "   -  cluster us  no route to host",
    ]
    assert vm_facts([vm])[0]["cluster"] == "eu"


def test_findings_of_plugins__end_the_explanation() -> None:
    assert explain([FAILED])[-2:] == ["      Own: ask Ann", "      Without node_regex, pve1 would fit"]


def test_explanations__are_apart_from_each_other() -> None:
    assert explain([existing(), existing()]) == ["db: exists, nothing differs", "", "db: exists, nothing differs"]


def test_nodes_with_one_score__have_the_chosen_one_first() -> None:
    vm = placed("web", "pve2", 120, passed("pve1", 70.0), passed("pve2", 70.0))
    assert [node["node"] for node in rank_nodes(vm)] == ["pve2", "pve1"]


def test_facts__leave_out_what_is_not_there() -> None:
    vms = [WEB, FAILED, existing(status="absent"), HELD_BACK, existing()]
    assert [fact["name"] for fact in vm_facts(vms)] == ["web", "db"]


def test_facts__carry_addresses_and_no_reasons() -> None:
    addresses = [{"vmid": 120, "node": "pve2", "address": "192.0.2.7", "addresses": ["192.0.2.7"]}]
    (fact,) = vm_facts([WEB], addresses)
    assert fact["address"] == "192.0.2.7"
    assert "decision" not in fact
    assert vm_facts([existing()], addresses)[0]["address"] is None


def test_capacity_table__says_what_runs_out_where() -> None:
    nodes = [
        {"node": "pve1", "fit": 12, "limited_by": "memory", "reason": "would exceed it"},
        {"node": "pve2", "fit": 0, "limited_by": None, "reason": None},
        {"node": "pve3", "fit": 0, "limited_by": "NodeReady", "reason": "were offline"},
    ]
    shapes = [{"name": "app", "fit": 7}, {"name": "db", "fit": 5}]
    assert capacity_table({"total": 12, "limited_by": "memory", "shapes": shapes, "nodes": nodes}) == [
        "12 more fit if placed in turn until one does not (7 app, 5 db), limited by memory",
        "NODE  FIT  LIMITED BY  WHY NO MORE",
        "pve1   12  memory      would exceed it",
        "pve2    0  -           -",
        "pve3    0  node state  was offline",
    ]
    shapes = [
        {"name": "app", "fit": 7, "more": 40, "limited_by": "cpu"},
        {"name": "db", "fit": 5, "more": 0, "limited_by": "memory"},
        {"name": "x", "fit": 5, "more": 9, "limited_by": None},
    ]
    assert capacity_table({"total": 17, "shapes": shapes, "nodes": nodes})[:2] == [
        "17 more fit if placed in turn until one does not (7 app, 5 db, 5 x)",
        "After these, 40 more app (limited by cpu) and 9 more x fit",
    ]


@pytest.mark.parametrize("wrong", ["text", {"vms": []}, [1], None])
def test_other_data__is_refused(wrong: Any) -> None:
    for filter_ in (decision_table, explain, vm_facts):
        with pytest.raises(AnsibleFilterError, match="list of VMs"):
            filter_(wrong)
    with pytest.raises(AnsibleFilterError, match="capacity_info"):
        capacity_table(wrong)


def test_table__shows_addresses_and_the_reason_of_an_applied_plan() -> None:
    vm = {
        "name": "web-1", "vmid": 104, "node": "pve2", "status": "running", "changed": True, "actions": ["create"],
        "storages": {}, "host": {"name": "web-1", "groups": [], "vars": {"ansible_host": "192.0.2.7"}},
        "why": 'VM "web-1" goes to pve2 as 104 with score 88.4, 3.1 ahead of pve3',
        "decision": {"node": "pve2", "vmid": 104, "score": 1.0, "nodes": [], "rejections": [], "storages": {}},
    }  # fmt: skip
    heading, row = decision_table([vm], width=200)
    assert "ADDRESS" in heading
    assert "192.0.2.7" in row
    assert row.endswith("as planned: 3.1 ahead of pve3")
