# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The law of moves knows what a guest asks of its node, and what the HA manager would undo."""

from __future__ import annotations

from dataclasses import replace

import pytest
from law.steps import broken_step
from support.small_cluster import guest, node

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    Demands,
    Guest,
    HARule,
    Processor,
    Snapshot,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import OFFLINE, Move

MOVE = Move(1, 100, "web", "pve1", "pve2", "drains pve1")
HOST = Demands(cpu_type="host")
SNIPPET = ("snippet", "local:snippets/hook.sh")
RULE = HARule("prefer", "node-affinity", frozenset({100}), nodes={"pve1": 2, "pve2": 1})


def cluster(*rules: HARule, **fields: object) -> Snapshot:
    """One guest on the first of three nodes, whose CPUs differ."""
    flags = {"pve1": {"sse", "avx"}, "pve2": {"sse"}, "pve3": {"sse", "avx"}}
    hosts = tuple(
        replace(node(name), processor=Processor("AMD", "x86_64", frozenset(has)), cpu_models=frozenset({"host"}),
                bridges=frozenset({"vmbr0"} if name == "pve2" else {"vmbr0", "vmbr1"}), has={SNIPPET: name != "pve2"})
        for name, has in flags.items()
    )  # fmt: skip
    here: Guest = replace(guest(100, "pve1", gib=1), **fields)  # type: ignore[arg-type]
    return Snapshot(nodes=hosts, guests=(here,), ha_rules=rules)


@pytest.mark.parametrize(
    ("demands", "breaks"),
    [
        (HOST, "pve2 lacks what guest 100 needs: avx"),
        (Demands(bridges=frozenset({"vmbr1"})), "pve2 lacks what guest 100 needs: vmbr1"),
        (Demands(cpu_type="EPYC-Genoa"), "CPUModel does not hold"),
        (Demands(named=frozenset({SNIPPET})), "NamedResources does not hold"),
    ],
)
def test_step__must_not_bring_a_guest_to_a_node_without_what_it_needs(demands: Demands, breaks: str) -> None:
    reasons = broken_step(cluster(demands=demands), (), MOVE)
    assert [breaks in reason for reason in reasons] == [True]


def test_step__may_move_a_guest_that_is_off_to_another_cpu() -> None:
    state = cluster(demands=HOST, status="stopped")
    assert broken_step(state, (), replace(MOVE, how=OFFLINE)) == []
    assert broken_step(cluster(demands=HOST), (), replace(MOVE, target="pve3")) == []


@pytest.mark.parametrize(
    ("rule", "undone"),
    [
        (RULE, True),
        (replace(RULE, nodes={"pve1": 0}), True),
        (replace(RULE, nodes={"pve2": 0}, positive=False), True),
        (replace(RULE, nodes={"pve1": 0, "pve2": 0}), False),
        (replace(RULE, no_failback=frozenset({100})), False),
        (replace(RULE, disabled=True), False),
        (replace(RULE, vmids=frozenset({101})), False),
    ],
)
def test_step__must_not_be_one_that_the_ha_manager_undoes(rule: HARule, undone: bool) -> None:
    reasons = broken_step(cluster(rule, ha_managed=True, ha_state="started"), (), MOVE)
    assert [f"bring guest 100 back because of HA rule {rule.name}" in reason for reason in reasons] == [True] * undone


def test_step__may_leave_a_node_in_maintenance() -> None:
    state = cluster(RULE, ha_managed=True, ha_state="started")
    away = replace(state, nodes=(replace(state.nodes[0], maintenance=True), *state.nodes[1:]))
    assert broken_step(away, (), MOVE) == []
    assert broken_step(away, (), replace(MOVE, target="pve3")) != []
