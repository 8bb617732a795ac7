# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates, clones or restores the VM of a decision. When that fails, removes what was created."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..errors import (
    ApiError,
    CollectionError,
    GuestVanished,
    NotTheSameGuest,
    TaskFailed,
)
from ..model import Archive, Decision, Identity, Template
from .api.failures import AnswerLost, VMIDTaken
from .api.session import Session
from .inventory.freshness import RESTORING, read_config
from .leftovers import Leftovers
from .lifecycle import Lifecycle, no_fence
from .lost_answers import LostAnswers
from .making import (
    Adjust,
    Adjustment,
    Bound,
    Created,
    Ended,
    Ending,
    LeftBehind,
    Making,
    Note,
    NotStarted,
    Unknown,
    merge_changes,
    note_nothing,
    to_its_end,
    with_description,
)
from .options.drives import drive_size
from .options.values import format_size
from .outcomes import allocations, is_busy, is_tag_refusal, is_vmid_taken, is_worker_failure
from .tasks import BUSY_PAUSE, SENDINGS, Fate, TaskFollower, TaskResult, ask_fate_since
from .unfinished import Unfinished, read_mark
from .writes import GuestWriter


class Binder:
    """Creates, clones, restores and finishes VMs. May be used from many threads.

    Attributes:
        lifecycle: changes existing VMs.
    """

    def __init__(self, session: Session, tasks: TaskFollower) -> None:
        self._session = session
        self._tasks = tasks
        self._poller = tasks.poller
        self.lifecycle = Lifecycle(session, tasks)
        self._finder = self.lifecycle.finder
        self._leftovers = Leftovers(session, self.lifecycle)
        self._lost_answers = LostAnswers(session, tasks, self._finder)
        # From 9.2 on, Proxmox lets some users set tags only on a VM that exists. After the first such refusal, further
        # creates send the tags afterwards.
        self._tags_come_later = False

    @to_its_end
    def create(
        self,
        decision: Decision,
        params: Mapping[str, t.Any],
        resizes: Mapping[str, int] | None = None,
        *,
        fence: Callable[[], None] = no_fence,
        note: Note = note_nothing,
    ) -> Bound:
        """Create the decision's VM, start it if the request says so, and return the outcome.

        If nothing fails, this takes one request and the polls of its task, and the same again to start the VM. The
        create does not use C(start=1): that starts the VM in a task that the response does not name, so its failure
        would go unnoticed.

        Args:
            params: the parameters of C(POST /nodes/NODE/qemu), without C(start).
            resizes: imported disks to grow afterwards (slot to bytes); one that is large enough is not changed.
            fence: called right before each request that creates or starts the VM. If it raises, the request is not
                sent.
            note: called with the UPID of the task, and with the identity of the VM as soon as its config is read.

        Raises:
            VMIDTaken: another guest has the VMID; nothing was left behind, another VMID may be tried.
            ApiError, PermissionDenied, TaskFailed, ConnectionFailed: the create was refused or failed, and nothing was
                left behind.
        """
        request, node = decision.request, decision.node
        making = self._new_making(decision, "qmcreate", node, decision.vmid, fence, note)
        sent = {**params, "vmid": decision.vmid}
        ending = Ending.of(request, str(params.get("description", "")), marked=bool(resizes))
        later: dict[str, t.Any] = {}
        try:
            if self._tags_come_later and "tags" in sent:
                ending, later = _without_tags(sent, ending)
            _mark(sent, ending)
            result = self._make(making, lambda: self._session.post(f"/nodes/{node}/qemu", sent))
        except TaskFailed as error:
            if "tags" not in sent or not is_tag_refusal(error.message):
                raise
            self._tags_come_later = True
            ending, later = _without_tags(sent, ending)
            _mark(sent, ending)
            result = self._make(making, lambda: self._session.post(f"/nodes/{node}/qemu", sent))
        kept: tuple[str, ...] = ()
        guest = None
        if later or resizes:
            made, config = self._open_for_adjustment(making, result, ending)
            guest = made
            growing, kept = _disks_to_grow(resizes or {}, config)
            ending = self._leftovers.remove_if_this_fails(
                making,
                made,
                lambda: Adjustment(later, growing),
                lambda adjustment: self._adjust(node, made, adjustment, ending),
            )
        return self._finish(making, result, ending, guest, kept, running=request.running)

    @to_its_end
    def clone(
        self,
        decision: Decision,
        template: Template,
        params: Mapping[str, t.Any],
        adjust: Adjust | None,
        *,
        fence: Callable[[], None] = no_fence,
        note: Note = note_nothing,
    ) -> Bound:
        """Clone template into the decision's VM, adjust the clone, and start it if the request says so.

        Args:
            params: the parameters of C(POST /nodes/NODE/qemu/VMID/clone), without newid, name, description and target.
            adjust: what to change in the clone. None: nothing.
            fence, note: as for create.

        Raises: as create.
        """
        request, vmid = decision.request, decision.vmid
        making = self._new_making(decision, "qmclone", template.node, template.vmid, fence, note)
        ending = Ending.of(
            request, str(request.options.get("description", template.description)), marked=adjust is not None
        )
        sent = {**params, "newid": vmid}
        if request.name:
            sent["name"] = request.name
        # Proxmox clones to another node only if all disks of the template are on shared storages.
        if decision.node != template.node:
            sent["target"] = decision.node
        if ending.marked:
            sent["description"] = Unfinished.copy_of(decision, ending.description).marked_description
        # Another VM may have the VMID of the template by now.
        source = self.lifecycle.writer(template.vmid, template.identity or Identity(template.name, template.node))
        return self._copy(
            making, lambda: source.clone(template.node, sent, fence), adjust, ending, running=request.running
        )

    @to_its_end
    def restore(
        self,
        decision: Decision,
        archive: Archive,
        params: Mapping[str, t.Any],
        adjust: Adjust | None,
        *,
        fence: Callable[[], None] = no_fence,
        note: Note = note_nothing,
    ) -> Bound:
        """Restore a backup as the decision's VM, adjust the VM, and start it if the request says so.

        Args:
            params: the parameters of C(POST /nodes/NODE/qemu), including archive, without vmid and start.
            adjust: what to change in the restored VM. None: nothing.
            fence, note: as for create.

        Raises: as create.
        """
        request, node, vmid = decision.request, decision.node, decision.vmid
        making = self._new_making(decision, RESTORING, node, vmid, fence, note)
        description = str(request.options.get("description", archive.config.get("description", "")))
        ending = Ending.of(request, description, marked=adjust is not None)
        sent = {**params, "vmid": vmid}
        if ending.marked:
            sent["description"] = Unfinished.copy_of(decision, ending.description).marked_description
        path = f"/nodes/{node}/qemu"
        return self._copy(making, lambda: self._session.post(path, sent), adjust, ending, running=request.running)

    def finish(self, node: str, guest: GuestWriter, adjustment: Adjustment, ending: Ending) -> None:
        """Finish a VM that another run created, cloned or restored and left marked as unfinished.

        May be called again for the same VM. Raises as update, convert_to_template and join_ha do; the VM then keeps
        its mark.
        """
        self._end(node, guest, self._adjust(node, guest, adjustment, ending))

    def _adjust(self, node: str, guest: GuestWriter, adjustment: Adjustment, ending: Ending) -> Ending:
        """Apply adjustment, and return the last steps that remain.

        If nothing remains to be done afterwards, the same change of the config removes the mark.
        """
        imported = allocations(adjustment.changes) & adjustment.resizes.keys()
        if ending.has_steps or imported or adjustment.destroyed:
            self.lifecycle.update(
                node, guest, adjustment.changes, adjustment.resizes, adjustment.moves, adjustment.destroyed
            )
            return ending
        changes = merge_changes(adjustment.changes, ending.unmarking)
        self.lifecycle.update(node, guest, changes, adjustment.resizes, adjustment.moves)
        return replace(ending, marked=False)

    def _end(self, node: str, guest: GuestWriter, ending: Ending) -> None:
        """Take the last steps of a creation: make a template, join HA, remove the mark from the notes."""
        # Proxmox VE converts only a stopped VM, and HA may start its resources: so this comes first.
        if ending.template:
            self.lifecycle.convert_to_template(node, guest)
        if ending.ha is not None:
            self.lifecycle.join_ha(node, guest, ending.ha)
        if ending.marked:
            # The HA manager may move the VM right after it became an HA resource.
            self._finder.call_where_it_is(
                node, guest.vmid, lambda node: self.lifecycle.update(node, guest, ending.unmarking)
            )

    def _copy(
        self, making: Making, send: Callable[[], str], adjust: Adjust | None, ending: Ending, *, running: bool
    ) -> Bound:
        """Clone or restore a VM, adjust it, and carry out its last steps."""
        result = self._make(making, send)
        if adjust is None:
            return self._finish(making, result, ending, running=running)
        guest, config = self._open_for_adjustment(making, result, ending)
        ending = self._leftovers.remove_if_this_fails(
            making,
            guest,
            lambda: adjust(with_description(config, ending.description)),
            lambda adjustment: self._adjust(making.node, guest, adjustment, ending),
        )
        return self._finish(making, result, ending, guest, running=running)

    def _finish(
        self,
        making: Making,
        made: TaskResult,
        ending: Ending,
        guest: GuestWriter | None = None,
        warnings: tuple[str, ...] = (),
        *,
        running: bool,
    ) -> Created | NotStarted:
        """Start a VM that is made, if requested, and carry out its last steps. If one fails, the VM is kept.

        Raises VMIDTaken when the VM was removed and another one has its VMID.
        """
        node = making.node
        try:
            if running or ending.has_steps or ending.marked:
                guest = guest or self._read_new_guest(making, made, ending)[0]
                if running:
                    # After the proof, which may take long enough for the reservation to expire.
                    making.fence()
                    node = self.lifecycle.start(node, guest)
                self._end(node, guest, ending)
        except VMIDTaken:
            raise
        except NotTheSameGuest as error:
            raise VMIDTaken(error.message, making.vmid) from error
        except CollectionError as error:
            return NotStarted(making.vmid, making.node, error)
        log = made.log if made.warnings else ()
        return Created(making.vmid, node, (*log, *warnings))

    def _new_making(
        self, decision: Decision, kind: str, task_node: str, about: int, fence: Callable[[], None], note: Note
    ) -> Making:
        name, since = decision.request.name, self._session.server_time()
        return Making(decision.vmid, name, decision.node, kind, task_node, str(about), fence, note, since)

    def _make(self, making: Making, send: Callable[[], str]) -> TaskResult:
        """Send a create, clone or restore and follow its task.

        After a lost answer, look for the VM before the request is sent again.
        """
        lost: AnswerLost | None = None
        for tries_left in reversed(range(SENDINGS)):
            self._check_fence(making, lost)
            upid: str | None = None
            try:
                upid = send()
                making.note(task=upid)
                result = self._tasks.wait(upid)
                self.lifecycle.quorum.note_success()
                return result
            except AnswerLost as error:
                lost = error
                found = self._lost_answers.look_for(making)
                if found:
                    return found
            except (ApiError, TaskFailed) as error:
                # No request reserves a VMID (nextid only looks): of several creates of one, Proxmox lets exactly one
                # win.
                if is_vmid_taken(error.message, making.vmid):
                    found = self._lost_answers.look_for(making) if lost else None
                    if found:
                        return found
                    raise VMIDTaken(f"VMID {making.vmid} is taken: {error.message}", making.vmid) from error
                if is_worker_failure(error.message):
                    self._leftovers.remove_stub(making, error)
                if not (tries_left and is_busy(error.message)):
                    # After a refusal of tags Proxmox has removed the VM, and create sends it again without them.
                    if not is_tag_refusal(error.message):
                        self._leftovers.remove_leftover(making, error, upid)
                    raise
                self._poller.sleep(BUSY_PAUSE)
            except CollectionError as error:
                if upid is None and lost is None:
                    raise
                # The task continues, or an earlier request may still be carried out.
                raise Ended(Unknown(making.vmid, making.node, error, begun=upid is not None)) from error
        raise Ended(Unknown(making.vmid, making.node, t.cast("AnswerLost", lost), begun=False))

    @staticmethod
    def _check_fence(making: Making, lost: AnswerLost | None) -> None:
        """Raise what the fence raises; after a lost answer raise Ended, as Proxmox may still create the VM."""
        try:
            making.fence()
        except CollectionError as error:
            if lost is None:
                raise
            raise Ended(Unknown(making.vmid, making.node, lost, begun=False)) from error

    def _open_for_adjustment(
        self, making: Making, made: TaskResult, ending: Ending
    ) -> tuple[GuestWriter, dict[str, t.Any]]:
        """Return the writer to the VM that this call has made, and its config. Raises Ended when it cannot be read."""
        try:
            return self._read_new_guest(making, made, ending)
        except (VMIDTaken, GuestVanished):
            raise
        except CollectionError as error:
            reason = "its config cannot be read; run the task again to finish it"
            raise Ended(LeftBehind(making.vmid, making.node, error, reason)) from error

    def _read_new_guest(self, making: Making, made: TaskResult, ending: Ending) -> tuple[GuestWriter, dict[str, t.Any]]:
        """Read the config of the VM that this call has made; from now on, the identity that it shows is the VM's.

        It has the requested name, and the mark if the call has set one, both of which others may give to a VM of their
        own: so the list of tasks proves that the VM was not destroyed before its config was read. Raises VMIDTaken when
        the VM was removed and another one has its VMID, GuestVanished when there is none.
        """
        config = read_config(self._session, making.node, making.vmid)
        if config is None:
            raise GuestVanished(f"VM {making.vmid} is no longer on node {making.node}, where it was made")
        is_other = bool(making.name) and config.get("name") != making.name
        is_other = is_other or (ending.marked and read_mark(config) is None)
        fate = ask_fate_since(self._session, making.node, making.vmid, made.upid, making.since)
        if is_other or fate is Fate.DESTROYED:
            raise VMIDTaken(f"VMID {making.vmid} is taken by another guest on node {making.node}", making.vmid)
        # The lists of all nodes take long enough for a VM that was moved to be destroyed where it was just not seen.
        guest = self._leftovers.writer_of(making.node, making.vmid, config, is_fresh=fate is Fate.KEPT)
        making.note(identity=guest.identity)
        return guest, config


def _mark(sent: dict[str, t.Any], ending: Ending) -> None:
    if ending.marked:
        sent["description"] = Unfinished(ending.description).marked_description


def _without_tags(sent: dict[str, t.Any], ending: Ending) -> tuple[Ending, dict[str, t.Any]]:
    """Remove the tags from sent; return the ending of a VM that gets them afterwards, and the change that sets them."""
    return replace(ending, marked=True), {"tags": sent.pop("tags")}


def _disks_to_grow(resizes: Mapping[str, int], config: Mapping[str, t.Any]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the imported disks that have to grow, and a warning for each that is larger than requested."""
    sizes = {slot: drive_size(slot, str(config.get(slot, ""))) for slot in resizes}
    # Proxmox VE can grow a disk, and never shrinks one.
    growing = {slot: size for slot, size in resizes.items() if size > sizes[slot]}
    kept = [
        f"{slot} is as large as its image: it has {format_size(sizes[slot])} and cannot shrink to {format_size(size)}"
        for slot, size in resizes.items()
        if size < sizes[slot]
    ]
    return growing, tuple(kept)
