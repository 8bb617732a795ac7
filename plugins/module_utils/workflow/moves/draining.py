# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drains nodes and keeps new guests off them, or makes them active again and brings their guests back."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ...engine.standing_rules import ignoring_tag, without_pin
from ...engine.texts import join_words, known_names
from ...errors import CollectionError, GoalsNotReached, InvalidRequest, PermissionDenied
from ...model import Guest, Identity, Snapshot
from ...plans import Goals, Plan
from ...proxmox.api.failures import UNREADABLE
from ...proxmox.api.reader import in_parallel
from ...proxmox.api.session import Session
from ...proxmox.hidden_guests import (
    ACCESS,
    GUESTS,
    Held,
    describe_hidden,
    hidden_guests,
    sees_all_entries,
    sees_guests,
)
from ...proxmox.identity import identity_of
from ...proxmox.inventory.rows import mark_of
from ...proxmox.moves.drain_marks import DrainMarks, recognizes, storages_in
from ...proxmox.tasks import TaskFollower
from ..access import Access
from ..options.plugin_config import profiles_of
from ..options.rules import facts_of
from .home_disks import bring_disks_home, storages_left
from .move_options import MoveOptions
from .moving import move_progress
from .plan_run import PlanRun
from .results import MovesOutcome, failure_of, failure_with, result_of, stuck_text
from .sight import live_look
from .staying import Exemption, exemptions

DRAINED, ACTIVE = "drained", "active"

_POOLS = "/pool"


def drain_nodes(params: Mapping[str, t.Any], *, check_mode: bool, warn: Callable[[str], None]) -> dict[str, t.Any]:
    """Do what a node_drain task says, and return the module's result. warn takes texts for the user.

    Raises RunFailed with the result when guests stay or moves failed, and other CollectionErrors when nothing was
    moved.
    """
    options, wanted = MoveOptions.of(params), DrainOptions.of(params)
    names = list(dict.fromkeys(params["name"]))
    if not names:
        raise InvalidRequest("name: is empty, expected one node or more")
    profiles, default = profiles_of(params)
    progress = move_progress(params.get("progress_file"))
    access = Access.open(params, facts_of(params.get("nodes")))
    try:
        guests = params["state"] == DRAINED and not params["allow_hidden"]
        require_sight(access.writer(), names, guests=guests, marks=not check_mode)
        drain = Drain(access, names, wanted)
        look = live_look(access, drain.goals, drain.view)
        run = PlanRun(
            access,
            profiles,
            default,
            options,
            look,
            view=drain.view,
            progress=progress,
            objection=drain.objection,
            announce=lambda plan: drain.remember(plan, run.storages),
        )
        outcome = run.prepare(wait=not check_mode)
        error = drain.failure(outcome) if check_mode else _carry_out(drain, run, outcome)
    finally:
        access.close()
    for text in drain.warnings(outcome):
        warn(text)
    result = result_of(outcome, wrote=not check_mode)
    result["stays"] = drain.exempt
    result["changed"] |= drain.would_change_marks(outcome) if check_mode else drain.remarked
    if error is not None:
        raise failure_with(error, result)
    return result


def _carry_out(drain: Drain, run: PlanRun, outcome: MovesOutcome) -> CollectionError | None:
    """Mark the nodes and move their guests, or bring guests back and remove the marks. Returns the error, if there is
    one: what was done before it still has to be reported.
    """
    try:
        drain.begin(run.identities)
        run.execute()
        if failure_of(outcome, drain.complaint) is None:
            drain.end(outcome)
    except CollectionError as raised:
        return raised
    except KeyboardInterrupt:
        outcome.interrupted = True
    return drain.failure(outcome)


def require_sight(session: Session, nodes: Iterable[str], *, guests: bool, marks: bool) -> None:
    """Raise PermissionDenied if guests may be hidden from this user: a node that has only such looks empty. The same if
    the marks of these nodes would be hidden.

    guests, marks: whether to look at each. One request, and for guests one more, if no entry hides any.
    """
    held = session.get("/access/permissions")
    if guests:
        _require_all_guests(session, held)
    for node in nodes if marks else ():
        path = f"{_POOLS}/{mark_of(node)}"
        if "Pool.Audit" not in (held.get(path) or {}) and not (held.get(_POOLS) or {}).get("Pool.Audit"):
            raise PermissionDenied(f"this user would not see the mark of {node}: grant Pool.Audit on {path}", path=path)


