# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run plans again when what others had under way has ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.small_cluster import profile
from support.versions import both_versions

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.moves import moves_table
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Guest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Bounds, Goals
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.moves.mobility_rules import Permitted
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.access import Access
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.move_options import (
    Caps,
    MoveOptions,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.plan_run import PlanRun
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.sight import (
    MOVED_BY_OTHERS,
    Look,
    Sight,
    live_look,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.pages.moves import moves

from .conftest import NODES, on

PAIR = {"rule": "pair", "type": "resource-affinity", "affinity": "positive", "resources": "vm:101,vm:102"}
OPTIONS = MoveOptions(Permitted(), Bounds(), Caps(), timeout=30, bwlimit=None, replan=True, apply=None, plan_file=None)


def as_it_was(guest: Guest, was_coming: bool) -> Guest:
    """A guest of the node to be drained; one that is coming is on another node yet."""
    return replace(guest, node="pve3") if was_coming and guest.node == "pve2" else guest


@pytest.mark.parametrize("was_coming", [False, True])
def test_plan_run__moves_a_guest_whose_move_by_others_ends_between_two_looks(
    cluster: SimulatedCluster, access: Access, was_coming: bool
) -> None:
    goals = Goals(drain=frozenset({"pve2"}))
    look = live_look(access, lambda snapshot: goals)

    def looks() -> Iterator[Sight]:
        whole = look().state.snapshot
        guests = tuple(as_it_was(guest, was_coming) for guest in whole.guests)
        busy = {201: MOVED_BY_OTHERS}
        yield Sight(ClusterState(replace(whole, guests=guests)), goals, busy, frozenset(busy if was_coming else ()))
        while True:
            yield look()

    seen = looks()
    run = PlanRun(access, {"balanced": profile()}, "balanced", OPTIONS, lambda: next(seen))
    run.prepare()
    outcome = run.execute()

    assert [report.move.vmid for report in outcome.moved] == [201]
    assert not outcome.staying
    assert not on(cluster, "pve2")


def looks_with_it_on_pve3_at_first(look: Look, vmid: int) -> Iterator[Sight]:
    first = look()
    guests = tuple(replace(g, node="pve3") if g.vmid == vmid else g for g in first.state.guests.values())
    yield replace(first, state=ClusterState(replace(first.state.snapshot, guests=guests)))
    while True:
        yield look()


@pytest.mark.parametrize("locked", [False, True])
def test_plan_run__does_not_keep_a_guest_that_others_have_just_moved(
    cluster: SimulatedCluster, access: Access, locked: bool
) -> None:
    """The list shows it on pve3, and on pve2 a moment later; or its config has the lock of a move that ends then."""
    look = live_look(access, lambda snapshot: Goals(drain=frozenset({"pve2" if locked else "pve3"})))
    seen = looks_with_it_on_pve3_at_first(look, 0 if locked else 201)
    cluster.set_guest(201, config={"lock": "migrate" if locked else None})
    run = PlanRun(access, {"balanced": profile()}, "balanced", OPTIONS, lambda: next(seen))
    stuck = [guest.why for guest in run.prepare().plan.stuck]
    cluster.set_guest(201, config={"lock": None})
    outcome = run.execute()

    assert stuck == (["it is locked (migrate)"] if locked else [])
    assert not outcome.staying
    assert (len(outcome.moved), on(cluster, "pve2")) == ((1, set()) if locked else (0, {201}))


def test_plan_run__does_not_keep_a_guest_that_moves_only_with_one_that_others_have_just_moved(
    cluster: SimulatedCluster, access: Access
) -> None:
    for vmid in (101, 102):
        access.writer().post("/cluster/ha/resources", sid=f"vm:{vmid}")
    access.writer().post("/cluster/ha/rules", **PAIR)
    cluster.advance(30)
    seen = looks_with_it_on_pve3_at_first(live_look(access, lambda snapshot: Goals(drain=frozenset({"pve1"}))), 102)
    run = PlanRun(access, {"balanced": profile()}, "balanced", OPTIONS, lambda: next(seen))

    plan = run.prepare().plan

    assert not {guest.vmid: guest.why for guest in plan.stuck if guest.vmid in (101, 102)}
    assert {101, 102} in [set(move.vmids) for move in plan.moves]


@both_versions
def test_table_page_and_result__agree_with_the_cluster_after_another_plan(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    """vm101 cannot go where the first plan sends it, and vm102 nowhere at all."""
    cluster.fault(method="POST", path="/qemu/101/migrate$", task_error="migration aborted", count=1)
    cluster.fault(method="POST", path="/qemu/102/migrate$", task_error="migration aborted")
    result = controller.run("node_drain", name=["pve1"])
    guests = cluster.state()["guests"]

    rows = {row["id"]: row for row in moves(result, plan_only=False)["moves"]}
    assert len([row for row in rows.values() if row["vmid"] == 101]) == 2
    last = {row["vmid"]: row for row in rows.values()}
    assert {vmid: row["to"] if row["state"] == "moved" else "pve1" for vmid, row in last.items()} == {
        vmid: guest["node"] for vmid, guest in guests.items() if vmid in last
    }
    assert guests[102]["node"] == "pve1"
    table = [line.split() for line in moves_table(result, 200)]
    shown = {int(cells[0]): cells[3:5] for cells in table if cells[0].isdigit()}
    assert shown == {number: [row["from"], row["to"]] for number, row in rows.items()}
    for node in NODES:
        running = [each for each in guests.values() if each["node"] == node and each["status"] == "running"]
        assert result["loads"][node]["after"] == {
            "cores": len(running),
            "memory": sum(int(each["config"]["memory"]) for each in running) * 1024**2,
            "guests": len(on(cluster, node)),
        }
