# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What shutting a cluster down and starting it share: the record, waves of guests, and the armed state of HA."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ...errors import CollectionError, ConnectionFailed, GoalsNotReached, Interrupted
from ...proxmox.api.reader import in_parallel
from ...proxmox.api.session import Session
from ...proxmox.moves.shutdown_record import ShutdownRecord, read_shutdown, write_shutdown
from ...proxmox.node_power import Membership, read_armed_state
from ...proxmox.tasks import Poller, TaskFollower
from ..stopping import Stop
from .cluster_options import ClusterOptions
from .power import GuestPower, Running, read_guests

StartRank = tuple[int, float]
Warn = Callable[[str], None]


@dataclass(slots=True)
class PowerChanges:
    """What a run has done: the VMIDs of guests, and the names of nodes."""

    changed: bool = False
    guests: list[int] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)


class PowerWork:
    """What both directions share: the record, and writing it before what it says."""

    def __init__(self, session: Session, stop: Stop, options: ClusterOptions, warn: Warn) -> None:
        """warn takes what the user must know, as a sentence."""
        found = read_shutdown(session)
        self.session = session
        self.options = options
        self.warn = warn
        self.stop = stop
        self.poller = Poller(sleep=stop.sleep)
        self.power = GuestPower(
            session, TaskFollower(session, options.timeout, self.poller), self.poller, options.timeout
        )
        self.record = found or ShutdownRecord()
        self.has_record = found is not None
        self.done = PowerChanges()

    def write(self, record: ShutdownRecord) -> None:
        if record != self.record or not self.has_record:
            write_shutdown(self.session, record, there=self.has_record)
            self.record, self.has_record, self.done.changed = record, True, True

    def result(self, steps: Iterable[dict[str, t.Any]], **more: t.Any) -> dict[str, t.Any]:
        return {
            "changed": self.done.changed,
            "steps": list(steps),
            "guests": sorted(self.done.guests),
            "switched_nodes": self.done.nodes,
            **more,
        }

    def waves(self, guests: Iterable[Running], rank: Callable[[Running], StartRank]) -> list[list[Running]]:
        """Return the guests in the order in which they start, those of one rank together."""
        by_rank: dict[StartRank, list[Running]] = {}
        for guest in sorted(guests, key=lambda each: each.vmid):
            by_rank.setdefault(rank(guest), []).append(guest)
        return [by_rank[key] for key in sorted(by_rank)]

    def do_for_each(self, wave: Iterable[Running], act: Callable[[Running], bool]) -> dict[int, str]:
        """Do something with all guests of a wave. Returns why it failed, by VMID."""
        with self.stop.threads(self.options.parallel) as pool:
            waiting = {guest.vmid: pool.submit(act, guest) for guest in wave}
            causes: dict[int, str] = {}
            for vmid, future in waiting.items():
                try:
                    if future.result():
                        self.done.guests.append(vmid)
                        self.done.changed = True
                except Interrupted:
                    raise
                except CollectionError as error:
                    causes[vmid] = error.message
        return causes

    def read_guests(self, membership: Membership, *, all_answer: bool = True) -> list[Running]:
        """Read the guests of the nodes that are online. Unless all_answer, one that does not answer has none: a node
        that has just gone off is shown as online for some seconds.
        """

        def read(name: str) -> list[Running]:
            try:
                return read_guests(self.session, name)
            except ConnectionFailed:
                if all_answer:
                    raise
                return []

        nodes = [member.name for member in membership.members if member.online]
        found = in_parallel(read, nodes)
        return [guest for name in nodes for guest in found[name]]

    def await_armed_state(self, *wanted: str) -> None:
        """Wait until HA is in one of these states. Raises GoalsNotReached."""
        if not self.poller.until(
            lambda: True if read_armed_state(self.session) in wanted else None, self.options.timeout
        ):
            state = read_armed_state(self.session)
            raise GoalsNotReached(
                f"HA is {state or 'unknown'} and not {wanted[0]} after {self.options.timeout:g} s; see the log of"
                f" pve-ha-crm on the nodes, and run again"
            )


def step(what: str, names: list[str]) -> dict[str, t.Any]:
    """Return a step of the plan, as the result has it: what is done, and to which guests, nodes or flags."""
    return {"what": what, "names": names}
