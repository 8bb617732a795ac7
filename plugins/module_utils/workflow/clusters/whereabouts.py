# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds which of several clusters a VM is on. A case of doubt is an error, never a guess."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ...engine.texts import join_words
from ...errors import AmbiguousName, ClusterUnreachable, CollectionError, VMIDConflict
from ..existing.matching import Match
from ..job import Job, State
from ..options.entries import Entry


@dataclass(frozen=True, slots=True)
class Finding:
    """What one cluster shows about a VM: its job there, its match, and whether a VM there has its name."""

    job: Job
    match: Match
    namesake: bool = False

    @property
    def rules_out(self) -> bool:
        """Whether the cluster only shows that the VM cannot be there, as another guest has its VMID."""
        return isinstance(self.match.error, VMIDConflict) and not self.namesake


@dataclass(slots=True)
class Silent:
    """The clusters that cannot be reached.

    Attributes:
        reasons: why, by their names.
        skip: whether the user states that no VM of the task is there.
        reserved: by their names, the names of VMs that the ledger knows to be there, or to be under way.
    """

    reasons: dict[str, str] = field(default_factory=dict)
    skip: bool = False
    reserved: dict[str, Collection[str]] = field(default_factory=dict)

    def add(self, name: str, reason: str, reserved: Collection[str]) -> None:
        """Note that a cluster cannot be reached."""
        self.reasons[name], self.reserved[name] = reason, reserved

    def may_have(self, entry: Entry) -> list[str]:
        """Return the unreachable clusters on which the VM may be."""
        return [
            name
            for name in self.reasons
            if name in (entry.clusters or self.reasons)
            and not (self.skip and entry.request.name not in self.reserved.get(name, ()))
        ]


def whereabouts(entry: Entry, found: Mapping[str, Finding], silent: Silent) -> Job | list[str]:
    """Return the job of a VM that is not placed, as it exists, shall be absent, or fails; else the names of the
    clusters on which the VM may be created.

    found has all clusters that answer. Clusters that the entry does not name are ignored.
    """
    asked = {name: each for name, each in found.items() if name in (entry.clusters or found)}
    holders = [name for name, each in asked.items() if each.match.guest is not None]
    if len(holders) > 1:
        return _failed_job(
            entry, AmbiguousName(f"{entry.label}: exists on clusters {join_words(holders)}; set cluster")
        )
    if holders:
        return asked[holders[0]].job
    for each in asked.values():
        if each.match.error is not None and not each.rules_out:
            return each.job
    begun = [name for name, each in asked.items() if each.match.take_over is not None or each.match.nameless]
    if len(begun) > 1:
        text = f"may be one of the VMs that are being created on clusters {join_words(begun)}; run again later"
        return _failed_job(entry, AmbiguousName(f"{entry.label}: {text}"))
    unsure = silent.may_have(entry) if asked else list(entry.clusters or silent.reasons)
    if unsure:
        told = "; ".join(f"{name}: {silent.reasons[name]}" for name in unsure)
        text = "was not found, and may be on clusters that cannot be reached" if asked else "no cluster can be reached"
        return _failed_job(entry, ClusterUnreachable(f"{entry.label}: {text}: {told}", clusters=unsure))
    if entry.state == "absent":
        return Job(entry, state=State.DONE)
    return begun or list(asked)


def _failed_job(entry: Entry, error: CollectionError) -> Job:
    job = Job(entry)
    job.fail(error)
    return job
