# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run plans again when what others had under way has ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from simulated_cluster.client import SimulatedCluster
from support.small_cluster import profile

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Guest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Bounds, Goals
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.moves.mobility_rules import Permitted
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.access import Access
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.options import Caps, MoveOptions
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.plan_run import PlanRun
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.sight import (
    MOVED_BY_OTHERS,
    Sight,
    live_look,
)

from .conftest import on

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
