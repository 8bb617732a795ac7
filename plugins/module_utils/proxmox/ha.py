# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adds a VM as an HA resource, with its group or rule."""

from __future__ import annotations

import typing as t

from ..errors import ApiError, InvalidRequest
from ..model import HAIntent
from .api.failures import AnswerLost
from .api.session import Session
from .outcomes import is_modified
from .tasks import Poller, sent
from .writes import GuestWriter

# How long to retry a change of a rule: all rules are in one file, and each change by others makes ours fail.
_JOIN_SECONDS = 60.0


def join_ha(session: Session, poller: Poller, node: str, guest: GuestWriter, intent: HAIntent) -> None:
    """Add the VM as an HA resource in the intended state (C(started) if none is given), then add it to the rule.

    An existing HA resource gets the intended state and group; those that the intent does not give are not changed. May
    be called again for the same VM.

    Raises ApiError or PermissionDenied as Proxmox answers, InvalidRequest when the rule no longer exists, and what the
    writer raises.
    """
    resource: dict[str, t.Any] = {"state": intent.state or "started"}
    if intent.group is not None:
        resource["group"] = intent.group
    try:
        sent(lambda: guest.add_to_ha(node, resource), poller.sleep)
    except ApiError as error:
        if "already defined" not in error.message:
            raise
        given = {"state": intent.state, "group": intent.group}
        changes = {key: value for key, value in given.items() if value is not None}
        if changes:
            sent(lambda: guest.change_in_ha(node, changes), poller.sleep)
    name = intent.rule
    if name is None:
        return
    if not poller.until(lambda: _join_rule(session, node, guest, name), _JOIN_SECONDS):
        raise ApiError(
            f"HA rule {name!r} was changed by others at each attempt to add VM {guest.vmid}", vmid=guest.vmid
        )


def _join_rule(session: Session, node: str, guest: GuestWriter, name: str) -> bool | None:
    """Add the VM to the rule if it is not in it. Returns True when it is, None when another attempt is needed."""
    try:
        guest.change_ha_rule(node, name, lambda: _membership(session, name, f"vm:{guest.vmid}"))
    except AnswerLost:
        return None
    except ApiError as error:
        if not is_modified(error.message):
            raise
        return None
    return True


def _membership(session: Session, name: str, sid: str) -> dict[str, t.Any] | None:
    """Return the change that adds a VM to a rule; None if it is in it."""
    rule = next((row for row in session.get("/cluster/ha/rules") if row.get("rule") == name), None)
    if rule is None:
        raise InvalidRequest(f"ha.rule: rule {name!r} no longer exists")
    members = [member for member in str(rule.get("resources") or "").split(",") if member]
    if sid in members:
        return None
    return {"type": rule["type"], "resources": ",".join([*members, sid]), "digest": rule.get("digest")}
