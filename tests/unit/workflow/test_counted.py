# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entries that stand for several VMs, and the VMs that a smaller count leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Guest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import ONE_VM_OPTIONS
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import (
    Entry,
    build_entries,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.task import (
    MOST_VMS,
    Expanded,
    expand,
    surplus_entries,
)


def expanded(*vms: dict[str, Any], **defaults: Any) -> Expanded:
    return expand(vms, defaults)


def names(*vms: dict[str, Any]) -> list[str]:
    return [vm["name"] for vm in expanded(*vms).vms]


def guest(vmid: int, name: str | None, **fields: Any) -> Guest:
    return Guest(vmid=vmid, name=name, node="pve1", **fields)


def left(guests: list[Guest], *vms: dict[str, Any], **defaults: Any) -> tuple[list[Entry], list[str]]:
    all_vms = expanded(*vms, **defaults)
    entries = build_entries({**defaults, "vms": all_vms.vms}, ONE_VM_OPTIONS, 0.0)
    return surplus_entries(all_vms.series, entries, guests)


@pytest.mark.parametrize(
    ("vm", "expected"),
    [
        ({"name": "web-{n}", "count": 3}, ["web-1", "web-2", "web-3"]),
        ({"name": "web-{n:02}", "count": 2, "count_start": 9}, ["web-09", "web-10"]),
        ({"name": "{n:03}.web.example", "count": 1, "count_start": 0}, ["000.web.example"]),
        ({"name": "web-{n}", "count": 0}, []),
        ({"name": "web"}, ["web"]),
    ],
)
def test_count__numbers_the_names(vm: dict[str, Any], expected: list[str]) -> None:
    assert names(vm) == expected


def test_count__keeps_the_other_options_and_the_order() -> None:
    found = expanded({"name": "db"}, {"name": "web-{n}", "count": 2, "memory": "512"}, {"name": "mail"})
    assert found.vms[1:3] == [{"name": "web-1", "memory": "512"}, {"name": "web-2", "memory": "512"}]
    assert found.origins == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("vm", "told"),
    [
        ({"name": "web", "count": 2}, "vms[0].name: 'web' has no place for the number"),
        ({"name": "web-{n}-{n}", "count": 2}, "vms[0].name: 'web-{n}-{n}' has no place"),
        ({"name": "web-{n:3}", "count": 2}, "vms[0].name: 'web-{n:3}' has no place"),
        ({"count": 2}, "vms[0].name: None has no place"),
        ({"name": "web-{n}", "count": -1}, "vms[0].count: -1 is not possible, expected 0 to 1000"),
        ({"name": "web-{n}", "count": 1001}, "vms[0].count: 1001 is not possible, expected 0 to 1000"),
        ({"name": "web-{n}", "count": 1, "count_start": -1}, "vms[0].count_start: -1 is not possible"),
        ({"name": "web-{n}", "count": 1, "vmid": 100}, "vms[0].vmid: 100 cannot be combined with count"),
        ({"name": "web-{n}"}, "vms[0].count: is missing"),
        ({"name": "web", "surplus": "absent"}, "vms[0].surplus: 'absent' requires count"),
        ({"name": "web", "count_start": 1}, "vms[0].count_start: 1 requires count"),
    ],
)
def test_count__refuses_what_makes_no_sense(vm: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        expanded(vm)
    assert told in caught.value.message


@pytest.mark.parametrize("vm", [{"name": "web"}, {"name": "web-{n}", "count": 1000}])
def test_vms__are_bounded_in_total(vm: dict[str, Any]) -> None:
    most = MOST_VMS // vm.get("count", 1)
    assert len(expanded(*[vm] * most).vms) == MOST_VMS
    with pytest.raises(InvalidRequest, match="vms: more than 5000 VMs are not possible in one task"):
        expanded(*[vm] * (most + 1))


def test_error__names_the_entry_as_the_user_wrote_it() -> None:
    found = expanded({"name": "web-{n}", "count": 3}, {"name": "bad", "memory": "lots"})
    with pytest.raises(InvalidRequest, match=r"^vms\[1\]\.memory"):
        build_entries({"vms": found.vms}, ONE_VM_OPTIONS, 0.0, found.origins)


GUESTS = [
    guest(100, "web-1"),
    guest(101, "web-4"),
    guest(102, "web-04"),
    guest(103, "web-x"),
    guest(104, "web-5", kind="lxc"),
    guest(105, "web-6", template=True),
    guest(106, None),
    guest(107, "my-web-7"),
]


def test_surplus__is_what_fits_the_name_and_has_no_entry() -> None:
    guests = [replace(each, pool="shop") for each in GUESTS]
    removals, warnings = left(guests, {"name": "web-{n}", "count": 2, "surplus": "absent", "pool": "shop"})
    assert [(entry.position, entry.state, entry.request.vmid, entry.request.name) for entry in removals] == [
        (2, "absent", 101, "web-4")
    ]
    assert warnings == [TOLD]


@pytest.mark.parametrize("given", [{}, {"tags": []}, {"pool": ""}])
def test_surplus__of_others_cannot_be_removed(given: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidRequest, match=r"surplus: 'absent' would remove every VM that has a name like 'web-\{n\}'"
    ):
        expanded({"name": "web-{n}", "count": 2, "surplus": "absent", **given})


def test_vms_that_a_series_leaves_when_its_width_changes__are_told() -> None:
    series = {"name": "web-{n:02}", "count": 2}
    assert left([guest(100, "web-1"), guest(101, "web-04"), guest(102, "web-1-old")], series)[1] == [
        "beyond count, and kept: web-04 (101); remove them with surplus=absent",
        "numbered in another way than web-{n:02}, and kept: web-1 (100); rename or remove those of this task",
    ]


@pytest.mark.parametrize(
    ("pattern", "pool", "begun", "told"),
    [
        ("n{n}", "shop", True, "n-1 (100)"),
        ("n-{n}.lab", "shop", False, None),
        # Without tags or a pool, the VMs of others may have such names. They are told when the series begins.
        ("n{n}", None, False, "n-1 (100), n-2 (101)"),
        ("n{n}", None, True, None),
        ("m{n}", None, False, None),
    ],
)
def test_vms_that_a_series_leaves_when_its_separator_changes__are_told(
    pattern: str, pool: str | None, begun: bool, told: str | None
) -> None:
    series = {"name": pattern, "count": 1, **({"pool": pool} if pool else {})}
    guests = [replace(guest(100, "n-1"), pool="shop"), replace(guest(101, "n-2"), pool="other")]
    found = left([*guests, replace(guest(102, "n1"), pool=pool)] if begun else guests, series)[1]
    text = f"numbered in another way than {pattern}, and kept: {told}; rename or remove those of this task"
    assert found == ([] if told is None else [text])


TOLD = "numbered in another way than web-{n}, and kept: web-04 (102); rename or remove those of this task"


def test_surplus__is_kept_and_told_without_the_word() -> None:
    assert left(GUESTS, {"name": "web-{n}", "count": 2}) == (
        [],
        ["beyond count, and kept: web-4 (101); remove them with surplus=absent", TOLD],
    )


def test_surplus__is_not_what_another_entry_wants() -> None:
    entries = (
        {"name": "web-{n}", "count": 1, "surplus": "absent", "tags": ["shop"]},
        {"name": "web-{n}", "count": 1, "count_start": 4},
    )
    assert left(GUESTS, *entries) == ([], [TOLD])


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 0),
        ({"tags": frozenset({"shop"})}, 0),
        ({"pool": "shop"}, 0),
        ({"tags": frozenset({"shop", "web"}), "pool": "shop"}, 1),
    ],
)
def test_surplus__has_the_tags_and_the_pool_of_the_entry(fields: dict[str, Any], count: int) -> None:
    vm = {"name": "web-{n}", "count": 0, "pool": "shop", "surplus": "absent"}
    removals, _warnings = left([guest(100, "web-1", **fields)], vm, tags=["shop"])
    assert len(removals) == count


def test_surplus__is_guarded_as_its_entry_says_or_the_task() -> None:
    guests = [guest(102, "web-2"), guest(202, "db-2")]
    web = {"name": "web-{n}", "count": 1, "surplus": "absent", "only_pool": "web"}
    removals, _kept = left(guests, web, {**web, "name": "db-{n}", "only_pool": None}, only_pool="other")
    assert [entry.guard.pool for entry in removals] == ["web", "other"]
