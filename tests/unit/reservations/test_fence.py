# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reservation's writes pass while it is known to be alive, and the ledger is asked when that is in doubt."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from support.ledgers import CLUSTER, reservation

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import (
    Holder,
    Ledger,
    ReservationLost,
    open_ledger,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.ledger import Fence, local_clocks


class Clocks:
    """The clock of the ledger, and the two of this machine."""

    def __init__(self) -> None:
        self.ledger = self.boottime = self.wall = 1_000_000.0

    def local(self) -> tuple[float, ...]:
        return self.boottime, self.wall


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def ledger(anywhere: str, clocks: Clocks) -> Iterator[Ledger]:
    with open_ledger(anywhere, clock=lambda: clocks.ledger) as opened:
        yield opened


@pytest.fixture
def fence(ledger: Ledger, clocks: Clocks) -> Fence:
    """A fence whose reservation has just been marked."""
    holder = Holder.new()
    with ledger.scheduling_cycle(CLUSTER, holder=holder, wait=0) as cycle:
        cycle.reserve([reservation(100)])
    made = Fence(ledger, CLUSTER, 100, holder, clocks=clocks.local)
    made.mark_binding()
    return made


def decide_elsewhere(ledger: Ledger) -> None:
    """Another one finds that it has expired, and that the cluster shows nothing of it."""
    with ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0) as cycle:
        assert [found.expired for found in cycle.reservations()] == [True]
        assert cycle.confirm(cycle.reservations())


def test_fence__trusts_a_fresh_proof_without_asking_the_ledger(fence: Fence, ledger: Ledger, clocks: Clocks) -> None:
    ledger.close()
    clocks.boottime += 0.9
    clocks.wall += 0.9
    fence.check()


@pytest.mark.parametrize("paused", [{"boottime": 1.0, "wall": 1.0}, {"boottime": 70.0}, {"wall": 3600.0}, {"wall": -1}])
def test_fence__asks_the_ledger_when_either_clock_has_gone_on_or_was_set(
    fence: Fence, ledger: Ledger, clocks: Clocks, paused: dict[str, float]
) -> None:
    clocks.boottime += paused.get("boottime", 0)
    clocks.wall += paused.get("wall", 0)
    clocks.ledger += 30
    fence.check()
    clocks.ledger += 59
    (kept,) = ledger.reservations(CLUSTER)
    assert kept.expires == clocks.ledger + 1, "what is asked about is renewed"
    clocks.ledger += 2
    decide_elsewhere(ledger)
    fence.check()  # still trusted
    clocks.boottime += 1
    with pytest.raises(ReservationLost, match="VMID 100 has expired"):
        fence.check()


def test_fence__lets_an_expired_reservation_pass_while_nobody_has_decided_since(
    fence: Fence, ledger: Ledger, clocks: Clocks
) -> None:
    for clock in ("ledger", "boottime", "wall"):
        setattr(clocks, clock, getattr(clocks, clock) + 600)
    fence.check()
    assert [kept.vmid for kept in ledger.reservations(CLUSTER)] == [100]


def test_cycle__is_told_of_a_reservation_that_was_renewed_since_it_was_read(
    fence: Fence, ledger: Ledger, clocks: Clocks
) -> None:
    clocks.boottime += 600
    clocks.ledger += 600
    with ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0) as cycle:
        read = cycle.reservations()
        fence.check()  # its holder goes on now, and creates the VM
        assert not cycle.confirm(read)
        assert [found.expired for found in cycle.reservations()] == [False]
    clocks.boottime += 1
    fence.check()


def test_fence__stops_every_write_of_a_lost_reservation(fence: Fence, ledger: Ledger, clocks: Clocks) -> None:
    clocks.boottime += 600
    clocks.ledger += 600
    decide_elsewhere(ledger)
    for _write in range(2):
        with pytest.raises(ReservationLost):
            fence.check()


def test_fence__stops_writes_that_were_never_marked(ledger: Ledger, clocks: Clocks) -> None:
    with pytest.raises(ReservationLost):
        Fence(ledger, CLUSTER, 100, Holder.new(), clocks=clocks.local).check()


def test_local_clocks__go_on() -> None:
    before = local_clocks()
    time.sleep(0.01)
    assert all(0.01 <= now - then < 60 for now, then in zip(local_clocks(), before, strict=True))
