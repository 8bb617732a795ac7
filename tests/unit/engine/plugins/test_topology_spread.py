# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TopologySpread: evenly over racks or nodes, by Kubernetes' formulas."""

from __future__ import annotations

import math
import typing as t

import pytest
from support.looking import allowed, normalized, reasons, went_to
from support.small_cluster import cluster, guest, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.topology_spread import (
    WITHOUT_LABEL,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.topology_spread import (
    normalize_counts as to_hundred,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    Expression,
    Guest,
    Request,
    Selector,
    SpreadConstraint,
)

WEB = Selector(name="web-.*")
NODES = [
    node("pve1", labels={"rack": "a"}),
    node("pve2", labels={"rack": "a"}),
    node("pve3", labels={"rack": "b"}),
    node("pve4", labels={"rack": "c"}),
    node("pve5"),
]


def over(*at: str, **fields: t.Any) -> Scheduler:
    """With one web VM on each of the nodes at."""
    guests = [guest(100 + n, name, **{"name": f"web-{n}", **fields}) for n, name in enumerate(at)]
    return scheduler(cluster(NODES, guests))


def web(key: str = "rack", name: str = "web-x", selector: Selector = WEB, **fields: t.Any) -> Request:
    spread = {k: fields.pop(k) for k in ("max_skew", "hard") if k in fields}
    return vm(name, topology_spread=(SpreadConstraint(key, selector, **spread),), **fields)


def test_no_domain__gets_ahead_of_the_emptiest() -> None:
    outcome = over("pve1", "pve3").schedule(web())
    assert allowed(outcome) == {"pve4"}
    assert reasons(outcome, "TopologySpread") == {
        "pve1": "would break a topology spread rule over 'rack' (a: skew 2, at most 1)",
        "pve2": "would break a topology spread rule over 'rack' (a: skew 2, at most 1)",
        "pve3": "would break a topology spread rule over 'rack' (b: skew 2, at most 1)",
        "pve5": "didn't have label 'rack' of a topology spread rule",
    }


def test_wider_skew__lets_more_through() -> None:
    assert allowed(over("pve1", "pve3").schedule(web(max_skew=2))) == {"pve1", "pve2", "pve3", "pve4"}
    assert allowed(over("pve1", "pve2", "pve3").schedule(web(max_skew=2))) == {"pve3", "pve4"}


def test_vm_that_is_not_among_the_selected__adds_nothing() -> None:
    assert allowed(over("pve1").schedule(web(name="db-1"))) == {"pve1", "pve2", "pve3", "pve4"}


def test_vm_that_is_among_the_selected__shares_no_verdict_with_one_that_is_not() -> None:
    where = over("pve1")
    assert "pve1" in allowed(where.schedule(web(name="db-1", node_regex="pve[12]|pve3")))
    assert "pve1" not in allowed(where.schedule(web(name="web-9", node_regex="pve[12]|pve3")))


def test_run__goes_round_the_racks() -> None:
    racks = {"pve1": "a", "pve2": "a", "pve3": "b", "pve4": "c"}
    placed = went_to(over(), *[web(name=f"web-{n}") for n in range(9)])
    for start in (0, 3, 6):
        assert {racks[str(name)] for name in placed[start : start + 3]} == {"a", "b", "c"}


def test_run__goes_round_the_nodes() -> None:
    placed = went_to(over(), *[web("node", name=f"web-{n}") for n in range(10)])
    assert set(placed[:5]) == set(placed[5:]) == {"pve1", "pve2", "pve3", "pve4", "pve5"}


def test_vm_that_is_taken_back__leaves_its_domain_the_emptiest() -> None:
    for key in ("rack", "node"):
        where = over()
        decisions = [where.schedule(web(key, name=f"web-{n}", node_regex="pve[134]")).decision for n in range(3)]
        taken_back = decisions[1]
        assert taken_back is not None
        where.undo(taken_back)
        assert allowed(where.schedule(web(key, name="web-9", node_regex="pve[134]"))) == {taken_back.node}


def test_domains__count_only_where_the_request_may_have_them() -> None:
    """Rack c is empty, but is none of this VM's."""
    for fields in (
        {"node_regex": "pve[123]"},
        {"context": {"node.qemu-scheduler/regex": "pve[123]"}},
        {"node_required": (Expression("rack", "In", ("a", "b")),)},
    ):
        outcome = over("pve1", "pve3").schedule(web(**fields))
        assert allowed(outcome) == {"pve1", "pve2", "pve3"}
    assert allowed(over("pve1").schedule(web(node="pve1"))) == {"pve1"}


def test_vms_on_nodes_that_the_request_may_not_have__do_not_count() -> None:
    outcome = over("pve2", "pve2").schedule(web(node_regex="pve[13]"))
    assert allowed(outcome) == {"pve1", "pve3"}


def test_templates__do_not_count_and_stopped_vms_do() -> None:
    assert "pve1" in allowed(over("pve1", template=True).schedule(web()))
    assert "pve1" not in allowed(over("pve1", status="stopped").schedule(web()))


def test_all_constraints__must_hold() -> None:
    both = vm("web-x", topology_spread=(SpreadConstraint("rack", WEB), SpreadConstraint("node", WEB)))
    # Rack a may take one more, but of its nodes only the empty one.
    assert allowed(over("pve1", "pve3", "pve4").schedule(both)) == {"pve2"}


def test_requests_that_may_have_other_nodes__share_no_counts() -> None:
    """Not even where the filters that would keep them apart are turned off."""
    disabled = {"enable": False}
    off = {
        "filters": {"NodeName": disabled, "NodeRegex": disabled, "NodeAffinity": disabled},
        "scores": {"NodeAffinity": disabled},
    }
    guests = [guest(100 + n, at, name=f"web-{n}") for n, at in enumerate(("pve1", "pve1", "pve3", "pve3"))]
    for fields in (
        {"node": "pve1"},
        {"node_regex": "pve[12]"},
        {"node_required": (Expression("rack", "In", ("a",)),)},
    ):
        where = scheduler(cluster(NODES, guests), off)
        assert "pve1" not in allowed(where.schedule(web(name="web-7")))
        assert "pve1" in allowed(where.schedule(web(name="web-8", **fields)))


def test_soft_constraint__refuses_nobody_and_prefers_the_emptier() -> None:
    outcome = over("pve1", "pve2", "pve3").schedule(web(hard=False))
    assert len(allowed(outcome)) == 5
    # 2, 1 and 0 VMs: 100 x (2 + 0 - n) / 2
    assert normalized(outcome, "TopologySpread") == {"pve1": 0, "pve2": 0, "pve3": 50, "pve4": 100, "pve5": 0}


def test_domain__weighs_more_where_there_are_more_of_them() -> None:
    outcome = over("pve1").schedule(web(hard=False, max_skew=3))
    raw = {v.node: v.scores["TopologySpread"].raw for v in outcome.verdicts()}
    assert raw["pve1"] == pytest.approx(math.log(3 + 2) + 2)
    assert raw["pve4"] == 2
    assert raw["pve5"] == WITHOUT_LABEL
    few = over("pve1").schedule(web(hard=False, node_regex="pve[1-3]"))
    assert few.verdicts()[0].scores["TopologySpread"].raw == pytest.approx(math.log(2 + 2))


def test_all_domains__are_best_when_none_holds_any() -> None:
    assert to_hundred([0.0, 0.0, WITHOUT_LABEL]) == [100.0, 100.0, 0.0]
    assert to_hundred([]) == []


def test_hard_constraints_alone__are_not_scored() -> None:
    assert normalized(over().schedule(web()), "TopologySpread") == {}
    assert normalized(over().schedule(vm()), "TopologySpread") == {}


def test_any_guest__may_be_selected() -> None:
    where = scheduler(cluster(NODES, [Guest(100, None, "pve1", kind="lxc", tags=frozenset({"web"}))]))
    assert allowed(where.schedule(web(selector=Selector(tags=frozenset({"web"})), tags=frozenset({"web"})))) == {
        "pve3",
        "pve4",
    }
