# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of a VM that could not be placed, and of the node that came second."""

from __future__ import annotations

import json

import pytest
from support.small_cluster import cluster, guest, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.findings import sentence
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.verdicts import RunnerUp
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    CloneSource,
    Disk,
    Storage,
    Template,
)

NODES = [node("pve1"), node("pve2"), node("pve3", online=False)]
GUESTS = [guest(100, "pve1", gib=30), guest(101, "pve2", cores=30, gib=28)]


def test_single_rules_whose_lifting_would_help__are_named_with_the_nodes() -> None:
    findings = scheduler(cluster(NODES, GUESTS)).schedule(vm(cores=4, gib=4)).findings["WhatIf"]
    assert findings["rules"] == {"CPUOvercommit": ["pve2"], "MemoryOvercommit": ["pve1"], "NodeReady": ["pve3"]}


def test_message__names_the_nodes_and_what_would_have_to_change() -> None:
    nodes = [node("pve1", gib=8), node("pve2", gib=4), node("pve3", gib=64, maintenance=True)]
    assert scheduler(cluster(nodes)).schedule(vm("web", gib=10)).message == (
        '0/3 nodes are available for VM "web": 2 node(s) would exceed the memory overcommit ratio 1.0 (pve1, pve2), '
        "1 node(s) were in HA maintenance (pve3); without MemoryOvercommit, pve1 and pve2 would fit; "
        "the closest is pve1: 2.0 GiB of memory short"
    )


def test_message__names_some_of_many_nodes() -> None:
    nodes = [node(f"pve{number}", gib=8) for number in range(1, 9)]
    assert "(pve1, pve2, pve3, pve4, pve5, 3 more)" in scheduler(cluster(nodes)).schedule(vm("web", gib=10)).message


def test_node_that_two_rules_refuse__is_in_nobodys_list() -> None:
    findings = scheduler(cluster(NODES[:1], GUESTS[:1])).schedule(vm(cores=40, gib=4)).findings["WhatIf"]
    assert findings["rules"] == {}
    assert findings["nearest"] == {
        "node": "pve1",
        "missing": {"cpu": 9, "memory": 2 * GIB},
        "also": ["VCPULimit"],
    }


def test_nearest_node__lacks_the_smallest_part_of_what_is_asked_for() -> None:
    outcome = scheduler(cluster(NODES, GUESTS)).schedule(vm(cores=4, gib=8))
    # pve1 lacks 6 of 8 GiB; pve2 2 of 4 vCPUs and 4 of 8 GiB.
    assert outcome.findings["WhatIf"]["nearest"] == {"node": "pve1", "missing": {"memory": 6 * GIB}, "also": []}
    outcome = scheduler(cluster(NODES, GUESTS)).schedule(vm(cores=4, gib=5))
    assert outcome.findings["WhatIf"]["nearest"]["node"] == "pve1"
    outcome = scheduler(cluster(NODES, GUESTS)).schedule(vm(cores=3, gib=4))
    assert outcome.findings["WhatIf"]["nearest"]["node"] == "pve2"


def test_node_that_other_rules_refuse_as_well__is_farther_off() -> None:
    outcome = scheduler(cluster(NODES, GUESTS)).schedule(vm(cores=4, gib=8, node="pve2"))
    nearest = outcome.findings["WhatIf"]["nearest"]
    assert (nearest["node"], nearest["also"]) == ("pve2", [])
    outcome = scheduler(cluster(NODES, GUESTS)).schedule(vm(cores=4, gib=8, node="pve3"))
    assert outcome.findings["WhatIf"]["nearest"]["also"] == ["NodeName"]


def test_missing_storage__is_told_in_bytes() -> None:
    storages = (
        Storage("local", "pve1", total=100 * GIB, used=95 * GIB),
        Storage("local", "pve2", total=100 * GIB, used=70 * GIB),
    )
    state = cluster([node("pve1"), node("pve2")], storages=storages)
    outcome = scheduler(state).schedule(vm(disks=(Disk("scsi0", size=40 * GIB, storage="local"),)))
    assert outcome.findings["WhatIf"]["nearest"] == {"node": "pve2", "missing": {"storage": 10 * GIB}, "also": []}
    outcome = scheduler(state).schedule(vm(disks=(Disk("scsi0", size=40 * GIB),)))
    assert outcome.findings["WhatIf"]["nearest"]["missing"] == {"storage": 10 * GIB}


def test_what_a_clone_asks_for__is_what_its_template_holds() -> None:
    storages = [Storage("local", name, total=gib * GIB) for name, gib in (("pve1", 10), ("pve2", 50))]
    templates = tuple(Template(900 + n, f"pve{n}", "golden", (("scsi0", "local", 20 * GIB),)) for n in (1, 2))
    state = cluster([node("pve1"), node("pve2")], [guest(100, "pve2", gib=31)], storages=storages)
    outcome = scheduler(state).schedule(vm(gib=8, clone=CloneSource(templates)))
    # pve1 lacks half of 20 GiB of storage, pve2 seven eighths of the memory.
    assert outcome.findings["WhatIf"]["nearest"] == {"node": "pve1", "missing": {"storage": 10 * GIB}, "also": []}