def _require_all_guests(session: Session, held: Held) -> None:
    """Raise PermissionDenied if guests may be hidden from this user."""
    risk = "a node may have guests that this user cannot see, so that it would look drained"
    if not sees_guests(held):
        raise PermissionDenied(f"{risk}: grant VM.Audit on {GUESTS}, with propagation", path=GUESTS)
    if not sees_all_entries(held):
        raise PermissionDenied(
            f"{risk}: grant Sys.Audit on {ACCESS}, which shows whether access control lists hide guests, or set"
            f" allow_hidden: true",
            path=ACCESS,
        )
    hidden, pools = hidden_guests(session, held, session.user)
    if hidden or pools:
        raise PermissionDenied(
            f"access control lists hide {describe_hidden(hidden, pools)} from {session.user}, so that a node may look"
            f" drained while it still has guests: grant VM.Audit on them, or set allow_hidden: true",
            hidden=[*hidden, *pools],
        )


EXEMPT = ("vmid", "name", "node")
"""What the result says of a guest that may stay."""

KEPT_BY_TAG = ("its tag keeps it where it is", "move it by hand")
OTHER_GUEST = (
    "its VMID belonged to another guest when the node was drained, or it was rolled back since",
    "move it by hand if it belongs there",
)
NOT_RECORDED = (
    "the mark of the node is of an earlier version, and does not show whether this is the guest that was there",
    "move it by hand if it belongs there",
)


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """What a task says of its nodes.

    active: whether they become active. bring_back: whether their guests then return to them. stays: which guests may
    stay on nodes to be drained. move_pinned: whether tags that keep guests in place or pin them to these nodes are
    ignored. prefer: the nodes to which guests go first. timeout is in seconds, for one disk that is brought home.
    """

    active: bool
    timeout: float
    bring_back: bool = True
    stays: tuple[Exemption, ...] = ()
    move_pinned: bool = False
    prefer: frozenset[str] = frozenset()

    @classmethod
    def of(cls, params: Mapping[str, t.Any]) -> DrainOptions:
        """Return the options of a task. Raises InvalidRequest."""
        return cls(
            active=params["state"] == ACTIVE,
            timeout=float(params["timeout"]),
            bring_back=params["bring_back"],
            stays=exemptions(params),
            move_pinned=params["move_pinned"],
            prefer=frozenset(params["prefer"]),
        )


