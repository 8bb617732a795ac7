# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A scheduler that dies or hangs at any step holds nobody up, and what it may have sent to Proxmox still counts."""

from __future__ import annotations

import pytest
from support.ledgers import CLUSTER, Launch, SchedulerProcess, reservation

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import LedgerUnavailable
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import (
    AlreadyReserved,
    Durations,
    LeaseLost,
    ReservationLost,
    open_ledger,
    sqlite,
)

# Longer than any test lasts: what ends here ends for another reason than its age.
LONG = Durations(lease=600, reservation=600, created=600)
SHORT = Durations(lease=0.6, reservation=600, created=600)

STEPS = ("enter", "reserve", "leave", "mark_binding", "mark_created")


def go(process: SchedulerProcess, last_step: str) -> None:
    """Let a scheduler work on VM 100, up to and including `last_step`."""
    arguments = {"reserve": [reservation(100)], "leave": []}
    for step in STEPS[: STEPS.index(last_step) + 1]:
        process.call(step, *arguments.get(step, [CLUSTER, 100] if step.startswith("mark") else [CLUSTER]))


@pytest.mark.parametrize("last_step", ["enter", "reserve", "leave"])
def test_process_that_dies_before_binding__leaves_neither_lease_nor_reservation(
    where: str, launch: Launch, last_step: str
) -> None:
    victim, next_one = launch(where, durations=LONG), launch(where, durations=LONG)
    go(victim, last_step)
    victim.kill()
    next_one.call("enter", CLUSTER, wait=0)
    assert next_one.call("reservations") == []
    next_one.call("reserve", reservation(100))


@pytest.mark.parametrize("last_step", ["mark_binding", "mark_created"])
def test_death_in_binding__leaves_a_reservation_that_counts(where: str, launch: Launch, last_step: str) -> None:
    victim, next_one = launch(where, durations=LONG), launch(where, durations=LONG)
    go(victim, last_step)
    victim.kill()
    next_one.call("enter", CLUSTER, wait=0)
    assert [(kept.vmid, kept.name) for kept in next_one.call("reservations")] == [(100, "vm100")]
    with pytest.raises(AlreadyReserved, match=r"VMID 100 .* 'other'"):
        next_one.call("reserve", reservation(100, "other"))
    with pytest.raises(AlreadyReserved, match="the name 'vm100'"):
        next_one.call("reserve", reservation(101, "vm100"))


def test_second_run__takes_over_the_vm_that_the_first_died_of(where: str, launch: Launch) -> None:
    victim, next_one = launch(where, durations=LONG), launch(where, durations=LONG)
    go(victim, "mark_binding")
    victim.kill()
    next_one.call("enter", CLUSTER, wait=0)
    next_one.call("reserve", reservation(100))
    next_one.call("leave")
    next_one.call("mark_binding", CLUSTER, 100)


def test_vm_of_one_who_is_alive__is_not_taken_over(where: str, launch: Launch) -> None:
    first, second = launch(where, durations=LONG), launch(where, durations=LONG)
    go(first, "mark_binding")
    second.call("enter", CLUSTER, wait=0)
    with pytest.raises(AlreadyReserved):
        second.call("reserve", reservation(100))


def test_one_who_waits__gets_the_lease_as_soon_as_its_holder_is_killed(where: str, launch: Launch) -> None:
    victim, next_one = launch(where, durations=LONG), launch(where, durations=LONG)
    victim.call("enter", CLUSTER)
    next_one.start("enter", CLUSTER)
    assert not next_one.has_finished(within=0.2)
    victim.kill()
    assert next_one.has_finished(within=2)
    next_one.result()


def test_process_that_dies_in_the_queue__does_not_hold_up_those_behind(where: str, launch: Launch) -> None:
    holder, victim, last = (launch(where, durations=LONG) for _ in range(3))
    holder.call("enter", CLUSTER)
    victim.start("enter", CLUSTER)
    assert not victim.has_finished(within=0.2)
    last.start("enter", CLUSTER)
    victim.kill()
    holder.call("leave")
    assert last.has_finished(within=2)
    last.result()


def test_process_that_hangs_in_the_queue__does_not_hold_up_those_behind_and_has_its_turn_later(
    where: str, launch: Launch
) -> None:
    holder, hung, last = (launch(where, durations=Durations(lease=3)) for _ in range(3))
    holder.call("enter", CLUSTER)
    hung.start("enter", CLUSTER)
    assert not hung.has_finished(within=0.2)
    last.start("enter", CLUSTER)
    hung.hang()
    holder.call("leave")
    assert last.has_finished(within=2.5)
    last.result()
    hung.go_on()
    last.call("leave")
    hung.result()


