# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which guest an entry means, given settled guests and reservations."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest
from support.ledgers import reservation
from support.small_cluster import guest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Guest, Request
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import Holder, Reservation
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.existing.matching import (
    Match,
    match_entries,
    nameless_text,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import Entry


def entry(name: str = "", vmid: int | None = None, state: str = "present", position: int = 0) -> Entry:
    return Entry(position, Request(name, vmid=vmid), state)


def match(
    asked: Entry, guests: t.Iterable[Guest] = (), pending: t.Iterable[Reservation] = (), shown: t.Iterable[Guest] = ()
) -> t.Any:
    return match_entries([asked], list(guests), list(pending), {each.vmid: each for each in shown})[asked.position]


def code(found: Match) -> str:
    assert found.error is not None
    return found.error.code


WEB = guest(100, "pve1", name="web")
OTHER = guest(101, "pve2", name="other")
NAMELESS = guest(103, "pve2", name=None, lock="create")
CONTAINER = guest(102, "pve2", name="ct", kind="lxc")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (entry("web"), WEB),
        (entry("web", 100), WEB),
        (entry(vmid=100), WEB),
        (entry("new"), None),
        (entry("new", 200), None),
        (entry("ct"), None),
        (entry(vmid=200, state="absent"), None),
    ],
)
def test_vm__is_matched_by_vmid_or_else_by_name(asked: Entry, expected: Guest | None) -> None:
    assert match(asked, [WEB, OTHER, CONTAINER]) == Match(guest=expected)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (entry("web", 101), "VMIDConflict"),
        (entry("web", 102), "VMIDConflict"),
        (entry("ct", 102), "VMIDConflict"),
        (entry(vmid=102, state="absent"), "VMIDConflict"),
        (entry("web", 200), "VMIDConflict"),
        (entry(vmid=200), "InvalidRequest"),
    ],
)
def test_contradiction__is_an_error(asked: Entry, expected: str) -> None:
    assert code(match(asked, [WEB, OTHER, CONTAINER])) == expected


def test_two_vms_of_a_name__are_told_apart_by_vmid_only() -> None:
    twin = guest(103, "pve3", name="web")
    assert code(match(entry("web"), [twin, WEB])) == "AmbiguousName"
    assert match(entry("web", 103), [twin, WEB]) == Match(guest=twin)


def test_two_entries_that_mean_one_vm__are_both_errors() -> None:
    entries = [entry("web"), entry(vmid=100, position=1), entry("other", position=2)]
    found = match_entries(entries, [WEB, OTHER], [], {})
    assert [code(found[0]), code(found[1])] == ["InvalidRequest"] * 2
    assert found[2] == Match(guest=OTHER)


def test_vm_that_was_created_but_is_not_shown__is_matched_by_its_reservation() -> None:
    held = reservation(100, "web", phase="created", holder=Holder.new())
    found = match(entry("web"), pending=[held])
    assert (found.guest.vmid, found.guest.name, found.guest.status) == (100, "web", "assumed")
    for asked in (entry("web", 100), entry(vmid=100), entry(vmid=100, state="absent")):
        assert match(asked, pending=[held]).guest.vmid == 100
    assert code(match(entry("other", 100), pending=[held])) == "VMIDConflict"


def test_vm_that_another_process_creates_now__is_an_error_that_names_it() -> None:
    held = reservation(100, "web", phase="binding", holder=Holder.new())
    found = match(entry("web"), pending=[held])
    assert code(found) == "AlreadyReserved"
    assert found.error.details == {"vmid": 100, "node": "pve1"}
    assert code(match(entry("web", 200), pending=[held])) == "VMIDConflict"


def test_leftover_of_a_dead_process__is_taken_over_with_its_vmid() -> None:
    held = reservation(100, "web", phase="binding", forsaken=True)
    assert match(entry("web"), pending=[held]) == Match(take_over=100)
    found = match(entry("web"), pending=[held], shown=[guest(100, "pve1", name=None)])
    assert (found.take_over, found.guest.vmid) == (None, 100)


def test_match__of_two_reservations_the_one_of_the_vmid_counts_before_the_one_of_the_name() -> None:
    pending = [reservation(200, "other", holder=Holder.new()), reservation(201, "web", holder=Holder.new())]
    for order in (pending, pending[::-1]):
        found = match(entry("web", 200), pending=order)
        assert code(found) == "VMIDConflict"
        assert "VMID 200 belongs to other on pve1" in found.error.message


def test_match__a_vm_that_others_are_creating_may_be_the_one_that_is_asked_for() -> None:
    found = match(entry("new"), [WEB, NAMELESS])

    assert (found.is_new, found.nameless) == (True, (NAMELESS,))
    assert "(103 on pve2)" in nameless_text(found.nameless)