class Drain:
    """The goals of one task for nodes, and the marks that keep new guests off them."""

    def __init__(self, access: Access, names: Iterable[str], options: DrainOptions) -> None:
        self.active = options.active
        self.exempt: list[dict[str, t.Any]] = []
        self.remarked = False
        self._names = list(names)
        # The error text if guests stay on nodes to be drained.
        self.complaint = None if self.active else f"{join_words(self._names)} cannot be drained completely"
        self._options = options
        self._kept_by_tag: frozenset[int] = frozenset()
        self._access = access
        self._marks = DrainMarks(access.writer())
        self._returning: dict[str, dict[int, str]] | None = None
        self._guests: dict[str, dict[int, Guest]] = {}
        self._remembered: dict[str, dict[int, Identity]] = {}
        self._marked: frozenset[str] = frozenset()
        self._shared: frozenset[str] = frozenset()
        self._disks_elsewhere: list[str] = []

    def failure(self, outcome: MovesOutcome) -> CollectionError | None:
        """Return the error that the run ends with, if any. A node whose guests cannot all come back does not become
        active.
        """
        error = failure_of(outcome, self.complaint)
        if error is not None or not self.active:
            return error
        awaited = self._guests_not_back(outcome)
        waiting = [name for name, guests in awaited.items() if guests]
        if not waiting:
            return None
        staying = [stuck for stuck in outcome.staying if any(stuck.vmid in guests for guests in awaited.values())]
        return GoalsNotReached(
            f"{join_words(waiting)} stays marked as drained until all its guests are back, {stuck_text(staying)}; "
            f"run again when the cause is removed, or make the node active without them (bring_back: false)"
        )

    def warnings(self, outcome: MovesOutcome) -> list[str]:
        """Return warnings besides the result of the task: of guests that do not come back because they were never
        there.
        """
        if not self.active:
            return outcome.warnings
        awaited = {vmid for guests in self._guests_not_back(outcome).values() for vmid in guests}
        stuck = [stuck for stuck in outcome.last.stuck if stuck.vmid not in awaited]
        lacking = [f"not all guests could be brought back, {stuck_text(stuck)}"] if stuck else []
        return [*outcome.warnings, *lacking, *self._disks_elsewhere]

    def goals(self, snapshot: Snapshot) -> Goals:
        """Return the goals for the cluster. Raises InvalidRequest for an unknown node, and GoalsNotReached for one that
        cannot take its guests back yet.
        """
        there = {node.name for node in snapshot.nodes}
        for option, names in (("name", self._names), ("prefer", sorted(self._options.prefer))):
            for name in names:
                if name not in there:
                    raise InvalidRequest(
                        f"{option}: {name!r} is not a node; the cluster's nodes: {known_names(there, name)}"
                    )
        self._marked = frozenset(node.name for node in snapshot.nodes if node.drained) & set(self._names)
        if not self.active:
            for name in self._names:
                on_it = {guest.vmid: guest for guest in snapshot.guests if guest.node == name}
                self._guests[name] = {**self._guests.get(name, {}), **on_it}
            there_now = [guest for guest in snapshot.guests if guest.node in self._names]
            stays = [guest for guest in there_now if any(each.covers(guest) for each in self._options.stays)]
            self.exempt = [{key: getattr(guest, key) for key in EXEMPT} for guest in stays]
            if self._options.move_pinned:
                self._keep_others(snapshot, frozenset(vmid for guests in self._guests.values() for vmid in guests))
            staying = frozenset(guest.vmid for guest in stays)
            return Goals(drain=frozenset(self._names), stays=staying, prefer=self._options.prefer)
        if self._returning is None:
            marked = sorted(self._marked)
            self._returning = {
                name: (self._marks.guests(name) or {}) if self._options.bring_back else {} for name in marked
            }
        home = {vmid: name for name, vmids in self._returning.items() for vmid in vmids}
        present = {guest.vmid: guest.node for guest in snapshot.guests if guest.vmid in home}
        undo = {vmid: home[vmid] for vmid in sorted(present)}
        self._shared = frozenset(storage.name for storage in snapshot.storages if storage.shared)
        if self._options.move_pinned:
            self._keep_others(snapshot, present)
        if undo == present:
            return Goals()
        _require_ready(snapshot, {name for vmid, name in undo.items() if present[vmid] != name})
        left = {vmid: storages_in(self._returning[name][vmid]) for vmid, name in undo.items()}
        return Goals(undo=undo, homes={vmid: storages for vmid, storages in left.items() if storages})

    def objection(self, vmid: int, identity: Identity) -> tuple[str, str] | None:
        """Return why a guest is not moved: it is not the one that was there before, or its tag keeps it."""
        if vmid in self._kept_by_tag:
            return KEPT_BY_TAG
        marks = [guests[vmid] for guests in (self._returning or {}).values() if vmid in guests]
        if not marks or any(mark and recognizes(mark, identity) for mark in marks):
            return None
        return OTHER_GUEST if any(marks) else NOT_RECORDED

    def view(self, snapshot: Snapshot) -> Snapshot:
        """Return the cluster with the nodes as if they were marked already or, if they become active, no longer marked.
        """
        drained = not self.active
        nodes = (replace(node, drained=drained) if node.name in self._names else node for node in snapshot.nodes)
        guests = snapshot.guests
        if drained and self._options.move_pinned:
            guests = tuple(without_pin(guest, self._names) for guest in guests)
        return replace(snapshot, nodes=tuple(nodes), guests=guests)

    def _keep_others(self, snapshot: Snapshot, ours: Collection[int]) -> None:
        """Note which guests their tags keep in place although others may be moved."""
        others = (guest for guest in snapshot.guests if guest.vmid not in ours)
        self._kept_by_tag = frozenset(guest.vmid for guest in others if ignoring_tag(guest.tags))

    def begin(self, identities: Mapping[int, Identity]) -> None:
        """Mark the nodes before any move, so that no new guests arrive meanwhile. identities are those that are known
        of their guests; the others are read.
        """
        if self.active:
            return
        for name in self._names:
            if name not in self._marked or self._guests[name]:
                guests = self._remembered[name] = self._identify(self._guests[name], identities)
                self.remarked |= self._marks.set(name, guests, marked=name in self._marked)

    def remember(self, plan: Plan, storages: Mapping[int, Mapping[str, str]]) -> None:
        """Add the guests to the marks that a plan moves away and that were not there when the drain began: one that
        came to the node since, or has taken the VMID of another guest. Add the storages that disks leave for others;
        storages are those of disks that are known.
        """
        moved = [guest for move in plan.moves for guest in move.identities.items()]
        for name, there in self._remembered.items():
            left = storages_left(self._access.reader, (move for move in plan.moves if move.source == name), storages)
            new = {
                vmid: found
                for vmid, found in moved
                if found.node == name and (there.get(vmid) != found or vmid in left)
            }
            if new:
                there.update(new)
                self.remarked |= self._marks.set(name, new, marked=True, storages=left)

    def end(self, outcome: MovesOutcome) -> None:
        """Bring disks home, and remove the marks of nodes that are active again and have their guests back. The others
        stay, with the guests that are still missing.
        """
        tasks = TaskFollower(self._access.writer(), self._options.timeout)
        for name, guests in self._guests_not_back(outcome).items():
            marks = (self._returning or {})[name]
            back = {vmid: mark for vmid, mark in marks.items() if vmid not in guests}
            self._disks_elsewhere += bring_disks_home(self._access.writer(), tasks, name, back, self._shared)
            if guests:
                self.remarked |= self._marks.keep(name, guests, marks)
            else:
                self._marks.clear(name)
                self.remarked = True

    def would_change_marks(self, outcome: MovesOutcome) -> bool:
        """Whether the run changes marks, for check mode."""
        if not self.active:
            return bool(set(self._names) - self._marked)
        marks = self._returning or {}
        return any(not guests or guests != marks[name] for name, guests in self._guests_not_back(outcome).items())

    def _guests_not_back(self, outcome: MovesOutcome) -> dict[str, dict[int, str]]:
        """Return the guests that the run could not bring back to each marked node, without those that were never there.
        """
        if not self.active:
            return {}
        strangers = {OTHER_GUEST[0], NOT_RECORDED[0]}
        staying = {stuck.vmid for stuck in outcome.staying if stuck.why not in strangers}
        return {
            name: {vmid: mark for vmid, mark in guests.items() if vmid in staying}
            for name, guests in (self._returning or {}).items()
        }

    def _identify(self, guests: Mapping[int, Guest], recorded: Mapping[int, Identity]) -> dict[int, Identity]:
        """Return the identities of guests. One that cannot be read is left out: it cannot be moved either."""

        def read(vmid: int) -> Identity | None:
            guest = guests[vmid]
            if vmid in recorded:
                return recorded[vmid]
            try:
                config = self._access.reader.get(f"/nodes/{guest.node}/{guest.kind}/{vmid}/config")
            except UNREADABLE:
                return None
            return identity_of(config, guest.node, guest.kind)

        return {vmid: found for vmid, found in in_parallel(read, guests).items() if found is not None}


def _require_ready(snapshot: Snapshot, names: Collection[str]) -> None:
    """Raise GoalsNotReached if guests would return to a node that is offline or in HA maintenance."""
    for node in snapshot.nodes:
        if node.name not in names or (node.online and not node.maintenance):
            continue
        what, cure = "offline", "wait until it is back"
        if node.online:
            what = "in HA maintenance"
            # A node that was empty needs that long to get its lock back, before pve-ha-manager 5.1.2.
            command = f"ha-manager crm-command node-maintenance disable {node.name}"
            cure = f"run '{command}' on a node, wait up to two minutes"
        raise GoalsNotReached(
            f"{node.name} cannot take its guests back, and stays marked as drained: it is {what}; cure: {cure}, and"
            f" run again; or make it active without them (bring_back: false)"
        )
