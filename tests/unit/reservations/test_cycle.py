# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a scheduling cycle may reserve, and when reservations end."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest
from support.identities import identity
from support.ledgers import CLUSTER, OTHER_CLUSTER, dead_holder, reservation

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import LedgerUnavailable
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Constraints, GangRef, HAIntent
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import (
    AlreadyReserved,
    Durations,
    Holder,
    LeasedCycle,
    LeaseLost,
    Ledger,
    Reservation,
    ReservationLost,
    open_ledger,
)

DURATIONS = Durations(lease=15, reservation=60, renewal=20, created=90)


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(anywhere: str, clock: Clock) -> Iterator[Ledger]:
    with open_ledger(anywhere, clock=clock, durations=DURATIONS) as opened:
        yield opened


@pytest.fixture
def me() -> Holder:
    return Holder.new()


def reserve(ledger: Ledger, holder: Holder, *reservations: Reservation) -> list[Reservation]:
    with ledger.scheduling_cycle(CLUSTER, holder=holder, wait=0) as cycle:
        return cycle.reserve(reservations)


def kept(ledger: Ledger, cluster: str = CLUSTER) -> list[int]:
    """Return the VMIDs that are reserved; every way of asking must say the same."""
    outside = [found.vmid for found in ledger.reservations(cluster)]
    with ledger.scheduling_cycle(cluster, holder=Holder.new(), wait=0) as cycle:
        assert [found.vmid for found in cycle.reservations()] == outside
    return outside


def test_reservation__is_read_back_as_it_was_made(ledger: Ledger, clock: Clock, me: Holder) -> None:
    full = reservation(
        100,
        cores=2.5,
        memory=3 * 1024**3,
        running=True,
        storage_bytes={("local", "pve1"): 2**40, ("ceph", "pve1"): 1},
        devices=(("pve1", "0000:01:00.0"), ("pve1", "0000:01:00.0")),
        tags=frozenset({"web", "überall"}),
        pool="pool",
        constraints=Constraints(gang=GangRef("group"), ha=HAIntent(rule="r")),
    )
    (made,) = reserve(ledger, me, full)
    assert ledger.reservations(CLUSTER) == [made]
    assert (made.holder, made.created, made.expires) == (me, clock.now, clock.now + 60)
    assert (made.storage_bytes, made.devices, made.tags) == (full.storage_bytes, full.devices, full.tags)


def test_reservations_of_one_cluster__do_not_concern_another(ledger: Ledger, me: Holder) -> None:
    reserve(ledger, me, reservation(100))
    with ledger.scheduling_cycle(OTHER_CLUSTER, holder=me, wait=0) as cycle:
        assert cycle.reservations() == []
        cycle.reserve([reservation(100, cluster=OTHER_CLUSTER)])
    assert kept(ledger) == kept(ledger, OTHER_CLUSTER) == [100]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            reservation(100, "new"),
            "Cannot reserve VMID 100 for VM 'new' .* reserved for VM 'vm100' .* for 60 s at most",
        ),
        (reservation(101, "vm100"), r"Cannot reserve the name 'vm100' .* reserved for VM 'vm100' \(100\)"),
        (reservation(100, "vm100"), "Cannot reserve VMID 100 "),
    ],
)
def test_what_is_reserved__is_refused_and_nothing_of_that_call_is_written(
    ledger: Ledger, me: Holder, wanted: Reservation, message: str
) -> None:
    reserve(ledger, me, reservation(100))
    with pytest.raises(AlreadyReserved, match=message):
        reserve(ledger, Holder.new(), reservation(200), wanted)
    assert kept(ledger) == [100]


@pytest.mark.parametrize("twice", [reservation(100, "other"), reservation(101, "vm100")])
def test_one_call__cannot_reserve_a_vmid_or_name_twice(ledger: Ledger, me: Holder, twice: Reservation) -> None:
    with pytest.raises(AlreadyReserved):
        reserve(ledger, me, reservation(100), twice)
    assert kept(ledger) == []


def test_reservation__expires(ledger: Ledger, clock: Clock, me: Holder) -> None:
    reserve(ledger, me, reservation(100))
    clock.now += 59.9
    assert kept(ledger) == [100]
    clock.now += 0.1
    assert kept(ledger) == []
    reserve(ledger, me, reservation(100, "other"))


