# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Scores that are not bounded are kept as well: decisions and verdicts are those of asking every node each time."""

from __future__ import annotations

import random

import pytest
from support.small_cluster import guest, node, profile, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.verdicts import Outcome
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    AffinityTerm,
    Decision,
    Request,
    Selector,
    Snapshot,
    SpreadConstraint,
)

WEB, DB = Selector(name="web-.*"), Selector(tags=frozenset({"db"}))
RULES: dict[str, dict[str, object]] = {
    "affinity by node": {"affinity": (AffinityTerm(True, DB, required=False, weight=3),)},
    "affinity by zone": {"affinity": (AffinityTerm(False, WEB, required=False, topology_key="zone"),)},
    "affinity by both": {
        "affinity": (
            AffinityTerm(False, WEB, required=False),
            AffinityTerm(True, DB, required=False, topology_key="zone", weight=5),
        )
    },
    "required by zone, preferred by rack": {
        "affinity": (
            AffinityTerm(True, WEB, topology_key="zone"),
            AffinityTerm(False, WEB, required=False, topology_key="rack"),
        )
    },
    "spread by node": {"topology_spread": (SpreadConstraint("node", WEB, hard=False),)},
    "spread by zone": {"topology_spread": (SpreadConstraint("zone", WEB, hard=False),)},
    "hard by zone, soft by node": {
        "topology_spread": (SpreadConstraint("zone", WEB), SpreadConstraint("node", WEB, hard=False))
    },
    "hard by node, soft by rack": {
        "topology_spread": (SpreadConstraint("node", WEB, 2), SpreadConstraint("rack", WEB, hard=False))
    },
}
PROFILES = {
    "default": profile(),
    "FewestGuests": profile({"scores": {"FewestGuests": {"enable": True}}}),
    "a plain filter": profile({"filters": {"FailoverHeadroom": {"enable": True}}}),
}


def snapshot(chance: random.Random) -> Snapshot:
    """Enough nodes that a zone holds several; some have no zone."""
    nodes = [
        node(
            f"n{number}",
            cores=chance.randint(2, 6),
            gib=chance.randint(4, 12),
            labels={key: chance.choice("ab") for key in ("zone", "rack") if chance.random() < 0.9},
        )
        for number in range(chance.randint(5, 9))
    ]
    guests = [
        guest(1000 + n, chance.choice(nodes).name, name=chance.choice(["web-0", "x"]), tags=frozenset({"db"}))
        for n in range(5)
    ]
    return Snapshot(nodes=tuple(nodes), guests=tuple(guests))


def told(outcome: Outcome) -> object:
    """Who is told first of several reasons differs."""
    feasible = [verdict for verdict in outcome.verdicts() if verdict.feasible]
    return outcome.decision, outcome.runner_up, [(v.node, v.score, dict(v.scores)) for v in feasible]


@pytest.mark.parametrize("with_profile", PROFILES)
@pytest.mark.parametrize("rules", RULES)
def test_soft_rules__score_the_same_whether_shared_or_not(rules: str, with_profile: str) -> None:
    profiles = {"balanced": PROFILES[with_profile]}
    for seed in range(12):
        chance = random.Random(f"{rules}/{with_profile}/{seed}")
        data = snapshot(chance)
        kept = Scheduler(ClusterState(data), profiles)
        fresh = Scheduler(ClusterState(data), profiles, sharing=False)
        placed: list[Decision] = []
        told_first: list[tuple[Outcome, object]] = []
        for number in range(12):
            if placed and chance.random() < 0.25:
                decision = placed.pop(chance.randrange(len(placed)))
                kept.undo(decision)
                fresh.undo(decision)
            request = _request(chance, rules, number)
            one, two = kept.schedule(request), fresh.schedule(request)
            assert told(one) == told(two)
            told_first.append((one, told(one)))
            if one.decision is not None:
                placed.append(one.decision)
        for outcome, first in told_first:
            assert told(outcome) == first


def _request(chance: random.Random, rules: str, number: int) -> Request:
    if chance.random() < 0.3:
        return vm(f"db-{number}", tags=frozenset({"db"}))
    return vm(f"web-{number}", cores=chance.choice([1, 1, 2]), **RULES[rules])
