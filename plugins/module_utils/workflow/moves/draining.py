# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drains nodes and keeps new guests off them, or makes them active again and brings their guests back."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ...engine.texts import known, listed
from ...errors import CollectionError, InvalidRequest, PermissionDenied
from ...model import Snapshot
from ...plans import Goals
from ...proxmox.api.reader import Reader
from ...proxmox.inventory.rows import mark_of
from ...proxmox.moves.drain_marks import DrainMarks
from ..access import Access
from ..options.plugin_config import profiles_of
from ..options.rules import facts_of
from .moving import move_progress
from .options import MoveOptions
from .plan_run import PlanRun
from .results import Outcome, failed, failure_of, result_of, told
from .sight import live_look

DRAINED, ACTIVE = "drained", "active"

_GUESTS, _POOLS = "/vms", "/pool"


def drain_nodes(params: Mapping[str, t.Any], *, check_mode: bool, warn: Callable[[str], None]) -> dict[str, t.Any]:
    """Do what a node_drain task says, and return the module's result. warn takes texts for the user.

    Raises RunFailed with the result when guests stay or moves failed, and other CollectionErrors when nothing was
    moved.
    """
    options = MoveOptions.of(params)
    names = list(dict.fromkeys(params["name"]))
    if not names:
        raise InvalidRequest("name: is empty, expected one node or more")
    profiles, default = profiles_of(params)
    progress = move_progress(params.get("progress_file"))
    access = Access.open(params, facts_of(params.get("nodes")))
    try:
        if params["state"] == DRAINED:
            require_sight(access.writer(), names, marks=not check_mode)
        drain = Drain(access, names, active=params["state"] == ACTIVE)
        look = live_look(access, drain.goals, drain.view)
        run = PlanRun(access, profiles, default, options, look, view=drain.view, progress=progress)
        outcome = run.prepare(wait=not check_mode)
        error = failure_of(outcome, drain.complaint) if check_mode else _carry_out(drain, run, outcome)
    finally:
        access.close()
    for text in drain.warnings(outcome):
        warn(text)
    result = result_of(outcome, wrote=not check_mode)
    result["changed"] |= drain.would_remark if check_mode else drain.remarked
    if error is not None:
        raise failed(error, result)
    return result


def _carry_out(drain: Drain, run: PlanRun, outcome: Outcome) -> CollectionError | None:
    """Mark the nodes and move their guests, or bring guests back and remove the marks. Returns the error, if there is
    one: what was done before it still has to be reported.
    """
    try:
        drain.begin()
        run.execute()
        error = failure_of(outcome, drain.complaint)
        if error is None:
            drain.end()
    except CollectionError as raised:
        return raised
    except KeyboardInterrupt:
        outcome.interrupted = True
        return failure_of(outcome, drain.complaint)
    return error


def require_sight(reader: Reader, nodes: Iterable[str], *, marks: bool) -> None:
    """Raise PermissionDenied if guests may be hidden from this user: a node that has only such looks empty. The same if
    the marks of these nodes would be hidden, unless marks is false. One request.
    """
    held = reader.get("/access/permissions")
    if not (held.get(_GUESTS) or {}).get("VM.Audit"):
        raise PermissionDenied(
            f"a node may have guests that this user cannot see, so that it would look drained: grant VM.Audit on"
            f" {_GUESTS}, with propagation",
            path=_GUESTS,
        )
    for node in nodes if marks else ():
        path = f"{_POOLS}/{mark_of(node)}"
        if "Pool.Audit" not in (held.get(path) or {}) and not (held.get(_POOLS) or {}).get("Pool.Audit"):
            raise PermissionDenied(f"this user would not see the mark of {node}: grant Pool.Audit on {path}", path=path)


class Drain:
    """The goals of one task for nodes, and the marks that keep new guests off them."""

    def __init__(self, access: Access, names: Iterable[str], *, active: bool) -> None:
        self.active = active
        self.remarked = False
        self._names = list(names)
        self._marks = DrainMarks(access.writer())
        self._returning: dict[str, frozenset[int]] | None = None
        self._guests: dict[str, frozenset[int]] = {}
        self._marked: frozenset[str] = frozenset()

    @property
    def complaint(self) -> str | None:
        """The error text if guests stay on nodes to be drained. It is no failure if a guest cannot come back."""
        return None if self.active else f"{listed(self._names)} cannot be drained completely"

    def warnings(self, outcome: Outcome) -> list[str]:
        """Warnings besides the result of the task."""
        stuck = outcome.last.stuck
        lacking = [f"not all guests could be brought back, {told(stuck)}"] if self.active and stuck else []
        return [*outcome.warnings, *lacking]

    def goals(self, snapshot: Snapshot) -> Goals:
        """The goals for the cluster. Raises InvalidRequest for an unknown node."""
        there = {node.name for node in snapshot.nodes}
        for name in self._names:
            if name not in there:
                raise InvalidRequest(f"name: {name!r} is not a node; the cluster's nodes: {known(there, name)}")
        self._marked = frozenset(node.name for node in snapshot.nodes if node.drained) & set(self._names)
        if not self.active:
            for name in self._names:
                on_it = frozenset(guest.vmid for guest in snapshot.guests if guest.node == name)
                self._guests[name] = self._guests.get(name, frozenset()) | on_it
            return Goals(drain=frozenset(self._names))
        if self._returning is None:
            self._returning = {name: self._marks.guests(name) or frozenset() for name in sorted(self._marked)}
        home = {vmid: name for name, vmids in self._returning.items() for vmid in vmids}
        present = {guest.vmid: guest.node for guest in snapshot.guests if guest.vmid in home}
        undo = {vmid: home[vmid] for vmid in sorted(present)}
        return Goals() if undo == present else Goals(undo=undo)

    def view(self, snapshot: Snapshot) -> Snapshot:
        """The cluster with the nodes as if they were marked already or, if they become active, no longer marked."""
        drained = not self.active
        nodes = (replace(node, drained=drained) if node.name in self._names else node for node in snapshot.nodes)
        return replace(snapshot, nodes=tuple(nodes))

    def begin(self) -> None:
        """Mark the nodes before any move, so that no new guests arrive meanwhile."""
        if self.active:
            return
        for name in self._names:
            if name not in self._marked or self._guests[name]:
                self.remarked |= self._marks.set(name, self._guests[name], marked=name in self._marked)

    def end(self) -> None:
        """Remove the marks of nodes that are active again, after their guests have come back as far as possible."""
        if self.active:
            for name in sorted(self._marked):
                self._marks.clear(name)
                self.remarked = True

    @property
    def would_remark(self) -> bool:
        """Whether the run changes marks, for check mode."""
        return bool(self._marked) if self.active else bool(set(self._names) - self._marked)