def test_what_was_sent__is_kept_for_an_hour_after_it_has_expired(ledger: Ledger, clock: Clock, me: Holder) -> None:
    reserve(ledger, me, reservation(100), reservation(101))
    ledger.mark_binding(CLUSTER, [100], me)
    clock.now += 61
    (found,) = ledger.reservations(CLUSTER)
    assert (found.vmid, found.quiet, found.expired, found.forsaken) == (100, 61, True, True)
    clock.now += 3598
    assert kept(ledger) == [100]
    reserve(ledger, Holder.new(), reservation(100))  # nobody goes on with it
    clock.now += 61
    assert kept(ledger) == []


def test_a_move_that_was_begun__is_taken_over_by_nobody(ledger: Ledger, me: Holder) -> None:
    dead = dead_holder()
    move = reservation(100, "move:100", source="pve2")
    with ledger.scheduling_cycle(CLUSTER, holder=dead, wait=0) as cycle:
        cycle.reserve([move])
    ledger.mark_binding(CLUSTER, [100], dead)
    with pytest.raises(AlreadyReserved, match="VMID 100"):
        reserve(ledger, me, move)


def test_a_move__replaces_the_reservation_of_the_guests_creation_once_that_is_complete(
    ledger: Ledger, me: Holder
) -> None:
    creator, creation = Holder.new(), reservation(100, "web-1")
    move = replace(creation, node="pve2", source="pve1")
    reserve(ledger, creator, creation)
    ledger.mark_binding(CLUSTER, [100], creator)
    with pytest.raises(AlreadyReserved, match="VMID 100"):
        reserve(ledger, me, move)
    ledger.mark_created(CLUSTER, [100], creator)
    reserve(ledger, me, move)
    with pytest.raises(AlreadyReserved, match="VMID 100"):
        reserve(ledger, creator, move)

    (found,) = ledger.reservations(CLUSTER)
    assert (found.name, found.node, found.source) == ("web-1", "pve2", "pve1")
    assert (found.phase, found.holder) == ("reserved", me)


def test_a_move__replaces_that_of_the_guests_last_move_once_it_has_arrived(ledger: Ledger, me: Holder) -> None:
    move = reservation(100, "move:100", source="pve2")
    reserve(ledger, me, move)
    ledger.mark_created(CLUSTER, [100], me)
    back = replace(move, node="pve2", source="pve1")
    reserve(ledger, me, back)
    (found,) = ledger.reservations(CLUSTER)
    assert (found.node, found.source) == ("pve2", "pve1")


def test_renewing__prolongs_what_is_still_the_holders(ledger: Ledger, clock: Clock, me: Holder) -> None:
    reserve(ledger, me, reservation(100), reservation(101), reservation(102))
    clock.now += 50
    assert ledger.renew(CLUSTER, [100, 101, 999], me) == {100, 101}
    assert ledger.renew(CLUSTER, [102], Holder.new()) == frozenset()
    clock.now += 50
    assert kept(ledger) == [100, 101]
    ledger.renew(CLUSTER, [100], me, until=clock.now + 1000)
    clock.now += 999
    assert kept(ledger) == [100]


def test_marking__prolongs_too(ledger: Ledger, clock: Clock, me: Holder) -> None:
    reserve(ledger, me, reservation(100))
    clock.now += 50
    ledger.mark_binding(CLUSTER, [100], me)
    clock.now += 50
    assert [found.phase for found in ledger.reservations(CLUSTER)] == ["binding"]
    ledger.mark_created(CLUSTER, [100], me)
    clock.now += 89
    assert [found.phase for found in ledger.reservations(CLUSTER)] == ["created"]
    clock.now += 1
    assert kept(ledger) == []


def test_nothing__may_be_sent_for_a_reservation_that_is_not_ones_own(ledger: Ledger, me: Holder) -> None:
    reserve(ledger, me, reservation(100), reservation(101))
    with pytest.raises(ReservationLost, match="VMID 102 "):
        ledger.mark_binding(CLUSTER, [100, 102], me)
    with pytest.raises(ReservationLost, match="VMID 100, 101 "):
        ledger.mark_binding(CLUSTER, [100, 101], Holder.new())
    assert {found.phase for found in ledger.reservations(CLUSTER)} == {"reserved"}


