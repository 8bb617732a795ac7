# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The binding cycle:

making decisions true, many at a time, each with its reservation kept alive until its VM is there.
"""

from __future__ import annotations

import threading
import typing as t
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from ..errors import CollectionError, ConnectionFailed, TaskTimeout
from ..model import Decision, Guest, Template
from ..proxmox.binder import TEMPLATE, Adjustment, Binder, BindResult
from ..proxmox.creations import BeingCreated
from ..proxmox.failures import AnswerLost, NodeSilent, NodeUnreachable, StubLeft, VMIDTaken
from ..proxmox.options.drift import clone_adjustments
from ..proxmox.options.request import create_parameters, import_resizes
from ..reservations.fence import Fence
from ..reservations.holder import Holder
from ..reservations.ledger import Ledger, ReservationLost
from .access import Access
from .entries import Clone, Entry
from .existing import adjustment_of
from .matching import abandoned, is_nameless, unclear
from .placing import Placer
from .stopping import leave_signals_alone

ATTEMPTS = 10
"""How often one VM is decided about before its creation is given up."""


class ExistsAlready(Exception):
    """While a VMID was being looked for, somebody else created the VM."""

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest.name)
        self.guest = guest


class BindingCycle:
    """Creates decided VMs. May be used from many threads.

    Attributes:
        in_progress: VMIDs whose reservations are to be renewed.
        warnings: what the user should know whatever becomes of the VMs.
    """

    def __init__(self, access: Access, binder: Binder, placer: Placer) -> None:
        self._access = access
        self._binder = binder
        self._placer = placer
        self.in_progress: set[int] = set()
        self.warnings: list[str] = []
        self._excluded: set[int] = set()
        self._placing = threading.Lock()

    def bind(self, entry: Entry, decision: Decision, nameless: Collection[Guest] = ()) -> tuple[Decision, BindResult]:
        """Create the VM of a reserved decision, once it is known that none of the nameless guests, which others are
        creating, is the VM. Decide again when its reservation has expired before anything was made, when its node does
        not answer and nothing was made, or when its VMID was taken meanwhile and is free to choose.

        Raises ExistsAlready, and CollectionError when it could not be created; its reservation is then released.
        """
        for tries_left in reversed(range(ATTEMPTS)):
            try:
                if nameless:
                    self._until_named(entry, decision, nameless)
                return decision, self._bind_once(entry, decision)
            except (VMIDTaken, ReservationLost, NodeUnreachable, NodeSilent) as error:
                if not (tries_left and _may_be_decided_again(entry, error)):
                    raise
                self.in_progress.discard(decision.vmid)
                decision, nameless = self._decide_again(entry, decision, error)
                self.in_progress.add(decision.vmid)
        raise AssertionError("the last try has returned or raised")

    def _until_named(self, entry: Entry, decision: Decision, nameless: Collection[Guest]) -> None:
        """Wait until the nameless guests have other names than the entry, are gone, or are found to be abandoned."""
        creations, ledger = self._placer.creations, self._access.ledger
        awaited = {guest.vmid for guest in nameless}
        try:
            while True:
                guests = [g for g in self._access.read(patience=0).guests if g.vmid in awaited]
                for guest in guests:
                    if guest.name == entry.request.name:
                        raise ExistsAlready(guest)
                left = [g for g in guests if is_nameless(g) and g.vmid not in creations.abandoned]
                if not left:
                    break
                if not creations.wait(left):
                    raise BeingCreated(f"{entry.label}: {unclear(left)}; run again later", left)
        except (ExistsAlready, CollectionError):
            self.in_progress.discard(decision.vmid)
            with suppress(CollectionError):
                ledger.release(self._access.identity(), [decision.vmid], self._access.holder)
            raise
        self.warnings.extend(abandoned(g) for g in guests if g.vmid in creations.abandoned)

    def _bind_once(self, entry: Entry, decision: Decision) -> BindResult:
        ledger, cluster, holder = self._access.ledger, self._access.identity(), self._access.holder
        fence = Fence(ledger, cluster, decision.vmid, holder)
        fence.mark_binding()
        try:
            result = self._create(entry, decision, fence.check)
        except CollectionError as error:
            if isinstance(error, (TaskTimeout, AnswerLost)) and not isinstance(error, NodeSilent):
                # The VM may yet come to be: its reservation counts until it expires or the cluster shows the VM.
                raise
            # What went wrong with the VM matters more than a reservation that expires by itself.
            with suppress(CollectionError):
                ledger.release(cluster, [decision.vmid], holder)
            raise
        self.in_progress.discard(decision.vmid)
        try:
            ledger.mark_created(cluster, [decision.vmid], holder)
        except CollectionError as error:
            # The VM is there. Its reservation goes on for a while, and expires.
            return replace(result, warnings=(*result.warnings, error.message))
        return result

    def _create(self, entry: Entry, decision: Decision, fence: Callable[[], None]) -> BindResult:
        fence()
        request = decision.request
        clone = request.clone
        if entry.clone is None or clone is None:
            parameters = create_parameters(request, decision)
            parameters.pop(TEMPLATE, None)
            return self._binder.create(decision, parameters, import_resizes(request), fence=fence)

        kept: list[str] = []

        def adjust(config: Mapping[str, t.Any]) -> Adjustment:
            devices = {device.option: device.value for device in decision.devices}
            changes = clone_adjustments(request.options, config, storages=decision.storages, devices=devices)
            kept.extend(f"{slot} is as in the template: {why}" for slot, why in changes.unappliable.items())
            return adjustment_of(changes)

        template = _template_of(decision, clone.templates)
        as_it_is = not (request.options or decision.devices)
        parameters = _clone_parameters(entry, entry.clone)
        result = self._binder.clone(decision, template, parameters, None if as_it_is else adjust, fence=fence)
        return replace(result, warnings=(*result.warnings, *kept))

    def _decide_again(
        self, entry: Entry, decision: Decision, error: CollectionError
    ) -> tuple[Decision, Collection[Guest]]:
        """Go through another scheduling cycle for one VM. One at a time: the cycle is serial anyway. The decision comes
        with the nameless guests that may be the VM.

        A VM whose node is silent keeps its VMID: should the node make it after all, Proxmox refuses the other one.
        """
        with self._placing:
            if isinstance(error, VMIDTaken):
                self._excluded.add(error.vmid)
                if isinstance(error, StubLeft):
                    self.warnings.append(f"{entry.label}: {error.message}")
            elif isinstance(error, (NodeUnreachable, NodeSilent)):
                clone = decision.request.clone
                self._placer.avoid(decision.node if clone is None else _template_of(decision, clone.templates).node)
                entry = replace(entry, request=replace(entry.request, vmid=decision.vmid))
            placement = self._placer.place([entry], all_or_nothing=True, reserve=True, excluded=self._excluded)
        found = placement.existing.get(entry.position)
        if found is not None:
            raise ExistsAlready(found)
        if entry.position in placement.errors:
            raise placement.errors[entry.position]
        outcome = placement.outcomes[entry.position]
        if outcome.decision is None:
            raise error if isinstance(error, ConnectionFailed) else (outcome.error or error)
        return outcome.decision, placement.nameless.get(entry.position, ())


def _may_be_decided_again(entry: Entry, error: CollectionError) -> bool:
    """Whether nothing was made, and another decision is possible."""
    if isinstance(error, VMIDTaken):
        return entry.request.vmid is None
    return not {"created", "left_behind"} & error.details.keys()


@contextmanager
def kept_alive(ledger: Ledger, cluster: str, vmids: Collection[int], holder: Holder) -> Iterator[None]:
    """Renew the reservations of vmids, a collection that may change meanwhile, until the block ends."""
    ended = threading.Event()

    def renew() -> None:
        leave_signals_alone()
        while not ended.wait(ledger.durations.renewal):
            # They are good for several renewals: one that fails is made up for by the next.
            with suppress(CollectionError):
                ledger.renew(cluster, list(vmids), holder)

    thread = threading.Thread(target=renew, name="renew reservations", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _template_of(decision: Decision, templates: Sequence[Template]) -> Template:
    """The template that is cloned. The plugins that choose it may be off: then Proxmox says whether it goes."""
    own = (template for template in templates if template.node == decision.node)
    return decision.template or next(own, templates[0])


def _clone_parameters(entry: Entry, clone: Clone) -> dict[str, t.Any]:
    parameters: dict[str, t.Any] = {"snapname": clone.snapname, "pool": entry.request.pool}
    if clone.full:
        parameters.update(full=1, storage=clone.storage, format=clone.format)
    else:
        parameters["full"] = 0
    return {key: value for key, value in parameters.items() if value is not None}
