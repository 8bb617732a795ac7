# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for one existing VM: its drift, the actions against it, and warnings."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...engine.texts import whole_number
from ...errors import CollectionError, InvalidRequest
from ...model import OFF, Guest, Identity
from ...proxmox.making import with_description
from ...proxmox.options.contradictions import cloud_init_data
from ...proxmox.options.drift import ChangeSet
from ...proxmox.options.kinds import STARTUP
from ...proxmox.options.request import option_cautions
from ...proxmox.pending import APPLIED_AT_ONCE, Pending
from ...proxmox.unfinished import Unfinished
from ..options.entries import NOT_CREATED, PAUSED, Entry
from .ha_drift import HA, HADrift

STATUS_AFTER = {
    "start": "running",
    "stop": "stopped",
    "restart": "running",
    "pause": "paused",
    "resume": "running",
    "suspend": "stopped",
}
"""The status of a VM after an action that changes it."""

HIBERNATED = frozenset({"suspended", "suspending"})
"""The locks of a VM whose memory is on disk, or is being written there."""

RENEWING = frozenset({"stop", "reboot", "restart", "suspend"})
"""Actions after which a running VM uses its complete config."""

SHUTDOWN_TIMEOUT = 60
"""Seconds that Proxmox VE gives a guest to shut down, unless C(down) of its C(startup) says otherwise."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """How running VMs are switched off: they get seconds to shut down (None: as many as Proxmox VE gives them), and
    are stopped afterwards with force, else not.
    """

    seconds: int | None = None
    force: bool = field(default=False, kw_only=True)


class Carried(t.NamedTuple):
    """The outcome of carrying out a plan.

    Attributes:
        done: the actions that were done, or turned out to be unnecessary.
        node: the VM's node afterwards: the HA manager may have moved it.
        pending: the pending changes after an update; None if not known.
        error: why the remaining actions were not done.
        found: the VM as found after an error; None if not known.
    """

    done: list[str]
    node: str
    pending: Pending | None = None
    error: CollectionError | None = None
    found: ExistingPlan | None = None


@dataclass(slots=True)
class ExistingPlan:
    """The actions for one existing VM.

    Attributes:
        changes: its drift; for an unfinished VM, what is left to do.
        config: its config, including pending changes.
        actions: delete, stop, finish, update, and one of start, reboot, restart, pause, resume and suspend, in the
            order they are done.
        unfinished: the content of the mark, if another run began to create the VM.
        cautions: further warnings, as sentences.
        clones: the VMIDs of its linked clones, if it is a template that is removed.
        identity: what the config showed of the VM when the plan was made; digest: that of the config. identity is None
            if the config could not be read, as it is not in a recording. Then nothing is written.
        is_protected: whether the VM is protected against the deletion that is planned.
        is_outdated: whether its cloud-init drive could not be regenerated.
    """

    entry: Entry
    guest: Guest
    status: str
    changes: ChangeSet
    config: Mapping[str, t.Any] = field(default_factory=dict)
    pending: Pending = field(default_factory=dict)
    ha: HADrift | None = None
    actions: list[str] = field(default_factory=list)
    unfinished: Unfinished | None = None
    cautions: list[str] = field(default_factory=list)
    clones: frozenset[int] = frozenset()
    identity: Identity | None = None
    digest: str | None = None
    is_protected: bool = False
    is_outdated: bool = False

    @property
    def drift(self) -> dict[str, Mapping[str, t.Any]]:
        """All drift: of the config, the HA resource and the node."""
        drift: dict[str, Mapping[str, t.Any]] = {**self.changes.changes}
        if self.ha is not None:
            drift[HA] = {"old": self.ha.old, "new": self.ha.new}
        if self.is_misplaced:
            drift["node"] = {"old": self.guest.node, "new": self.entry.request.node}
        return drift

    @property
    def is_misplaced(self) -> bool:
        """Whether the VM is not on the requested node. That is reported but not changed."""
        return self.entry.request.node not in (None, self.guest.node)

    @property
    def unappliable(self) -> dict[str, str]:
        """The reason for each option that cannot be changed."""
        found = dict(self.changes.unappliable)
        if self.ha is not None and self.ha.problem is not None:
            found[HA] = self.ha.problem
        return found

    @property
    def description(self) -> str:
        """The final description of an unfinished VM: the requested one, or else the one that its mark stores."""
        kept = self.unfinished.description if self.unfinished is not None else ""
        return str(self.entry.request.options.get("description", kept))

    def has_begun(self, found: ExistingPlan) -> bool:
        """Whether any of the drift, but for the node, was changed in the VM as it was found after an error."""
        before, now = ({key: change["old"] for key, change in plan.changes.changes.items()} for plan in (self, found))
        return before != now or (self.ha is not None and self.ha.has_begun(found.ha))

    @property
    def is_rebooted(self) -> bool:
        """Whether a running VM needs a reboot for pending changes, or possibly for those of its update."""
        changes = self.pending or self._updated_parameters - APPLIED_AT_ONCE or self.updated_cloud_init
        return self.status == "running" and bool(changes)

    @property
    def _updated_parameters(self) -> set[str]:
        return {*self.changes.parameters, *self.changes.unset} if "update" in self.actions else set()

    @property
    def updated_cloud_init(self) -> Sequence[str]:
        """The cloud-init data that the update changes. Proxmox VE never shows them as pending."""
        return cloud_init_data(self.config, self._updated_parameters)

    @property
    def new_cloud_init(self) -> Sequence[str]:
        """The cloud-init data that the update changes while the guest runs, which reads them when it boots."""
        return () if self.status in OFF or RENEWING & set(self.actions) else self.updated_cloud_init

    @property
    def unread(self) -> Pending:
        """The cloud-init data that the guest still uses, and those that it reads later, which are not pending."""
        return {key: self.changes.changes[key] for key in self.new_cloud_init}

    @property
    def config_after(self) -> Mapping[str, t.Any]:
        if not {"update", "finish"} & set(self.actions):
            return self.config
        kept = {key: value for key, value in self.config.items() if key not in self.changes.unset}
        return {**kept, **self.changes.parameters}

    @property
    def status_after(self) -> str:
        if "delete" in self.actions:
            return "absent"
        after = [STATUS_AFTER[action] for action in self.actions if action in STATUS_AFTER]
        return after[-1] if after else self.status

    @property
    def pending_after(self) -> Pending:
        """The pending changes after the plan is carried out, without those that an update adds: these are not known."""
        return {} if {"delete", *RENEWING} & set(self.actions) else self.pending

    @property
    def before(self) -> dict[str, t.Any]:
        """The VM for C(--diff), as it is."""
        facts = dict(self.changes.before)
        if self.unfinished is not None:
            facts["description"] = self.unfinished.marked_description
        if self.pending:
            facts["pending"] = _list_pending(self.pending)
        return {**facts, "status": self.status}

    @property
    def after(self) -> dict[str, t.Any] | None:
        """The VM for C(--diff) once the plan is carried out; None when it is deleted."""
        if "delete" in self.actions:
            return None
        changed = bool({"update", "finish"} & set(self.actions))
        facts = self.changes.after if changed else self.changes.before
        pending = {"pending": _list_pending(self.pending_after)} if self.pending_after else {}
        facts = {**facts, **pending, "status": self.status_after}
        return facts if self.unfinished is None else with_description(facts, self.description)

    def check_shutdown(self, shutdown: Shutdown, timeout: float) -> None:
        """Raise InvalidRequest if a task may end, after timeout seconds, before Proxmox VE stops the VM by force, as
        shutdown wants it to.
        """
        if self.status == PAUSED or not {"stop", "reboot", "restart"} & set(self.actions):
            return
        config = self.config if "stop" in self.actions else self.config_after
        down = STARTUP.read(str(config.get("startup", ""))).get("down", "")
        given = shutdown.seconds if shutdown.seconds is not None else whole_number(down) or SHUTDOWN_TIMEOUT
        if timeout <= given:
            raise InvalidRequest(
                f"timeout: {timeout:g} is not possible with force, expected more than {given}, the seconds that "
                f"Proxmox VE gives {self.entry.label} to shut down before it stops it"
            )

    def warnings(self, pending: Pending) -> list[str]:
        """Return the warnings about the VM, as sentences; pending are its pending changes."""
        label, gone = self.entry.label, "delete" in self.actions
        odd = option_cautions(self.entry.request.options, self.config_after) if self.config else []
        told = [*self.cautions, *(f"{label}: {text}" for text in odd)]
        if self.unfinished is not None:
            told.extend(f"{label}: {key} is not changed: {why}" for key, why in self.changes.unappliable.items())
        elif "update" not in self.actions and not gone and self.drift:
            told.extend(self._drift_warnings())
        if self.entry.state == "started" and self.status not in ("running", PAUSED, *OFF):
            told.append(f"{label} runs, but its CPU is stopped ({self.status}): it is not resumed")
        if self.is_misplaced and not gone:
            told.append(
                f"{label} is on {self.guest.node}, requested on {self.entry.request.node}: it is not moved; "
                f"migrate it with Proxmox VE, or request node {self.guest.node}"
            )
        if "update" in self.actions and self.new_cloud_init and not self.is_outdated:
            told.append(f"{label} runs: the guest reads {', '.join(self.new_cloud_init)} when it boots the next time")
        if pending:
            hint = "" if self.entry.apply_pending == "reboot" else " Set apply_pending=reboot to do so."
            told.append(
                f"{label} runs with pending changes: {_list_pending(pending)}. "
                f"They take effect when it is stopped and started.{hint}"
            )
        return told

    def _drift_warnings(self) -> list[str]:
        """Return warnings about what has drifted and could be updated, and about what could not, and why."""
        unappliable = self.unappliable
        told = {key: _describe(key, change) for key, change in sorted(self.drift.items()) if key != "node"}
        changeable = [text for key, text in told.items() if key not in unappliable]
        warnings = []
        if changeable:
            warnings.append(f"{self.entry.label} has drifted: {', '.join(changeable)}. Set update=true to apply.")
        warnings.extend(
            f"{self.entry.label} has drifted: {text}. It cannot be updated: {unappliable[key]}"
            for key, text in told.items()
            if key in unappliable
        )
        return warnings


def power_action(label: str, state: str, status: str, lock: str | None) -> str | None:
    """Return the action that brings an existing VM to a state: start, stop, resume, restart, pause, suspend, or None.

    status is the word of Proxmox VE for the VM's current state. Raises InvalidRequest if the VM cannot be brought
    there.
    """
    off = status in OFF
    if state == "started":
        return "start" if off else "resume" if status == PAUSED else None
    if state == "stopped":
        return None if off else "stop"
    if state == "restarted":
        return "start" if off else "restart"
    if state not in NOT_CREATED or (state == "suspended" and lock in HIBERNATED):
        return None
    if off:
        raise InvalidRequest(f"state: {label} does not run, and only a VM that runs can be {state}")
    return "suspend" if state == "suspended" else None if status == PAUSED else "pause"


def _list_pending(pending: Pending) -> str:
    return ", ".join(
        f"{key} from {_text(each['old'])} to {_text(each['new'])}" for key, each in sorted(pending.items())
    )


def _describe(key: str, change: Mapping[str, t.Any]) -> str:
    return f"{key} is {_text(change['old'])}, requested {_text(change['new'])}"


def _text(value: t.Any) -> str:
    return "unset" if value is None else str(value)
