# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a VM will use, and the score and the limit that go by it."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest
from support.small_cluster import cluster, guest, made, node, score, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.demand import (
    CONFIGURED,
    CPU,
    LIKE,
    MEASURED,
    MEMORY,
    STATED,
    Demand,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import (
    CycleState,
    Subject,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.utilization import (
    UsedLimit,
    Utilization,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.usual import guests_like, with_demand
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Guest, demand_of


def using(cores: float, memory: float = 0, source: str = MEASURED) -> dict[str, Demand]:
    return {CPU: Demand(source, (cores,)), MEMORY: Demand(source, (memory * GIB,))}


def web(vmid: int, used: float | None = None, pool: str | None = "shop", name: str = "web-{}") -> Guest:
    found = replace(guest(vmid, "a", cores=4, gib=8), name=name.format(vmid), pool=pool)
    return found if used is None else replace(found, demand=using(4 * used, 8 * used))


def test_new_vm__uses_the_part_of_its_size_that_its_like_use() -> None:
    asked = replace(vm("web-12", cores=2, gib=4), pool="shop")

    found = with_demand(asked, [web(1, 0.2), web(2, 0.4), web(3)])

    assert found.demand == {CPU: Demand(LIKE, (pytest.approx(0.6),)), MEMORY: Demand(LIKE, (pytest.approx(1.2 * GIB),))}
    stated = replace(asked, demand={CPU: Demand(STATED, (1.5,))})
    assert with_demand(stated, [web(1, 0.2)]).demand[CPU] == Demand(STATED, (1.5,))
    assert with_demand(asked, []) == asked
    assert demand_of(asked, CPU) == Demand(CONFIGURED, (2.0,))


@pytest.mark.parametrize(
    ("pool", "expected"),
    [("shop", [1, 4]), ("other", [7]), ("empty", []), (None, [])],
)
def test_like__are_those_of_the_same_pool_only(pool: str | None, expected: list[int]) -> None:
    others = [web(1), web(4), web(5, name="db-{}"), web(7, pool="other", name="db{}"), web(9, pool=None, name="mail")]
    others.append(replace(web(2), status="stopped"))

    assert [each.vmid for each in guests_like(replace(vm("web-99"), pool=pool), others)] == expected


def test_like__are_clones_of_its_template_and_guests_with_its_tags_before_the_rest_of_the_pool() -> None:
    pool = [replace(web(vmid, name=f"old-{vmid}"), tags=frozenset({"db"} if vmid == 3 else ())) for vmid in (1, 2, 3)]
    new = replace(vm("new"), pool="shop")

    def like(request: t.Any, guests: list[Guest] = pool) -> list[int]:
        return [each.vmid for each in guests_like(request, guests)]

    assert like(new) == [1, 2, 3]
    assert like(replace(new, tags=frozenset({"db"}))) == [3]
    assert like(replace(new, tags=frozenset({"db"}), siblings=frozenset({2}))) == [2]
    assert like(replace(new, siblings=frozenset({2})), [web(2, pool="tenant"), web(4, name="db-{}")]) == [4]
    assert like(replace(new, pool=None, tags=frozenset({"db"})), pool) == []


def limited(host: t.Any, request: t.Any, guests: t.Any = (), **config: float) -> t.Any:
    return made(UsedLimit, **config).filter(CycleState(), request, cluster([host], guests).nodes[0])


def test_limit__is_of_what_is_used_with_the_vm() -> None:
    host = replace(node("a", 8, 32), demand=using(5.0, 10))
    small = replace(vm(cores=4, gib=4), demand=using(1.0, 1, STATED))

    assert limited(host, small) is None
    refused = limited(host, vm(cores=4, gib=4))
    assert (refused.reason, refused.detail) == (
        "would use more than 85% of its CPU",
        "112% with the VM, which counts as configured",
    )
    assert limited(host, vm(cores=4, gib=4), most=1.2) is None
    assert "of its memory" in limited(replace(host, demand=using(0.0, 31)), small).reason


def test_limit__counts_guests_where_they_are_and_those_that_are_decided() -> None:
    host = replace(node("a", 8, 32), demand=using(2.0, 1))
    come = replace(guest(7, "a"), demand=using(4.0, 1))
    decided = replace(guest(8, "a", cores=4), status="assumed")
    one = replace(vm(cores=1), demand=using(1.0, 1))

    assert limited(host, one) is None
    assert limited(host, one, [come]) is not None
    assert limited(host, one, [decided]) is not None
    assert limited(host, one, [guest(9, "a", cores=8)]) is None, "it is in what the node uses"


def test_limit__does_not_know_what_was_not_read() -> None:
    assert limited(node("a", 8, 32), vm(cores=8)) is None
    assert limited(replace(node("a", 0, 0), online=False, demand=using(9.0, 9)), vm()) is None
    idle = replace(vm(), demand={CPU: Demand(STATED, (0.0,)), MEMORY: Demand(STATED, (0.0,))})
    assert limited(replace(node("a", 8, 32), demand=using(99.0, 99)), idle) is None


def test_score__is_that_of_the_day_if_it_is_asked_for() -> None:
    host = replace(node("a", 8, 32, cpu_used=1.0, memory_used=32 * GIB), demand=using(2.0, 8))
    state = cluster([host], [replace(guest(7, "a", cores=4, gib=16), status="assumed", demand=using(2.0, 8))])
    now, day = (made(Utilization, history=history) for history in (False, True))

    assert score(day, vm(), state.nodes[0]) == pytest.approx(50)
    assert score(now, vm(), state.nodes[0]) == pytest.approx(0)
    assert score(day, vm(), cluster([replace(host, demand={})]).nodes[0]) == pytest.approx(0)
    assert Subject.DEMAND in day.reads
    assert Subject.DEMAND not in now.reads
