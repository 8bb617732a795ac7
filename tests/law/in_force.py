# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which rules of the law are in force for a profile, and what its decisions break.

Rules of disabled plugins are not in force, nor are those of an extension point at which a custom plugin decides as
well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.allocatable import (
    CPULimit,
    Limit,
    MemoryLimit,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import Plugin
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import BUILTIN
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import Profile
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Decision, Request, Snapshot

from .law import InForce, Overcommit, broken

TAKING = ("DeviceClaims", "VolumeBinding")
"""The plugins whose rules also concern what they reserve."""


def broken_by(
    cluster: Snapshot,
    decisions: Iterable[Decision],
    profile_of: Callable[[Request], Profile],
    starting: Collection[int] = (),
    *,
    own_names: bool = True,
) -> list[str]:
    """Return what the decisions of a run break, as sentences.

    cluster is the state before the decisions, with the reservations of others; starting are the VMIDs of guests that
    the run starts. own_names: whether a new VM must not have the name of another guest.
    """
    guests = (replace(g, status="running") if g.vmid in starting else g for g in cluster.guests)
    in_order = sorted(decisions, key=lambda decision: decision.turn)
    decided = tuple((decision, rules_in_force(profile_of(decision.request))) for decision in in_order)
    if not own_names:
        decided = tuple((decision, replace(rules, rules=rules.rules - {"Names"})) for decision, rules in decided)
    return broken(replace(cluster, guests=tuple(guests)), decided)


def rules_in_force(profile: Profile) -> InForce:
    """The rules that a profile's plugins enforce, as data."""
    filters = {plugin.name: plugin for plugin in profile.sections["filters"] if type(plugin) in BUILTIN}
    reserves = profile.sections["reserves"]
    names = {plugin.name for plugin in reserves} if all(type(plugin) in BUILTIN for plugin in reserves) else set()
    guests = filters["GuestLimit"].config if "GuestLimit" in filters else {"max_guests": None, "tags": {}}
    policy = profile.policy
    unknown = {"CPUOvercommit"} if policy.cpu.__class__ is not CPULimit else set()
    unknown |= {"MemoryOvercommit"} if policy.memory.__class__ is not MemoryLimit else set()
    return InForce(
        rules=frozenset({"Names", *filters} - unknown - (set(TAKING) - names)),
        cpu=_overcommit(policy.cpu, filters.get("CPUOvercommit")),
        memory=_overcommit(policy.memory, filters.get("MemoryOvercommit")),
        storage_classes=policy.storage_classes,
        max_guests=guests["max_guests"],
        max_tagged=guests["tags"],
    )


def _overcommit(limit: Limit, plugin: Plugin | None) -> Overcommit:
    include_stopped = plugin is not None and plugin.config["include_stopped"]
    return Overcommit(limit.ratio, limit.reserved, limit.pools, limit.tags, include_stopped)
