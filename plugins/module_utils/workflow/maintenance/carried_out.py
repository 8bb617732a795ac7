# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a tour sets on the cluster for the maintenance of a node, and takes back afterwards.

Each setting is in the record of the tour before it is made, and until it is taken back. So a run that is killed at any
moment leaves nothing that the next one does not know of.
"""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from ...engine.texts import join_words
from ...errors import CollectionError, GoalsNotReached, Interrupted, TaskTimeout
from ...foreign_text import visible
from ...model import Identity
from ...proxmox.agents import find_answering, find_silent, has_agent
from ...proxmox.api.failures import UNREADABLE
from ...proxmox.api.reader import in_parallel
from ...proxmox.api.session import Session
from ...proxmox.ceph import read_flag, set_flag
from ...proxmox.datacenter import ask_if_ha_balances, let_balance
from ...proxmox.identity import Sameness, compare
from ...proxmox.inventory.ha_state import ask_if_ha_has_resources, in_maintenance
from ...proxmox.moves.drain_marks import fingerprint
from ...proxmox.moves.tour_record import BALANCE, NOOUT, TourRecord, read_record, remove_record, write_record
from ...proxmox.node_power import read_membership
from ...proxmox.tasks import Poller, TaskFollower
from ..stopping import Stop
from .power import GuestPower, Running, read_guests
from .tour_document import read_tour
from .tour_options import (
    BEGUN,
    ENDED,
    ENTERED,
    FINISHED,
    LEFT,
    PREPARED,
    RECORDED,
    RELEASED,
    TourOptions,
    task_nodes,
)


def carry_out(params: Mapping[str, t.Any], *, check_mode: bool, warn: Callable[[str], None]) -> dict[str, t.Any]:
    """Do what a task with another state than planned says, and return the module's result.

    Raises GoalsNotReached if a node still has guests that run, and what the API answers.
    """
    options, state = TourOptions.of(params), params["state"]
    names = task_nodes(params)
    node = names[0] if names else ""
    stop = Stop()
    session = Session.connect(params, before_write=stop.check)
    try:
        tour = params["apply"] if state == PREPARED else None
        planned = None if tour is None else read_tour(tour, "apply")[1].identities
        members = read_membership(session).members
        keeper = Keeper(session, stop, options, float(params["timeout"]), [member.name for member in members])
        steps: Mapping[str, Callable[[], None]] = {
            RECORDED: lambda: None,
            BEGUN: lambda: keeper.begin(node),
            ENTERED: lambda: keeper.await_maintenance(node, True),
            PREPARED: lambda: keeper.prepare(
                node, frozenset(params["shut_down"]), frozenset(params["may_run"]), planned
            ),
            LEFT: lambda: keeper.leave(node),
            FINISHED: lambda: keeper.finish(names),
            RELEASED: lambda: keeper.release(names),
            ENDED: keeper.end,
        }
        if not check_mode:
            steps[state]()
        for text in keeper.warnings:
            warn(text)
        record = describe(keeper.record)
        nodes = [member.name for member in read_membership(session).members if member.online]
        return {
            "changed": keeper.changed, "record": record, "started": keeper.started, "off": keeper.off, "nodes": nodes,
        }  # fmt: skip
    finally:
        session.close()


def describe(record: TourRecord) -> dict[str, t.Any]:
    """Return the record as the module returns it."""
    return {
        "begun": list(record.begun),
        "done": dict(record.done),
        "set": sorted(record.settings),
        "off": {node: sorted(guests) for node, guests in record.off.items()},
        "ha_maintenance": sorted(record.in_maintenance),
    }


class Keeper:
    """Makes and takes back the settings of one tour.

    Attributes:
        record: the record as it is on the cluster.
        changed: whether something was changed.
        off, started: the VMIDs of guests that were shut down, and started again.
        warnings: what the user must know, as sentences.
    """

    def __init__(
        self, session: Session, stop: Stop, options: TourOptions, timeout: float, members: Collection[str]
    ) -> None:
        """members are the nodes of the cluster."""
        found = read_record(session, members)
        self.record = found or TourRecord()
        self.changed = False
        self.off: list[int] = []
        self.started: list[int] = []
        self.warnings: list[str] = []
        self._is_there = found is not None
        self._session = session
        self._timeout = timeout
        self._poller = Poller(sleep=stop.sleep)
        self._options = options
        self._power = GuestPower(session, TaskFollower(session, timeout, self._poller), self._poller, timeout)

    def begin(self, node: str) -> None:
        """Note that the maintenance of a node begins, and keep the HA manager from balancing the nodes meanwhile.

        A node that is in HA maintenance already stays in it afterwards, too.
        """
        record = self.record.with_begun(node)
        if self._options.ha_maintenance and ask_if_ha_has_resources(self._session):
            ours = frozenset({node}) - in_maintenance(self._session)
            record = replace(record, in_maintenance=record.in_maintenance | ours)
        if self._options.agents:
            there = (guest for guest in read_guests(self._session, node) if guest.running and has_agent(guest.config))
            found = find_answering(self._session, {guest.vmid: node for guest in there if guest.kind == "qemu"})
            vmids = record.agents.get(node, frozenset()) | found
            record = replace(record, agents={**record.agents, node: vmids})
        balances = ask_if_ha_balances(self._session)
        if balances:
            record = replace(record, settings=record.settings | {BALANCE})
        self._write(record)
        if balances:
            let_balance(self._session, False)
            self.changed = True

    def leave(self, node: str) -> None:
        """Wait until a node is out of HA maintenance, and forget that the tour has put it there."""
        self.await_maintenance(node, False)
        self._write(replace(self.record, in_maintenance=self.record.in_maintenance - {node}))

    def await_maintenance(self, node: str, expected: bool) -> None:
        """Wait until a node is in HA maintenance, or no longer. Raises TaskTimeout."""
        reached = self._poller.until(
            lambda: True if (node in in_maintenance(self._session)) == expected else None, self._timeout
        )
        if not reached:
            what = "not in HA maintenance" if expected else "still in HA maintenance"
            raise TaskTimeout(
                f"{node} is {what} after {self._timeout:g} s; see the log of pve-ha-crm and pve-ha-lrm", node=node
            )

    def prepare(
        self, node: str, shut_down: frozenset[int], may_run: frozenset[int], planned: Mapping[int, Identity] | None
    ) -> None:
        """Set noout, shut down guests, and prove that no other guest runs on the node: none with another VMID, and none
        that has got the VMID of one for which the tour was planned.
        """
        guests = read_guests(self._session, node)
        _check_empty(node, guests, shut_down | may_run, planned)
        due = [guest for guest in guests if guest.vmid in shut_down and guest.running]
        record = self.record.with_begun(node)
        record = record.with_off(node, {guest.vmid: fingerprint(guest.identity) for guest in due})
        wants_flag = self._options.noout and read_flag(self._session, NOOUT) is False
        if wants_flag:
            record = replace(record, settings=record.settings | {NOOUT})
        self._write(record)
        if wants_flag:
            set_flag(self._session, NOOUT, True)
            self.changed = True
        for guest in sort_by_startup(due, last_first=True):
            self._power.shut_down(guest, self._options.seconds, force=self._options.force)
            self.off.append(guest.vmid)
            self.changed = True
        _check_empty(node, read_guests(self._session, node), may_run, planned)

    def finish(self, nodes: Collection[str]) -> None:
        """Start the guests of nodes again that were shut down, remove noout, and note that the nodes are done.

        Raises GoalsNotReached if guest agents do not answer that answered before.
        """
        for node in nodes:
            self._start(node)
        self._unset({NOOUT})
        record, vmids = self.record, frozenset[int]()
        for node in nodes:
            vmids |= record.agents.get(node, frozenset())
            record = record.with_done(node, time.time())
        self._write(record)
        if not vmids or self._poller.until(lambda: None if find_silent(self._session, vmids) else True, self._timeout):
            return
        left = find_silent(self._session, vmids).items()
        names = join_words([f"{visible(name) or 'guest'} ({vmid})" for vmid, name in left])
        raise GoalsNotReached(
            f"since the maintenance of {join_words(list(nodes))}, the guest agents of these guests no longer answer:"
            f" {names}; see to these guests, and run again to continue with the next node"
        )

    def release(self, nodes: Iterable[str]) -> None:
        """Take back the settings of the whole cluster: the node did not come back, and Ceph must replace its copies on
        the others. Start the guests of these nodes again.
        """
        self._unset({NOOUT, BALANCE})
        for node in nodes:
            self._start(node)

    def end(self) -> None:
        """Take back everything that is left, and remove the record. Warn of nodes with other versions than the rest.

        What is recorded of nodes whose maintenance has begun and not ended stays: a tour of others leaves them alone.
        """
        begun = self.record.begun
        for node in sorted(self.record.off.keys() - set(begun)):
            self._start(node)
        self._unset({NOOUT, BALANCE})
        if begun:
            self._write(replace(self.record, done={}))
            self.warnings.append(
                f"the maintenance of {join_words(list(begun))} has begun and not ended: run a tour of these nodes, or"
                " take it back"
            )
        elif self._is_there and not self.record.off:
            remove_record(self._session)
            self.record, self._is_there, self.changed = TourRecord(), False, True
            self._compare_versions()

    # --- inside ---

    def _start(self, node: str) -> None:
        """Start the guests that the tour has shut down on a node. Those that are gone, or others by now, are left out;
        one that cannot be started is named in a warning and stays in the record.
        """
        marks = self.record.off.get(node, {})
        if not marks:
            return
        try:
            there = [guest for guest in read_guests(self._session, node) if guest.vmid in marks]
        except UNREADABLE as error:
            told = join_words([str(vmid) for vmid in sorted(marks)])
            self.warnings.append(f"guests that were shut down on {node} do not start again ({told}): {error.message}")
            return
        left: dict[int, str] = {}
        for guest in sort_by_startup(there, last_first=False):
            try:
                if self._power.start(guest, marks[guest.vmid]):
                    self.started.append(guest.vmid)
                    self.changed = True
            except Interrupted:
                raise
            except CollectionError as error:
                left[guest.vmid] = marks[guest.vmid]
                self.warnings.append(f"{guest.label} was shut down and does not start again: {error.message}")
        off = {name: guests for name, guests in self.record.off.items() if name != node}
        self._write(replace(self.record, off={**off, node: left} if left else off))

    def _unset(self, names: Iterable[str]) -> None:
        """Take back those of these settings that the tour has made."""
        ours = self.record.settings & set(names)
        if NOOUT in ours and read_flag(self._session, NOOUT):
            set_flag(self._session, NOOUT, False)
        if BALANCE in ours and not ask_if_ha_balances(self._session):
            let_balance(self._session, True)
        if ours:
            self.changed = True
            self._write(replace(self.record, settings=self.record.settings - ours))

    def _compare_versions(self) -> None:
        """Warn if the nodes do not run the same release now: perhaps one was left out, or got only some updates."""
        names = [member.name for member in read_membership(self._session).members if member.online]
        found = in_parallel(lambda name: str(self._session.get(f"/nodes/{name}/version").get("version")), names)
        if len(set(found.values())) > 1:
            told = join_words([f"{name} runs {version}" for name, version in sorted(found.items())])
            self.warnings.append(f"the nodes run different releases of Proxmox VE: {told}")

    def _write(self, record: TourRecord) -> None:
        if record != self.record or not self._is_there:
            write_record(self._session, record, there=self._is_there)
            self.record, self._is_there, self.changed = record, True, True


def _check_empty(
    node: str, guests: Collection[Running], may_run: frozenset[int], planned: Mapping[int, Identity] | None
) -> None:
    """Raise GoalsNotReached if others of the guests run than those that may."""
    may = {guest.vmid for guest in guests if guest.vmid in may_run and _is_planned(guest, planned)}
    running = [guest for guest in guests if guest.running and guest.vmid not in may]
    if running:
        told = join_words([guest.label for guest in running])
        others = [guest.label for guest in running if guest.vmid in may_run]
        why = f"; not proved to be those of the plan: {join_words(others)}; plan again" if others else ""
        raise GoalsNotReached(f"{node} still has guests that run: {told}{why}", guests=[each.vmid for each in running])


def _is_planned(guest: Running, planned: Mapping[int, Identity] | None) -> bool:
    """Whether a guest is certainly the one that was planned for. Without a plan, every guest is."""
    if planned is None:
        return True
    identity = planned.get(guest.vmid)
    return identity is not None and compare(identity, guest.identity) is Sameness.SAME


def sort_by_startup(guests: Iterable[Running], *, last_first: bool) -> list[Running]:
    """Return guests in the order of their option startup; those without an order start last and are shut down first."""
    return sorted(guests, key=lambda guest: (guest.order, guest.vmid), reverse=last_first)
