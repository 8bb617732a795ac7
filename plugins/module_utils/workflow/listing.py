# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the existing VMs of a cluster as the entries of a list that the next run finds unchanged."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Mapping

from ..engine.patterns.names import compile_option_pattern
from ..engine.texts import known_names
from ..engine.unknown_names import UNSEEN
from ..errors import InvalidRequest
from ..model import OFF, Guest, Snapshot
from ..proxmox.api.failures import UNREADABLE
from ..proxmox.api.reader import in_parallel
from ..proxmox.api.session import ROOT, Session
from ..proxmox.inventory.freshness import read_config
from ..proxmox.inventory.snapshot import read_settled
from ..proxmox.options.describing import describe
from ..proxmox.options.table import ROOT_ONLY
from ..proxmox.unfinished import read_mark
from .access import needs_root
from .existing.matching import is_silent
from .existing.plan import HIBERNATED
from .options.entries import PAUSED, Guard


def list_vms(params: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the module's result. Raises InvalidRequest, and what reading the cluster raises."""
    scope = Guard.of(params)
    pattern = None if params.get("name") is None else compile_option_pattern("name", str(params["name"]))
    session = Session.connect(params)
    try:
        snapshot = read_settled(session)
        _check_pool(scope, snapshot)
        guests = [
            guest
            for guest in sorted(snapshot.guests, key=lambda guest: guest.vmid)
            if guest.kind == "qemu" and not guest.template and scope.allows(guest)
            if pattern is None or is_silent(guest) or pattern.matches(guest.name or "")
        ]
        configs = in_parallel(lambda place: _config(session, *place), [(each.node, each.vmid) for each in guests])
        user = session.user
    finally:
        session.close()
    vms: list[dict[str, t.Any]] = []
    left_out: list[dict[str, t.Any]] = []
    names = Counter(guest.name for guest in guests)
    for guest in guests:
        config = configs[guest.node, guest.vmid]
        reason = config if isinstance(config, str) else _objection(config)
        if reason is not None or isinstance(config, str):
            left_out.append({"name": guest.name, "vmid": guest.vmid, "parameter": None, "reason": reason})
            continue
        entry = _identity(guest)
        found = describe(entry, config, lambda key, text: _refusal(user, key, text))
        if guest.name is not None and names[guest.name] > 1:
            # No two VMs of a task may have one name.
            del entry["name"]
            found.left_out["name"] = "other VMs have it, too"
        vms.append({**entry, **found.options})
        left_out += [
            {"name": guest.name, "vmid": guest.vmid, "parameter": parameter, "reason": why}
            for parameter, why in found.left_out.items()
        ]
    return {"changed": False, "vms": vms, "left_out": left_out}


def _check_pool(scope: Guard, snapshot: Snapshot) -> None:
    """Raise InvalidRequest for a pool that is not there: without VMs, it would look like one that is empty."""
    pools = snapshot.pools | {guest.pool for guest in snapshot.guests if guest.pool is not None}
    if scope.pool is not None and scope.pool not in pools:
        raise InvalidRequest(
            f"only_pool: there is no pool {scope.pool!r}, or {UNSEEN}; known: {known_names(pools, scope.pool)}",
            option="only_pool",
        )


def _config(session: Session, node: str, vmid: int) -> dict[str, t.Any] | str:
    """Return the config of a VM, or why there is none."""
    try:
        return read_config(session, node, vmid) or "it vanished"
    except UNREADABLE as error:
        return f"its config cannot be read: {error.message}"


def _objection(config: Mapping[str, t.Any]) -> str | None:
    return "a run began to create it and did not finish it" if read_mark(config) is not None else None


def _identity(guest: Guest) -> dict[str, t.Any]:
    known = {"name": guest.name, "vmid": guest.vmid, "pool": guest.pool, "state": _state(guest)}
    return {key: value for key, value in known.items() if value is not None}


def _state(guest: Guest) -> str:
    if guest.lock in HIBERNATED:
        return "suspended"
    return PAUSED if guest.status == PAUSED else "stopped" if guest.status in OFF else "started"


def _refusal(user: str, parameter: str, text: str) -> str | None:
    """Return why a user may not set a parameter: a task with it would fail."""
    if user == ROOT:
        return None
    if ROOT_ONLY.fullmatch(parameter):
        return f"only {ROOT} with its password may set it"
    return needs_root({parameter: text})
