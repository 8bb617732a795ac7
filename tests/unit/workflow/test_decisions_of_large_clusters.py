# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much a task reports of one decision on a cluster of many nodes."""

from __future__ import annotations

import json

import pytest
from support.small_cluster import cluster, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.decisions import explain
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.verdicts import Outcome
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.result import decision_result


def decided(nodes: int) -> Outcome:
    """On nodes that are the emptier the later they come; every third one is offline."""
    found = [node(f"n{number:03}", cores=8 + number, online=number % 3 != 0) for number in range(nodes)]
    return scheduler(cluster(found)).schedule(vm())


def test_decision__of_fifty_nodes_reports_all() -> None:
    assert len(decision_result(decided(50))["nodes"]) == 50


def test_decision__of_a_thousand_nodes_stays_small() -> None:
    result = decision_result(decided(1000))
    assert [row["node"] for row in result["nodes"]] == ["n998", "n997", "n995", "n994", "n992"]
    assert result["node"] == "n998"
    assert result["runner_up"]["node"] == "n997"
    rejection = {"rejected_by": "NodeReady", "count": 334, "nodes": ["n000", "n003", "n006", "n009", "n012"]}
    assert [{key: row[key] for key in rejection} for row in result["rejections"]] == [rejection]
    assert len(json.dumps(result)) < 8000


def test_decision__reports_all_nodes_on_request() -> None:
    outcome = decided(120)
    result = decision_result(outcome, in_full=120)
    assert [row["node"] for row in result["nodes"]] == [verdict.node for verdict in outcome.verdicts()]


@pytest.mark.parametrize(("nodes", "summed_up"), [(50, False), (60, True)])
def test_explain__sums_up_the_rejections_of_nodes_that_are_not_reported(nodes: int, summed_up: bool) -> None:
    lines = "\n".join(explain([{"name": "web", "decision": decision_result(decided(nodes))}]))
    assert ("20 node(s) (n000, n003, n006, n009, n012, ...)  rejected by node state" in lines) is summed_up