def test_node_that_is_offline_or_in_maintenance__is_nearest_only_where_no_other_is_left() -> None:
    away = [node("pve1", gib=64, online=False), node("pve2", gib=64, maintenance=True)]
    findings = scheduler(cluster([*away, node("pve3", gib=8)])).schedule(vm(gib=128)).findings["WhatIf"]
    assert findings["nearest"] == {"node": "pve3", "missing": {"memory": 120 * GIB}, "also": []}
    findings = scheduler(cluster(away)).schedule(vm(gib=128)).findings["WhatIf"]
    assert findings["nearest"] == {"node": "pve1", "missing": {"memory": 64 * GIB}, "also": ["NodeReady"]}
    assert scheduler(cluster([])).schedule(vm()).findings["WhatIf"] == {
        "rules": {},
        "nearest": None,
        "summary": "",
    }


def test_sentence__names_who_refuses_the_nearest_node_where_nothing_is_short() -> None:
    state = cluster([node("pve1"), node("pve2", maintenance=True)])
    findings = scheduler(state).schedule(vm(node="pve9", node_regex="web.*")).findings["WhatIf"]
    assert findings["rules"] == {}
    assert findings["nearest"] == {"node": "pve1", "missing": {}, "also": ["NodeName", "NodeRegex"]}
    assert sentence(findings) == "The closest is pve1: refused by node and node_regex"
    findings = scheduler(state).schedule(vm(node="pve2")).findings["WhatIf"]
    assert sentence(findings) == "Without node, pve1 would fit; without NodeReady, pve2 would fit"


def test_rule_that_refuses_every_node_before_any_is_looked_at__is_named_too() -> None:
    outcome = scheduler(cluster([node("pve1"), node("pve2")])).schedule(vm(context={"delay": "5"}), now=1.0)
    assert outcome.findings["WhatIf"]["rules"] == {"Delay": ["pve1", "pve2"]}
    outcome = scheduler(cluster([node("pve1"), node("pve2")])).schedule(vm(gib=64, context={"delay": "5"}), now=1.0)
    assert outcome.findings["WhatIf"]["rules"] == {}


def test_findings__follow_what_the_run_decides() -> None:
    engine = scheduler(cluster([node("pve1")]))
    missing = []
    for _again in range(2):
        missing.append(engine.schedule(vm("big", gib=40)).findings["WhatIf"]["nearest"]["missing"]["memory"] // GIB)
        assert engine.schedule(vm("small", gib=4)).decision is not None
    assert missing == [8, 12]


def test_findings__are_data_that_a_module_can_return() -> None:
    findings = scheduler(cluster(NODES, GUESTS)).schedule(vm(cores=4, gib=8)).findings
    assert json.loads(json.dumps(findings)) == findings


def test_findings__read_as_one_sentence() -> None:
    findings = scheduler(cluster(NODES, GUESTS)).schedule(vm(cores=4, gib=4)).findings["WhatIf"]
    assert sentence(findings) == (
        "Without CPUOvercommit, pve2 would fit; without MemoryOvercommit, pve1 would fit; "
        "without NodeReady, pve3 would fit; the closest is pve1: 2.0 GiB of memory short"
    )


def test_sentence__names_a_few_nodes_and_counts_the_others() -> None:
    rules = {"NodeReady": [f"pve{number}" for number in range(1, 8)]}
    assert sentence({"rules": rules, "nearest": None}) == (
        "Without NodeReady, pve1, pve2, pve3, pve4, pve5 and 2 more would fit"
    )
    assert sentence({"rules": {}, "nearest": None}) == ""


def test_sentence__tells_every_resource_with_its_unit_and_who_else_refused() -> None:
    nearest = {"node": "a", "missing": {"cpu": 1.0, "memory": GIB, "storage": 1.5 * GIB}, "also": ["NodeReady"]}
    assert sentence({"rules": {}, "nearest": nearest}) == (
        "The closest is a: 1 vCPU, 1.0 GiB of memory and 1.5 GiB of storage short, and refused by NodeReady"
    )


def test_runner_up__is_the_next_best_node_and_its_distance() -> None:
    state = cluster([node("pve1"), node("pve2"), node("pve3")], [guest(100, "pve1", gib=16), guest(101, "pve3", gib=8)])
    outcome = scheduler(state).schedule(vm())
    assert outcome.decision is not None
    assert outcome.decision.node == "pve2"
    assert outcome.runner_up == RunnerUp("pve3", pytest.approx(outcome.decision.score - 100 * (30 / 32 + 23 / 32) / 2))


def test_there__is_no_runner_up_when_one_node_alone_passed_or_none() -> None:
    state = cluster([node("pve1"), node("pve2")])
    assert scheduler(state).schedule(vm(node="pve1")).runner_up is None
    assert scheduler(state).schedule(vm("b", node="pve9")).runner_up is None
