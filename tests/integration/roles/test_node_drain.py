# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook that empties a node, as a user runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from simulated_cluster.client import SimulatedCluster
from support.playbook import EMPTY

from .conftest import Play

OPTIONS = {"node_drain_nodes": "pve1", "node_drain_options": {"containers": "restart"}}


def on(cluster: SimulatedCluster, node: str) -> set[int]:
    return {vmid for vmid, guest in cluster.state()["guests"].items() if guest["node"] == node}


def test_drain__keeps_the_plan_and_shows_its_moves_as_they_happen_and_their_results(
    cluster: SimulatedCluster, play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path of the plan begins where ansible-playbook was started."""
    monkeypatch.setenv("PWD", str(tmp_path))
    before = on(cluster, "pve1")
    page = tmp_path / "drain.html"
    options = {**OPTIONS, "node_drain_page": str(page)}

    planned = play("drain", {**options, "node_drain_plan_file": "plan.json"}, "--check", "--diff")
    assert planned.code == 0, planned.output
    assert page.read_text(encoding="utf-8").count(">planned</span>") == len(before)
    assert f"drain pve1: {len(before)} move(s)" in planned.output
    assert {move["vmid"] for move in json.loads((tmp_path / "plan.json").read_text())["moves"]} == before
    assert on(cluster, "pve1") == before

    done = play("drain", {**options, "node_drain_apply": "plan.json"})
    assert done.code == 0, done.output
    assert page.read_text(encoding="utf-8").count(">moved</span>") == len(before)
    assert on(cluster, "pve1") == set()
    lines = re.findall(r"^moves: (\d+)/(\d+) .* moved, pve1 to pve\d \(\d+\.\d s\)$", done.output, re.MULTILINE)
    assert [int(number) for number, _total in lines] == list(range(1, len(before) + 1))
    assert "changed=1 " in done.output

    assert "changed=0 " in play("drain", OPTIONS).output


def test_drain__fails_at_its_end_when_guests_stay(cluster: SimulatedCluster, play: Play, tmp_path: Path) -> None:
    page = tmp_path / "drain.html"
    run = play("drain", {"node_drain_nodes": ["pve3"], "node_drain_page": str(page)}, "--check")

    assert run.code == 2
    assert "it runs with mapped devices" in page.read_text(encoding="utf-8")
    assert "render-1 (120) stays on pve3: it runs with mapped devices" in run.output
    assert "GoalsNotReached: pve3 cannot be drained completely" in run.output
    assert "(node_drain_options: {vms_not_live: restart})" in run.last["msg"]


def test_drain__with_a_misspelt_variable_does_nothing(play: Play) -> None:
    run = play("drain", {**OPTIONS, "node_drain_stat": "active", "drain_state": "active"})

    assert run.code == 2
    assert "unknown variable drain_state; did you mean node_drain_state?" in run.last["msg"]
    assert "unknown variable node_drain_stat; did you mean node_drain_state?" in run.last["msg"]


@pytest.mark.parametrize(
    ("option", "meant"),
    [({"state": "active"}, "node_drain_state"), ({"node": "pve2"}, "node_drain_nodes")],
)
def test_drain__with_an_option_that_the_role_sets_does_nothing(
    option: dict[str, str], meant: str, cluster: SimulatedCluster, play: Play
) -> None:
    before = cluster.state()["guests"]
    run = play("drain", {"node_drain_nodes": "pve1", "node_drain_options": option})
    assert run.code == 2
    assert run.last["msg"] == f"node_drain_options: {next(iter(option))} has no effect there; use {meant} instead"
    assert cluster.state()["guests"] == before


def test_nodes__may_be_text_with_spaces_after_the_commas(play: Play) -> None:
    wrapper = {"drain_nodes": "pve1, pve2", "drain_state": "drained", "node_drain_nodes": "{{ drain_nodes }}"}
    run = play("drain", {**OPTIONS, **wrapper, "node_drain_page": EMPTY}, "--check")
    assert "drain pve1, pve2: " in run.output
