# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The moves of a plan, each with its outcome, and what the ledger knows of them afterwards."""

from __future__ import annotations

import time

from simulated_cluster.client import SimulatedCluster
from support.identities import identified
from support.small_cluster import profile

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Move, Plan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.moves.mover import Mover
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import Poller, TaskFollower
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.access import Access
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.gate import MoveGate
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.move_options import Caps
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.moving import (
    FAILED,
    MOVED,
    UNKNOWN,
    WAITING,
    Executor,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.stopping import Stop

from .conftest import TIME_SCALE


def executed(access: Access, *moves: Move, timeout: float = 100_000, caps: Caps | None = None) -> list[str]:
    """Carry moves out in the time of the cluster, and return their outcomes."""
    session = access.writer()
    poller = Poller(lambda: time.monotonic() / TIME_SCALE, lambda seconds: time.sleep(seconds * TIME_SCALE))
    mover = Mover(session, TaskFollower(session, timeout, poller))
    executor = Executor(access, mover, MoveGate(access, profile(), lambda snapshot: snapshot), Stop(), caps or Caps())
    planned = tuple(identified(session, move) for move in moves)
    return [report.outcome for report in executor.execute(Plan("test", True, planned))]


def move(vmid: int, target: str = "pve2", **more: float) -> Move:
    return Move(vmid, vmid, f"vm{vmid}", "pve1", target, "test", **more)  # type: ignore[arg-type]


def phases(access: Access) -> dict[int, str]:
    return {found.vmid: found.phase for found in access.ledger.reservations(access.identity())}


def test_executor__starts_nothing_after_a_failure_and_follows_what_is_under_way(
    cluster: SimulatedCluster, access: Access
) -> None:
    cluster.fault(method="POST", path="/101/migrate", task_error="migration problems")
    cluster.fault(method="POST", path="/102/migrate", task_seconds=50)
    moves = (move(101, estimate=3.0), move(102, "pve3", estimate=2.0), move(103, estimate=1.0))
    assert executed(access, *moves, caps=Caps(cluster=2)) == [FAILED, MOVED, WAITING]
    # The one that has moved counts on both nodes until the cluster shows it.
    assert phases(access) == {102: "created"}


def test_executor__keeps_the_reservation_of_a_move_that_may_go_on(cluster: SimulatedCluster, access: Access) -> None:
    cluster.fault(method="POST", path="/104/migrate", task_held=True)
    assert executed(access, move(104), timeout=5) == [UNKNOWN]
    assert phases(access) == {104: "binding"}