def test_holder__alone_releases_but_everybody_confirms(ledger: Ledger, me: Holder) -> None:
    reserve(ledger, me, *(reservation(vmid) for vmid in range(100, 105)))
    other = Holder.new()
    ledger.release(CLUSTER, [100], other)
    ledger.release(CLUSTER, [101], me)
    with ledger.scheduling_cycle(CLUSTER, holder=other, wait=0) as cycle:
        assert cycle.confirm([found for found in cycle.reservations() if found.vmid == 103])
    assert kept(ledger) == [100, 102, 104]


def test_forget__drops_what_was_created_whoever_holds_it_and_nothing_that_is_being_created(
    ledger: Ledger, me: Holder
) -> None:
    reserve(ledger, me, *(reservation(vmid) for vmid in (100, 101, 102, 103)))
    ledger.mark_binding(CLUSTER, [101], me)
    ledger.mark_created(CLUSTER, [102, 103], me)
    ledger.forget(CLUSTER, [100, 101, 102])
    assert [(found.vmid, found.phase) for found in ledger.reservations(CLUSTER)] == [
        (100, "reserved"),
        (101, "binding"),
        (103, "created"),
    ]
    ledger.forget(CLUSTER, [])
    assert kept(ledger) == [100, 101, 103]


def test_steps_on_no_vm_at_all__change_nothing(ledger: Ledger, me: Holder) -> None:
    reserve(ledger, me, reservation(100))
    ledger.mark_binding(CLUSTER, [], me)
    ledger.release(CLUSTER, [], me)
    with ledger.scheduling_cycle(CLUSTER, holder=me, wait=0) as cycle:
        assert cycle.reserve([]) == []
        assert cycle.confirm([])
    assert [(found.vmid, found.phase) for found in ledger.reservations(CLUSTER)] == [(100, "reserved")]


def test_dead_holder__keeps_only_what_was_sent_to_proxmox(ledger: Ledger) -> None:
    dead = dead_holder()
    reserve(ledger, dead, reservation(100), reservation(101), reservation(102))
    assert kept(ledger) == []
    reserve(ledger, dead, reservation(100), reservation(101), reservation(102))
    ledger.mark_binding(CLUSTER, [101], dead)
    ledger.mark_created(CLUSTER, [102], dead)
    assert kept(ledger) == [101, 102]


def test_dead_holders_unfinished_vm__is_taken_over_and_a_finished_one_is_not(ledger: Ledger, me: Holder) -> None:
    dead = dead_holder()
    with ledger.scheduling_cycle(CLUSTER, holder=dead, wait=0) as cycle:
        cycle.reserve([reservation(101), reservation(102)])
    ledger.mark_binding(CLUSTER, [101], dead)
    ledger.mark_created(CLUSTER, [102], dead)
    reserve(ledger, me, reservation(101))
    ledger.mark_binding(CLUSTER, [101], me)
    with pytest.raises(AlreadyReserved):
        reserve(ledger, me, reservation(102))


def test_lease__is_free_again_after_a_cycle_that_failed(ledger: Ledger, me: Holder) -> None:
    with pytest.raises(ZeroDivisionError), ledger.scheduling_cycle(CLUSTER, holder=me, wait=0):
        raise ZeroDivisionError
    assert kept(ledger) == []


def test_whoever_waits_in_vain__is_told_who_holds_the_lease(ledger: Ledger, clock: Clock, me: Holder) -> None:
    with ledger.scheduling_cycle(CLUSTER, holder=me, wait=0):
        clock.now += 14
        message = f"cluster '{CLUSTER}': process {me.pid} on {me.host} has held it for 14 s, 0 more were waiting"
        for _ in range(2):  # the first one must not be left in the queue
            with (
                pytest.raises(LedgerUnavailable, match=message),
                ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0),
            ):
                pass
    assert kept(ledger) == []


def test_expired_lease__is_taken_and_its_former_holder_is_fenced_off(
    ledger: Ledger, clock: Clock, me: Holder
) -> None:
    with ledger.scheduling_cycle(CLUSTER, holder=me, wait=0) as slow:
        clock.now += 15
        with ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0) as quick:
            for step in (
                slow.reservations,
                lambda: slow.reserve([reservation(100)]),
                lambda: slow.confirm([]),
            ):
                with pytest.raises(LeaseLost, match="has taken it over"):
                    step()
            quick.reserve([reservation(101)])
    assert kept(ledger) == [101]


