# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adds a VM as an HA resource, with its group or rule."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ..errors import ApiError, InvalidRequest
from ..model import HAIntent
from .api.failures import AnswerLost
from .api.session import Session
from .tasks import Poller, sent

# How long to retry a change of a rule: all rules are in one file, and each change by others makes ours fail.
_JOIN_SECONDS = 60.0


def join_ha(session: Session, poller: Poller, vmid: int, intent: HAIntent, fence: Callable[[], None]) -> None:
    """Add the VM as an HA resource in the intended state (C(started) if none is given), then add it to the rule.

    An existing HA resource gets the intended state and group; those that the intent does not give are not changed.
    fence is called right before each write. If it raises, the write is not sent.

    Raises ApiError or PermissionDenied as Proxmox answers, InvalidRequest when the rule no longer exists.
    """
    resource: dict[str, t.Any] = {"sid": f"vm:{vmid}", "state": intent.state or "started"}
    if intent.group is not None:
        resource["group"] = intent.group
    fence()
    try:
        sent(lambda: session.post("/cluster/ha/resources", resource), poller.sleep)
    except ApiError as error:
        if "already defined" not in error.message:
            raise
        given = {"state": intent.state, "group": intent.group}
        changes = {key: value for key, value in given.items() if value is not None}
        if changes:
            fence()
            sent(lambda: session.put(f"/cluster/ha/resources/vm:{vmid}", changes), poller.sleep)
    name = intent.rule
    if name is None:
        return
    if not poller.until(lambda: _join_rule(session, vmid, name, fence), _JOIN_SECONDS):
        raise ApiError(f"HA rule {name!r} was changed by others at each attempt to add VM {vmid}", vmid=vmid)


def _join_rule(session: Session, vmid: int, name: str, fence: Callable[[], None]) -> bool | None:
    """Add the VM to the rule if it is not in it. Returns True when it is, None when another attempt is needed."""
    rule = next((row for row in session.get("/cluster/ha/rules") if row.get("rule") == name), None)
    if rule is None:
        raise InvalidRequest(f"ha.rule: rule {name!r} no longer exists")
    members = [member for member in str(rule.get("resources") or "").split(",") if member]
    if f"vm:{vmid}" in members:
        return True
    changes = {"type": rule["type"], "resources": ",".join([*members, f"vm:{vmid}"]), "digest": rule.get("digest")}
    fence()
    try:
        session.put(f"/cluster/ha/rules/{name}", changes)
    except AnswerLost:
        return None
    except ApiError as error:
        if "detected modified configuration" not in error.message:
            raise
        return None
    return True
