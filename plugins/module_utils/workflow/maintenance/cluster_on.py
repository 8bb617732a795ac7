# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts a whole cluster that was shut down: nodes, then the guests that ran."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator
from dataclasses import replace

from ...engine.texts import join_words
from ...errors import ApiError, GoalsNotReached
from ...proxmox.api.failures import UNREADABLE
from ...proxmox.ceph import read_flag, set_flag
from ...proxmox.moves.drain_marks import recognizes
from ...proxmox.moves.shutdown_record import remove_shutdown
from ...proxmox.node_health import read_health
from ...proxmox.node_power import ARMED, STANDBY, Membership, arm, read_armed_state, read_membership, wake_node
from ..moves.results import failure_with
from .cluster_work import PowerWork, StartRank, step


class Start(PowerWork):
    """Wakes the nodes, and starts the guests that ran."""

    def run(self, check_mode: bool) -> dict[str, t.Any]:
        if not self.has_record:
            return self.result([])
        membership = read_membership(self.session)
        steps = list(self._steps(membership))
        if check_mode:
            self.done.changed = True
            return self.result(steps)
        try:
            self._carry_out()
        except GoalsNotReached as error:
            raise failure_with(error, self.result(steps)) from error
        return self.result(steps)

    def _steps(self, membership: Membership) -> Iterator[dict[str, t.Any]]:
        if membership.offline:
            yield step("wake nodes" if self.options.nodes else "wait for nodes", membership.offline)
        if self.record.flags:
            yield step("remove flags of Ceph", sorted(self.record.flags))
        there = {guest.vmid: guest for guest in self.read_guests(membership, all_answer=False)}
        by_rank: dict[StartRank, list[str]] = {}
        for vmid, ran in sorted(self.record.ran.items()):
            if vmid not in there or not there[vmid].running:
                label = there[vmid].label if vmid in there else f"guest ({vmid})"
                by_rank.setdefault(ran.rank, []).append(label)
        for rank in sorted(by_rank):
            yield step("start guests", by_rank[rank])
        if self.record.disarmed:
            yield step("arm HA", ["all resources"])

    def _carry_out(self) -> None:
        self._await_nodes()
        for flag in sorted(self.record.flags):
            if read_flag(self.session, flag):
                set_flag(self.session, flag, False)
                self.done.changed = True
        self.write(replace(self.record, flags=frozenset()))
        left = self._start_guests()
        if self.record.disarmed:
            if read_armed_state(self.session) not in (ARMED, STANDBY):
                arm(self.session)
                self.done.changed = True
            self.await_armed_state(ARMED, STANDBY)
        if left:
            self.write(replace(self.record, ran={vmid: self.record.ran[vmid] for vmid in left}, disarmed=False))
            raise GoalsNotReached(f"guests do not start again: {'; '.join(left.values())}; correct that, and run again")
        remove_shutdown(self.session)
        self.done.changed = True

    def _wake(self, name: str) -> None:
        try:
            wake_node(self.session, name)
        except ApiError as error:
            self.warn(f"{name} cannot be woken, start it by hand: {error.message}")
            return
        self.done.nodes.append(name)
        self.done.changed = True

    def _await_nodes(self) -> None:
        """Wake the nodes that are offline, and wait until all are there and healthy. Raises GoalsNotReached."""
        tried: set[str] = set()

        def look() -> list[str]:
            """Return the problems. Wakes each node once: one that has just gone off is shown as online for a while."""
            try:
                membership = read_membership(self.session)
                for name in membership.offline if self.options.nodes else ():
                    if name not in tried:
                        tried.add(name)
                        self._wake(name)
                missing = [] if self.options.accepts("offline") else membership.offline
                found = [f"{name} is offline" for name in missing]
                if not membership.quorate:
                    found.append("the cluster has no quorum")
                there = [member.name for member in membership.members if member.online]
                health = read_health(self.session, there, self.options.accept)
                return found or [f"{node.name}: {each.text}" for node in health for each in node.problems]
            except UNREADABLE as error:
                return [error.message]

        if not self.poller.until(lambda: True if not look() else None, self.options.wait):
            raise GoalsNotReached(
                f"the nodes are not ready after {self.options.wait:g} s, and no guest was started:"
                f" {join_words(look())}; correct these problems, or add their names to accept, and run again"
            )

    def _start_guests(self) -> dict[int, str]:
        """Start the guests that ran. Returns those that do not start, each with the reason."""
        membership = read_membership(self.session)
        there = {guest.vmid: guest for guest in self.read_guests(membership) if guest.vmid in self.record.ran}
        left: dict[int, str] = {}
        for vmid, ran in sorted(self.record.ran.items()):
            if vmid not in there and membership.offline:
                left[vmid] = f"guest {vmid} is on none of the nodes that are online"
            elif vmid not in there:
                self.warn(f"guest {vmid} ran before the shutdown, and is not there any more")
            elif not recognizes(ran.mark, there[vmid].identity):
                self.warn(f"{there[vmid].label} is not the guest that ran under this VMID, and does not start")
                del there[vmid]
        for wave in self.waves(there.values(), lambda guest: self.record.ran[guest.vmid].rank):
            left |= self.do_for_each(wave, lambda guest: self.power.start(guest, self.record.ran[guest.vmid].mark))
        return left