def after_the_next_look(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen between a look at the lease and the attempt to take it."""
    read = ledger.database.read

    def read_and_act(*query: t.Any) -> t.Any:
        monkeypatch.setattr(ledger.database, "read", read)
        found = read(*query)
        act()
        return found

    monkeypatch.setattr(ledger.database, "read", read_and_act)


@pytest.mark.parametrize("former", ["nobody", "slow", "dead"])
def test_lease_that_was_free_when_looked_at__goes_to_one_alone(
    ledger: Ledger, clock: Clock, me: Holder, monkeypatch: pytest.MonkeyPatch, former: str
) -> None:
    with ExitStack() as stack:

        def enter(holder: Holder) -> LeasedCycle:
            return stack.enter_context(ledger.scheduling_cycle(CLUSTER, holder=holder, wait=0))

        if former != "nobody":
            enter(dead_holder() if former == "dead" else Holder.new())
            clock.now += 15 * (former == "slow")
        after_the_next_look(ledger, monkeypatch, lambda: enter(me))
        with pytest.raises(LedgerUnavailable, match=f"process {me.pid} on {me.host} has held it"):
            enter(Holder.new())


def test_lease_that_was_prolonged_after_a_look__is_not_taken(
    ledger: Ledger, clock: Clock, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ledger.scheduling_cycle(CLUSTER, holder=me, wait=0) as slow:
        clock.now += 15
        after_the_next_look(ledger, monkeypatch, slow.reservations)
        with pytest.raises(LedgerUnavailable), ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0):
            pass
        slow.reserve([reservation(100)])
    assert kept(ledger) == [100]


def test_who_had_the_lease_between_a_look_and_the_attempt__is_fenced_off(
    ledger: Ledger, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[LeasedCycle] = []

    def enter_and_leave() -> None:
        with ledger.scheduling_cycle(CLUSTER, holder=me, wait=0) as cycle:
            ended.append(cycle)

    after_the_next_look(ledger, monkeypatch, enter_and_leave)
    with ledger.scheduling_cycle(CLUSTER, holder=Holder.new()), pytest.raises(LeaseLost, match="has taken it over"):
        ended[0].reserve([reservation(100)])


def test_who_finds_the_lease_taken_after_all__has_a_place_in_the_queue(
    ledger: Ledger, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:

        def arrive_later(_seconds: float) -> None:
            with (
                pytest.raises(LedgerUnavailable, match="1 more were waiting before this one"),
                ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0),
            ):
                pass
            stack.close()

        cycle = ledger.scheduling_cycle(CLUSTER, holder=me, wait=0)
        after_the_next_look(ledger, monkeypatch, lambda: stack.enter_context(cycle))
        monkeypatch.setattr(time, "sleep", arrive_later)
        with ledger.scheduling_cycle(CLUSTER, holder=Holder.new()):
            pass


def pass_without_a_sign(monkeypatch: pytest.MonkeyPatch, clock: Clock, seconds: float) -> None:
    """Let time pass in which this process is stopped or waits for another one."""
    real = time.monotonic
    clock.now += seconds
    monkeypatch.setattr(time, "monotonic", lambda: real() + seconds)


def test_lease_whose_taking_took_long__lasts_from_then_on(
    ledger: Ledger, clock: Clock, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_the_next_look(ledger, monkeypatch, lambda: pass_without_a_sign(monkeypatch, clock, 14))
    with ledger.scheduling_cycle(CLUSTER, holder=me, wait=0):
        clock.now += 14
        with pytest.raises(LedgerUnavailable), ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0):
            pass


def test_lease_that_was_lost_while_it_was_taken__is_not_believed_ours(
    ledger: Ledger, clock: Clock, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = ledger.database.write
    with ExitStack() as stack:

        def write_and_stop(*statements: t.Any) -> int:
            monkeypatch.setattr(ledger.database, "write", write)
            changed = write(*statements)
            pass_without_a_sign(monkeypatch, clock, 15)
            stack.enter_context(ledger.scheduling_cycle(CLUSTER, holder=me, wait=0))
            return changed

        monkeypatch.setattr(ledger.database, "write", write_and_stop)
        with pytest.raises(LedgerUnavailable, match="has held it for 0 s"):
            stack.enter_context(ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0))


def test_one_holder_that_asks_twice__has_the_lease_once(ledger: Ledger, me: Holder) -> None:
    with (
        ledger.scheduling_cycle(CLUSTER, holder=me, wait=0),
        pytest.raises(LedgerUnavailable, match=f"process {me.pid} on {me.host} has held it"),
    ):
        ledger.scheduling_cycle(CLUSTER, holder=me, wait=0.01).__enter__()


def test_end_of_a_lost_cycle__does_not_end_its_successors(ledger: Ledger, clock: Clock, me: Holder) -> None:
    slow = ledger.scheduling_cycle(CLUSTER, holder=me, wait=0)
    slow.__enter__()
    clock.now += 15
    with ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0) as quick:
        slow.__exit__(None, None, None)
        quick.reserve([reservation(100)])


def test_every_call_on_the_cycle__prolongs_the_lease(ledger: Ledger, clock: Clock, me: Holder) -> None:
    with ledger.scheduling_cycle(CLUSTER, holder=me, wait=0) as cycle:
        for step in (cycle.reservations, lambda: cycle.reserve([]), lambda: cycle.confirm([])):
            clock.now += 14
            step()
        with pytest.raises(LedgerUnavailable), ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0):
            pass


def test_cycle__is_of_no_use_after_its_end(ledger: Ledger, me: Holder) -> None:
    with ledger.scheduling_cycle(CLUSTER, holder=me, wait=0) as cycle:
        pass
    with pytest.raises(LeaseLost, match="it has ended"):
        cycle.reserve([reservation(100)])


def test_cluster_behind_an_address__is_remembered(ledger: Ledger) -> None:
    assert ledger.endpoint("pve1.example", 8006) is None
    ledger.remember_endpoint("pve1.example", 8006, CLUSTER, ["pve1", "pve2"])
    ledger.remember_endpoint("pve1.example", 8007, OTHER_CLUSTER, ["a"])
    assert ledger.endpoint("pve1.example", 8006) == (CLUSTER, {"pve1", "pve2"})
    ledger.remember_endpoint("pve1.example", 8006, OTHER_CLUSTER, ["pve3"])
    assert ledger.endpoint("pve1.example", 8006) == (OTHER_CLUSTER, {"pve3"})


def test_remember_endpoint__forgets_other_addresses_of_a_cluster_that_was_installed_anew(ledger: Ledger) -> None:
    nodes = ["pve1", "pve2"]
    ledger.remember_endpoint("first", 8006, CLUSTER, nodes)
    ledger.remember_endpoint("second", 8006, CLUSTER, nodes)
    ledger.remember_endpoint("elsewhere", 8006, CLUSTER, ["pve3"])
    assert ledger.endpoint("first", 8006) == (CLUSTER, set(nodes))
    ledger.remember_endpoint("third", 8006, OTHER_CLUSTER, nodes)
    assert ledger.endpoint("first", 8006) is ledger.endpoint("second", 8006) is None
    assert ledger.endpoint("elsewhere", 8006) == (CLUSTER, {"pve3"})


def test_threads__share_one_ledger(anywhere: str) -> None:
    with open_ledger(anywhere) as ledger:

        def create(vmid: int) -> None:
            holder = Holder.new()
            with ledger.scheduling_cycle(CLUSTER, holder=holder, wait=30) as cycle:
                cycle.reserve([reservation(vmid)])
            for _ in range(5):
                ledger.renew(CLUSTER, [vmid], holder)
            ledger.mark_binding(CLUSTER, [vmid], holder)

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(create, range(100, 116)))
        assert [(found.vmid, found.phase) for found in ledger.reservations(CLUSTER)] == [
            (vmid, "binding") for vmid in range(100, 116)
        ]


def test_birth__is_kept_with_the_reservation_of_its_holder_only(ledger: Ledger, me: Holder) -> None:
    reserve(ledger, me, reservation(100), reservation(101))
    ledger.note_birth(CLUSTER, 100, me, task="UPID:pve1:1")
    ledger.note_birth(CLUSTER, 100, me, identity=identity(7, "vm100"))
    ledger.note_birth(CLUSTER, 101, Holder.new(), identity=identity(8, "vm101"))

    found = {each.vmid: (each.task, each.identity, each.phase) for each in ledger.reservations(CLUSTER)}

    assert found == {100: ("UPID:pve1:1", identity(7, "vm100"), "reserved"), 101: ("", None, "reserved")}
