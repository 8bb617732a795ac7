# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Putting a new VM under the HA manager's care: as a resource, and into a group or a rule."""

from __future__ import annotations

import typing as t

from ..errors import ApiError, InvalidRequest
from ..model import HAIntent
from .session import Session


def join_ha(session: Session, vmid: int, intent: HAIntent) -> None:
    """Add the VM to HA in the intended state (C(started) when only a rule or group is given), then to its rule.

    Raises ApiError or PermissionDenied as Proxmox answers, InvalidRequest when the rule is gone.
    """
    resource: dict[str, t.Any] = {"sid": f"vm:{vmid}", "state": intent.state or "started"}
    if intent.group is not None:
        resource["group"] = intent.group
    try:
        session.post("/cluster/ha/resources", resource)
    except ApiError as error:
        if "already defined" not in error.message:
            raise
    if intent.rule is not None:
        _join_rule(session, vmid, intent.rule)


def _join_rule(session: Session, vmid: int, name: str) -> None:
    rule = next((row for row in session.get("/cluster/ha/rules") if row.get("rule") == name), None)
    if rule is None:
        raise InvalidRequest(f"ha.rule: there is no rule {name!r} any more")
    members = [member for member in str(rule.get("resources") or "").split(",") if member]
    if f"vm:{vmid}" not in members:
        changes = {"type": rule["type"], "resources": ",".join([*members, f"vm:{vmid}"]), "digest": rule.get("digest")}
        session.put(f"/cluster/ha/rules/{name}", changes)