@pytest.mark.parametrize(
    ("asked", "guests"),
    [
        (entry("web"), [WEB, NAMELESS]),
        (entry("new", 200), [NAMELESS]),
        (entry("new", state="absent"), [NAMELESS]),
        (entry("new"), [guest(103, "pve2", name=None)]),
        (entry("new"), [guest(103, "pve2", name=None, lock="backup")]),
        (entry("new"), [guest(103, "pve2", name=None, lock="create", kind="lxc")]),
    ],
)
def test_match__others_are_not_in_doubt(asked: Entry, guests: list[Guest]) -> None:
    assert match(asked, guests).nameless == ()


def test_match__a_creation_that_was_broken_off_is_nobodys() -> None:
    asked = entry("new")

    matches = match_entries([asked], [NAMELESS], [], {}, abandoned=[103])

    assert matches[0] == Match()


# --- whose VM it is ---

MINE, THEIRS, LOOSE = (guest(200 + n, "pve1", name="app", pool=pool) for n, pool in enumerate(("ops", "tenant", None)))


@pytest.mark.parametrize(
    ("guests", "expected"), [((MINE, THEIRS), MINE), ((THEIRS, LOOSE), LOOSE), ((LOOSE,), LOOSE), ((MINE, LOOSE), MINE)]
)
def test_vm__is_the_one_in_the_requested_pool_or_else_in_none(guests: tuple[Guest, ...], expected: Guest) -> None:
    asked = Entry(0, Request("app", pool="ops"), "present")
    assert match(asked, guests) == Match(guest=expected)


@pytest.mark.parametrize("state", ["present", "absent", "stopped"])
def test_vm_in_another_pool__is_not_the_requested_one_unless_it_is_adopted(state: str) -> None:
    asked = Entry(0, Request("app", pool="ops"), state)
    assert code(match(asked, [THEIRS])) == "OtherPool"
    assert match(replace(asked, adopt=True), [THEIRS]) == Match(guest=THEIRS)
    assert match(replace(asked, request=Request("app")), [THEIRS]) == Match(guest=THEIRS)


def test_vm_that_is_created_in_another_pool__is_not_the_requested_one() -> None:
    asked = Entry(0, Request("app", pool="ops"), "present")
    assert code(match(asked, pending=[reservation(vmid=200, name="app", pool="tenant")])) == "OtherPool"


FORSAKEN = reservation(vmid=200, name="app", pool="ops", tags=frozenset({"ci"}), phase="binding", forsaken=True)


@pytest.mark.parametrize("held", [FORSAKEN, replace(FORSAKEN, phase="created")])
@pytest.mark.parametrize("name", ["app", None])
@pytest.mark.parametrize("by", [{}, {"vmid": 200}])
def test_vm_that_has_the_vmid_of_a_reservation__is_in_the_pool_that_is_shown(
    held: Reservation, name: str | None, by: dict[str, t.Any]
) -> None:
    asked = Entry(0, Request("app", pool="ops", **by), "present")
    theirs, loose = (guest(200, "pve1", name=name, pool=pool) for pool in ("tenant", None))
    assert code(match(asked, pending=[held], shown=[theirs])) == "OtherPool"
    assert match(asked, pending=[held], shown=[loose]).guest.pool == "ops"

    removed = match(replace(asked, state="absent"), pending=[held], shown=[loose]).guest
    assert (removed.pool, removed.tags) == (None, frozenset()), "a guard of a removal counts on these"


def test_new_name__must_not_differ_only_in_case() -> None:
    assert code(match(entry("Web"), [WEB])) == "AmbiguousName"
    assert code(match(entry("WEB"), pending=[reservation(vmid=200, name="web")])) == "AmbiguousName"
    assert match(entry("Web", state="absent"), [WEB]) == Match()
    assert match(entry("CT"), [CONTAINER]) == Match()


# --- what is not known ---

SILENT = guest(104, "pve2", name=None, status="unknown", pool="ops")


@pytest.mark.parametrize("state", ["present", "absent"])
def test_vm_that_may_be_one_without_a_name__is_not_known(state: str) -> None:
    error = match(entry("new", state=state), [WEB, SILENT]).error
    assert error is not None
    assert (error.code, error.details) == ("VMNotKnown", {"vmids": [104]})
    assert "pve2 cannot be reached, and the names of the VMs there are not known (104)" in error.message
    assert match(replace(entry("new", state=state), accept_unknown=True), [SILENT]) == Match()


@pytest.mark.parametrize(
    "asked",
    [entry("web"), entry("new", 300), Entry(0, Request("new", pool="tenant"), "present")],
)
def test_vm_that_cannot_be_one_without_a_name__is_known(asked: Entry) -> None:
    assert match(asked, [WEB, SILENT]).error is None


def test_ledger__knows_a_vm_without_a_name() -> None:
    found = match(entry("new"), [SILENT], [reservation(vmid=104, name="new", phase="created")])
    assert found.guest is not None
    assert found.guest.vmid == 104
