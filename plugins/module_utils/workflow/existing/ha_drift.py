# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the HA settings of an existing VM differ from the requested ones."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import asdict, replace

from ...engine.ha_rules import find_rule, refusal
from ...errors import InvalidRequest, PermissionDenied
from ...model import Guest, HAIntent
from ...proxmox.api.failures import NotRecorded
from ...proxmox.api.reader import Reader
from ..options.entries import Entry

HA = "ha"
"""The key of the HA drift among the drift of the config."""


SWITCHED_TO = {"start": "started", "stop": "stopped"}
"""The state that an HA resource gets by a power action of its VM."""


class HADrift(t.NamedTuple):
    """What differs, by the keys of the option C(ha).

    old is None for a VM that the HA manager does not keep. problem says why the requested value cannot be set.
    """

    old: Mapping[str, t.Any] | None
    new: Mapping[str, t.Any]
    problem: str | None = None

    def has_begun(self, found: HADrift | None) -> bool:
        """Whether any of it is gone in the drift that was found afterwards. A state that differs may be that of a power
        action which failed.
        """
        if found is None or self.old is None or found.old is None:
            return found is None or self.old is not found.old
        return not self.old.keys() <= found.old.keys()


def ha_drift(reader: Reader, entry: Entry, guest: Guest, intent: HAIntent, power: str | None) -> HADrift | None:
    """Return how a VM differs from what is requested of its HA resource; None if it does not. power is the
    planned action that changes the VM's status.

    A user with few privileges only sees whether the VM is an HA resource.
    """
    wanted = {key: value for key, value in asdict(replace(intent, create=None)).items() if value is not None}
    try:
        # One that was just added is shown as such elsewhere only after the HA manager's next round.
        rows = reader.get("/cluster/ha/resources")
        member, problem = _membership(reader, entry, guest, intent)
    except (PermissionDenied, NotRecorded):
        return None if guest.ha_managed else HADrift(None, wanted or {"state": "started"})
    row = next((row for row in rows if row.get("sid") == f"vm:{guest.vmid}"), None)
    if row is None:
        return HADrift(None, wanted or {"state": "started"}, problem)
    old: dict[str, t.Any] = {}
    if not member:
        old |= {"rule": None} if intent.rule is not None else {"group": row.get("group")}
    state = _state(row, SWITCHED_TO.get(power or ""))
    if intent.state not in (None, state) and not _rests(entry, intent, state):
        old["state"] = state
    return HADrift(old, {key: wanted[key] for key in old}, problem) if old else None


def _membership(reader: Reader, entry: Entry, guest: Guest, intent: HAIntent) -> tuple[bool, str | None]:
    """Whether the VM is in the requested rule or group, or none is requested; and if it is not, why it cannot be."""
    if intent.joins is None:
        return True, None
    from ...proxmox.inventory.ha_state import read_ha_rules

    rules = read_ha_rules(reader)
    if intent.create is not None and intent.joins not in {rule.name for rule in rules}:
        return False, None
    try:
        joined = find_rule(rules, intent)
    except InvalidRequest as error:
        return False, error.message
    if joined is None or guest.vmid in joined.vmids:
        return True, None
    with_it = [replace(rule, vmids=rule.vmids | {guest.vmid}) if rule is joined else rule for rule in rules]
    nodes = sum(row.get("type") == "node" for row in reader.get("/cluster/resources"))
    problem = refusal(with_it, joined.name, guest.vmid, nodes)
    return False, problem and f"Proxmox would refuse rule {joined.name!r} with it: {problem}"


def _state(row: Mapping[str, t.Any], switched_to: str | None) -> str:
    """Return the state in which the HA manager will keep the VM: starting and stopping the VM sets it, unless the HA
    manager ignores the VM.
    """
    state = str(row.get("state", "started"))
    state = "started" if state == "enabled" else state
    return state if state == "ignored" else switched_to or state


def _rests(entry: Entry, intent: HAIntent, state: str) -> bool:
    """Whether the VM only has to be off, and the HA manager keeps it off in one way or another."""
    off = entry.state == "stopped" or bool(entry.request.options.get("template"))
    return off and intent.state == "stopped" and state in ("disabled", "ignored")