def test_queue__serves_in_the_order_of_arrival(where: str, launch: Launch) -> None:
    holder, first, second = (launch(where, durations=LONG) for _ in range(3))
    holder.call("enter", CLUSTER)
    for waiting in (first, second):
        waiting.start("enter", CLUSTER)
        assert not waiting.has_finished(within=0.3)
    first.hang()
    holder.call("leave")
    assert not second.has_finished(within=0.3)
    with pytest.raises(LedgerUnavailable, match="others have held it by turns, 2 more were waiting before this one"):
        holder.call("enter", CLUSTER, wait=0)
    first.go_on()
    first.result()
    first.call("leave")
    second.result()


def test_a_renewed_ticket__keeps_its_place(where: str, launch: Launch) -> None:
    holder, second = launch(where, durations=LONG), launch(where, durations=LONG)
    # Renews its ticket every second, which is valid for 3.3 seconds; those of the others do not change.
    first = launch(where, durations=Durations(lease=10))
    holder.call("enter", CLUSTER)
    for waiting in (first, second):
        waiting.start("enter", CLUSTER)
        assert not waiting.has_finished(within=0.3)
    assert not first.has_finished(within=2)
    first.hang()
    holder.call("leave")
    assert not second.has_finished(within=0.5)
    first.go_on()
    first.result()
    assert not second.has_finished(within=0.2)
    first.call("leave")
    second.result()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_process_that_hangs_in_the_cycle__loses_the_lease_and_can_write_nothing_more(
    where: str, launch: Launch, elsewhere: bool
) -> None:
    hung = launch(where, durations=SHORT, elsewhere=elsewhere)
    next_one = launch(where, durations=LONG)
    hung.call("enter", CLUSTER)
    hung.hang()
    next_one.call("enter", CLUSTER, wait=5)
    hung.go_on()
    with pytest.raises(LeaseLost, match=r"process \d+ on .* has taken it over"):
        hung.call("reserve", reservation(100))
    hung.call("leave")
    assert next_one.call("reservations") == []
    next_one.call("reserve", reservation(100))


def test_who_was_slow_but__was_not_replaced_may_still_reserve(where: str, launch: Launch) -> None:
    slow = launch(where, durations=Durations(lease=0))
    slow.call("enter", CLUSTER)
    slow.call("reserve", reservation(100))


def test_process_that_hangs_before_binding__finds_its_reservation_gone(where: str, launch: Launch) -> None:
    hung, next_one = launch(where, durations=Durations(reservation=0)), launch(where, durations=LONG)
    go(hung, "leave")
    hung.hang()
    next_one.call("enter", CLUSTER, wait=5)
    next_one.call("reserve", reservation(100, "other"))
    hung.go_on()
    with pytest.raises(ReservationLost, match="VMID 100 "):
        hung.call("mark_binding", CLUSTER, 100)
    assert [(kept.name, kept.phase) for kept in next_one.call("reservations")] == [("other", "reserved")]


def test_death_of_a_holder_on_another_controller__is_noticed_by_the_expiry_alone(where: str, launch: Launch) -> None:
    victim, next_one = launch(where, durations=LONG, elsewhere=True), launch(where, durations=LONG)
    go(victim, "reserve")
    victim.kill()
    with pytest.raises(LedgerUnavailable, match=r"Waited 0.1 s .* process \d+ on elsewhere has held it"):
        next_one.call("enter", CLUSTER, wait=0.1)


def test_reservation_of_a_holder_that_died_on_another_controller__counts_until_it_expires(
    where: str, launch: Launch
) -> None:
    victim, next_one = launch(where, durations=LONG, elsewhere=True), launch(where, durations=LONG)
    go(victim, "leave")
    victim.kill()
    next_one.call("enter", CLUSTER, wait=0)
    assert [kept.vmid for kept in next_one.call("reservations")] == [100]


def test_who_is_stopped_within_a_write__holds_up_others_no_longer_than_promised(
    where: str, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_BUSY_TIMEOUT_SECONDS", 0.5)
    hung = launch(where)
    hung.start("stop_within_a_write", CLUSTER)
    hung.until_stopped()
    with open_ledger(where) as ledger:
        if where.startswith("postgresql"):
            # The server cuts it off.
            ledger.remember_endpoint("pve1", 8006, CLUSTER, [])
        else:
            with pytest.raises(LedgerUnavailable, match=r"has been stopped for 0\.5 s while it wrote to it"):
                ledger.remember_endpoint("pve1", 8006, CLUSTER, [])
            hung.go_on()
            hung.result()
            ledger.remember_endpoint("pve1", 8006, CLUSTER, [])
