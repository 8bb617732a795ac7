# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever schedulers and binders do in whatever order, the ledger holds what a plain list of reservations would."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.ledgers import CLUSTER, dead_holder, reservation

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import (
    AlreadyReserved,
    Durations,
    Holder,
    Reservation,
    ReservationLost,
    open_ledger,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.records import LASTS

DURATIONS = Durations(lease=15, reservation=60, created=90)

holders = st.sampled_from(["first", "second", "dead"])
some_vmids = st.sets(st.integers(100, 103), min_size=1, max_size=2)
some_reservations = st.lists(
    st.builds(reservation, st.integers(100, 103), st.sampled_from(["web", "db", "mail"])), min_size=1, max_size=2
)


class AnyOrder(RuleBasedStateMachine):
    """The ledger beside a dictionary of reservations by VMID."""

    @initialize()
    def open(self) -> None:
        self.now = 1_000_000.0
        self.ledger = open_ledger("none", clock=lambda: self.now, durations=DURATIONS)
        self.holders = {"first": Holder.new(), "second": Holder.new(), "dead": dead_holder()}
        self.model: dict[int, Reservation] = {}

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()

    def has_ended(self, found: Reservation) -> bool:
        died_early = found.phase == "reserved" and found.holder == self.holders["dead"]
        return died_early or self.now >= found.expires + LASTS * (found.phase == "binding")

    def forget_ended(self, *, rivals_of: list[Reservation] | None = None) -> None:
        self.model = {
            vmid: found
            for vmid, found in self.model.items()
            if not self.has_ended(found)
            or (rivals_of is not None and all(vmid != one.vmid and found.name != one.name for one in rivals_of))
        }

    def mine(self, vmids: set[int], who: str) -> set[int]:
        return {vmid for vmid in vmids if vmid in self.model and self.model[vmid].holder == self.holders[who]}

    def change(self, vmids: set[int], seconds: float, **values: t.Any) -> None:
        for vmid in vmids:
            self.model[vmid] = replace(self.model[vmid], expires=self.now + seconds, **values)

    def may_be_added(self, wanted: Reservation, present: dict[int, Reservation]) -> bool:
        rivals = [found for found in present.values() if found.vmid == wanted.vmid or found.name == wanted.name]
        return all(
            (found.vmid, found.name, found.phase) == (wanted.vmid, wanted.name, "binding")
            and (found.holder == self.holders["dead"] or self.now >= found.expires)
            for found in rivals
        )

    @rule(who=holders, wanted=some_reservations)
    def reserve(self, who: str, wanted: list[Reservation]) -> None:
        before = self.model
        self.forget_ended(rivals_of=wanted)
        after = dict(self.model)
        allowed = True
        for one in wanted:
            allowed = allowed and self.may_be_added(one, after)
            after[one.vmid] = replace(one, holder=self.holders[who], created=self.now, expires=self.now + 60)
        with self.ledger.scheduling_cycle(CLUSTER, holder=self.holders[who], wait=0) as cycle:
            try:
                cycle.reserve(wanted)
            except AlreadyReserved:
                assert not allowed
                # What was refused has changed nothing at all: what had ended can still be renewed.
                self.model = before
            else:
                assert allowed
                self.model = after

    @rule(who=holders, vmids=some_vmids)
    def mark_binding(self, who: str, vmids: set[int]) -> None:
        try:
            self.ledger.mark_binding(CLUSTER, vmids, self.holders[who])
        except ReservationLost:
            assert self.mine(vmids, who) != vmids
        else:
            assert self.mine(vmids, who) == vmids
            self.change(vmids, 60, phase="binding")

    @rule(who=holders, vmids=some_vmids)
    def renew(self, who: str, vmids: set[int]) -> None:
        mine = self.mine(vmids, who)
        assert self.ledger.renew(CLUSTER, vmids, self.holders[who]) == mine
        self.change(mine, 60)

    @rule(who=holders, vmids=some_vmids)
    def mark_created(self, who: str, vmids: set[int]) -> None:
        self.ledger.mark_created(CLUSTER, vmids, self.holders[who])
        self.change(self.mine(vmids, who), 90, phase="created")

    @rule(who=holders, vmids=some_vmids)
    def release(self, who: str, vmids: set[int]) -> None:
        self.ledger.release(CLUSTER, vmids, self.holders[who])
        for vmid in self.mine(vmids, who):
            del self.model[vmid]

    @rule(who=holders, vmids=some_vmids, other=holders, renewed=some_vmids)
    def confirm(self, who: str, vmids: set[int], other: str, renewed: set[int]) -> None:
        self.forget_ended()
        read = {vmid: found for vmid, found in self.model.items() if vmid in vmids}
        with self.ledger.scheduling_cycle(CLUSTER, holder=self.holders[who], wait=0) as cycle:
            asked = [found for found in cycle.reservations() if found.vmid in vmids]
            self.renew(other, renewed)
            dropped = {vmid for vmid, found in read.items() if self.model[vmid] == found}
            assert cycle.confirm(asked) == (dropped == read.keys())
        self.model = {vmid: found for vmid, found in self.model.items() if vmid not in dropped}

    @rule(who=holders)
    def read(self, who: str) -> None:
        self.forget_ended()
        with self.ledger.scheduling_cycle(CLUSTER, holder=self.holders[who], wait=0) as cycle:
            read = [replace(found, quiet=0, expired=False, forsaken=False) for found in cycle.reservations()]
            assert read == [self.model[vmid] for vmid in sorted(self.model)]

    @rule(seconds=st.sampled_from([1, 30, 59, 61, 91, 3601]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @invariant()
    def nothing_is_given_out_twice(self) -> None:
        if hasattr(self, "ledger"):
            found = self.ledger.reservations(CLUSTER)
            assert len({one.vmid for one in found}) == len({one.name for one in found}) == len(found)


AnyOrder.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestAnyOrder = AnyOrder.TestCase
