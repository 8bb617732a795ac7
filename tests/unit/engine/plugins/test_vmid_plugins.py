# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Range and Regex, and what they allow together."""

from __future__ import annotations

import pytest
from support.small_cluster import cluster, guest, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    CollectionError,
    InvalidRequest,
    NoVMIDAvailable,
    VMIDConflict,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Request

RANGE, REGEX = "vmid.qemu-scheduler/range", "vmid.qemu-scheduler/regex"


@pytest.fixture
def where() -> Scheduler:
    return scheduler(cluster([node("pve1")], [guest(100, "pve1"), guest(121, "pve1"), guest(150, "pve1", kind="lxc")]))


def given(where: Scheduler, request: Request) -> int | CollectionError | None:
    outcome = where.schedule(request)
    return outcome.error if outcome.decision is None else outcome.decision.vmid


def test_free_choice__is_the_lowest_free_one(where: Scheduler) -> None:
    assert given(where, vm()) == 101


def test_datacenters_bounds__hold_for_those_without_a_wish() -> None:
    where = scheduler(cluster([node("pve1")], next_id=(500, 501)))
    assert [given(where, vm(f"vm-{n}")) for n in range(2)] == [500, 501]
    assert isinstance(given(where, vm("vm-3")), NoVMIDAvailable)
    assert given(where, vm("vm-4", vmid_range="100-101")) == 100


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (vm(vmid_range="150-160"), 151),
        (vm(context={RANGE: "121-130"}), 122),
        (vm(vmid_regex="1[25]."), 120),
        (vm(context={REGEX: "(121|130)"}), 130),
        (vm(vmid_range="100-125", vmid_regex="1.[3-9]"), 103),
        (vm(vmid=4711), 4711),
    ],
)
def test_lowest_free_one_that__is_allowed(where: Scheduler, request_: Request, expected: int) -> None:
    assert given(where, request_) == expected


def test_fixed_vmid_that_is_taken__is_a_conflict(where: Scheduler) -> None:
    assert isinstance(given(where, vm(vmid=150)), VMIDConflict)


def test_vmids_of_unseen_guests__are_taken() -> None:
    where = scheduler(cluster([node("pve1")], vmids_unseen=frozenset({100, 102})))
    assert [given(where, vm(f"vm-{n}")) for n in range(2)] == [101, 103]


@pytest.mark.parametrize(
    ("fields", "option"), [({"vmid_range": "150-100"}, "vmid_range"), ({"vmid_regex": "1[2"}, "vmid_regex")]
)
def test_mistake__names_the_option(where: Scheduler, fields: dict[str, str], option: str) -> None:
    error = given(where, vm(**fields))
    assert isinstance(error, InvalidRequest)
    assert error.message.startswith(f"{option}: ")


def test_message__says_of_what_when_all_are_taken(where: Scheduler) -> None:
    error = given(where, vm(vmid_range="121-121"))
    assert isinstance(error, NoVMIDAvailable)
    assert "121" in error.message
