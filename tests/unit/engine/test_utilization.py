# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the scores by live figures and by numbers of guests prefer."""

from __future__ import annotations

import pytest
from support.small_cluster import cluster, guest, made, node, scheduler, score, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch_cycle import schedule_all
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import Subject
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.proxmox_scores import (
    FewestGuests,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.utilization import (
    Utilization,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB


def live(name: str = "a", cpu: float = 0.0, used_gib: float = 0.0, **fields: object) -> object:
    return node(name, 8, 32, cpu_used=cpu, memory_used=int(used_gib * GIB), **fields)


def utilization(host: object, **config: float) -> float:
    return score(made(Utilization, **config), vm(), cluster([host]).nodes[0])


def test_idle_node__scores_full_and_a_busy_one_nothing() -> None:
    assert utilization(live()) == 100
    assert utilization(live(cpu=1.0, used_gib=32)) == 0


def test_cpu_and_memory__use_are_averaged_by_weight() -> None:
    assert utilization(live(cpu=0.5, used_gib=8)) == pytest.approx(100 - (50 + 25) / 2)
    assert utilization(live(cpu=0.5, used_gib=8), cpu_weight=3.0) == pytest.approx(100 - (3 * 50 + 25) / 4)


def test_pressure__counts_where_it_was_read() -> None:
    pressed = live(cpu=0.5, used_gib=16, pressure=0.8)
    assert utilization(pressed) == pytest.approx(100 - (50 + 50 + 80) / 3)
    assert utilization(pressed, pressure_weight=0.0) == pytest.approx(50)
    assert utilization(live(cpu=0.5, used_gib=16)) == pytest.approx(50)


def test_pressure__is_asked_for_unless_it_has_no_weight() -> None:
    assert made(Utilization).reads == {Subject.PRESSURE}
    assert made(Utilization, pressure_weight=0.0).reads == frozenset()


def test_more__use_is_never_a_higher_score() -> None:
    steps = [utilization(live(cpu=percent / 100, used_gib=8)) for percent in range(0, 130, 5)]
    assert steps == sorted(steps, reverse=True)


def test_one_run__does_not_send_all_its_vms_to_the_same_idle_node() -> None:
    state = cluster([live("a", cpu=0.1), live("b", cpu=0.2), live("c", cpu=0.3)])
    only = {"scores": {"Utilization": {"enable": True}, "LeastAllocated": {"enable": False}}}
    outcomes = schedule_all(scheduler(state, only), [vm(f"vm-{i}", cores=4, gib=8) for i in range(3)])
    assert [outcome.decision.node for outcome in outcomes] == ["a", "b", "c"]


def test_fewest_guests__counts_what_runs_whatever_its_size() -> None:
    state = cluster(
        [node("a"), node("b")],
        [
            guest(100, "a", cores=16, gib=24),
            guest(101, "b"),
            guest(102, "b"),
            guest(103, "a", status="stopped"),
            guest(104, "a", template=True),
        ],
    )
    only = {"scores": {"FewestGuests": {"enable": True}, "LeastAllocated": {"enable": False}}}
    assert scheduler(state, only).schedule(vm()).decision.node == "a"


def test_fewest_guests__spans_the_whole_scale() -> None:
    plugin = made(FewestGuests)
    assert plugin.normalize({}, vm(), [], [-4.0, 0.0, -1.0]) == [0.0, 100.0, 75.0]
    assert plugin.normalize({}, vm(), [], [-2.0, -2.0]) == [100.0, 100.0]
