# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for one VM that exists: how it has drifted, what is done about it, and what the user is told."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model import OFF, Guest
from ..proxmox.binder import described
from ..proxmox.options.cautions import option_cautions
from ..proxmox.options.drift import ChangeSet
from ..proxmox.pending import Pending
from ..proxmox.unfinished import Unfinished
from .entries import Entry
from .existing_ha import HA, HADrift
from .report import VMReport


@dataclass(slots=True)
class ExistingPlan:
    """What is to be done with one VM that exists.

    Attributes:
        status: the VM's, as it is.
        changes: how it has drifted. Of an unfinished VM they are what is left to do.
        config: its config as it will be after the next start.
        pending: what of that config is not in effect yet.
        actions: delete, stop, finish, update, start and reboot, in the order they are done.
        unfinished: what its mark says of a VM that somebody began to make.
        cautions: what the user should know besides, in sentences.
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

    @property
    def drift(self) -> dict[str, Mapping[str, t.Any]]:
        """Everything that differs: the config, and the care of the HA manager."""
        drift = dict(self.changes.changes)
        if self.ha is not None:
            drift[HA] = {"old": self.ha.old, "new": self.ha.new}
        if self.misplaced:
            drift["node"] = {"old": self.guest.node, "new": self.entry.request.node}
        return drift

    @property
    def misplaced(self) -> bool:
        """Whether the VM is on another node than the one that is asked for. It is told, and left so."""
        return self.entry.request.node not in (None, self.guest.node)

    @property
    def unappliable(self) -> dict[str, str]:
        """For each option that cannot be changed why not."""
        found = dict(self.changes.unappliable)
        if self.ha is not None and self.ha.problem is not None:
            found[HA] = self.ha.problem
        return found

    @property
    def description(self) -> str:
        """The description that an unfinished VM is to have: what is asked for, or else what its mark keeps."""
        kept = self.unfinished.description if self.unfinished is not None else ""
        return str(self.entry.request.options.get("description", kept))

    @property
    def config_after(self) -> Mapping[str, t.Any]:
        """The config once the plan is carried out."""
        if not {"update", "finish"} & set(self.actions):
            return self.config
        kept = {key: value for key, value in self.config.items() if key not in self.changes.delete}
        return {**kept, **self.changes.parameters}

    @property
    def status_after(self) -> str:
        """The VM's status once the plan is carried out."""
        if "delete" in self.actions:
            return "absent"
        return "running" if "start" in self.actions else "stopped" if "stop" in self.actions else self.status

    def report(self) -> VMReport:
        """The report as it will be when the plan is carried out."""
        gone = "delete" in self.actions
        keeps_pending = not {"delete", "stop", "reboot"} & set(self.actions)
        before = {**self._pending_text(self.pending), "status": self.status}
        after = {**self._pending_text(self.pending if keeps_pending else {}), "status": self.status_after}
        report = VMReport(
            self.entry,
            actions=list(self.actions),
            found_name=self.guest.name,
            node=None if gone else self.guest.node,
            vmid=self.guest.vmid,
            status=self.status_after,
            drift=self.drift,
            pending=self.pending if keeps_pending else {},
            before={**self.changes.before, **before},
            after=None if gone else {**self.changes.before, **after},
            warnings=[*self.cautions, *self._option_cautions()],
        )
        if self.unfinished is not None:
            report.before = {**self.changes.before, "description": self.unfinished.marked_description, **before}
            report.after = described({**self.changes.after, **after}, self.description)
            report.warnings.extend(
                f"{self.entry.label}: {key} is not changed: {why}" for key, why in self.changes.unappliable.items()
            )
        elif "update" in self.actions:
            report.after = {**self.changes.after, **after}
        elif not gone:
            report.warnings.extend(self._drift_warnings())
        if self.entry.state == "started" and self.status not in ("running", *OFF):
            report.warnings.append(
                f"{self.entry.label} runs, but its CPU is stopped ({self.status}): it is not resumed"
            )
        if self.misplaced and not gone:
            report.warnings.append(
                f"{self.entry.label} is on {self.guest.node}, requested on {self.entry.request.node}: it is not moved; "
                f"migrate it with Proxmox VE, or request node {self.guest.node}"
            )
        if report.pending:
            report.warnings.append(pending_warning(self.entry, report.pending))
        return report

    def _option_cautions(self) -> list[str]:
        cautions = option_cautions(self.entry.request.options, self.config_after) if self.config else []
        return [f"{self.entry.label}: {text}" for text in cautions]

    def _drift_warnings(self) -> list[str]:
        """What has drifted and could be updated, and what could not, and why."""
        unappliable = self.unappliable
        told = {key: _told(key, change) for key, change in sorted(self.drift.items()) if key != "node"}
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

    @staticmethod
    def _pending_text(pending: Pending) -> dict[str, str]:
        """The line of a diff that tells what is pending."""
        return {"pending": _listed(pending)} if pending else {}


def pending_warning(entry: Entry, pending: Pending) -> str:
    """Say which changes wait for the VM to be stopped and started."""
    hint = "" if entry.apply_pending == "reboot" else " Set apply_pending=reboot to do so."
    return (
        f"{entry.label} runs with pending changes: {_listed(pending)}. "
        f"They take effect when it is stopped and started.{hint}"
    )


def _listed(pending: Pending) -> str:
    return ", ".join(
        f"{key} from {_text(each['old'])} to {_text(each['new'])}" for key, each in sorted(pending.items())
    )


def _told(key: str, change: Mapping[str, t.Any]) -> str:
    return f"{key} is {_text(change['old'])}, requested {_text(change['new'])}"


def _text(value: t.Any) -> str:
    return "unset" if value is None else str(value)
