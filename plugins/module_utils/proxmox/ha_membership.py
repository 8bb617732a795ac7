# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adds a VM as an HA resource, with its group or rule."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection

from ..engine.ha_rules import RESOURCES
from ..errors import ApiError, InvalidRequest
from ..model import HAIntent, NewRule
from .api.failures import AnswerLost
from .api.session import Session
from .outcomes import is_modified
from .tasks import Poller, send_write
from .writes import GuestWriter

# How long to retry a change of a rule: all rules are in one file, and each change by others makes ours fail.
_JOIN_SECONDS = 60.0


Waiting: t.TypeAlias = dict[str, set[int]]
"""The VMIDs of the VMs of a run that have a rule to make, by its name: Proxmox VE refuses one between less than two."""


def join_ha(
    session: Session, poller: Poller, node: str, guest: GuestWriter, intent: HAIntent, waiting: Waiting
) -> None:
    """Add the VM as an HA resource in the intended state (C(started) if none is given), then add it to the rule. A
    missing rule or group is made if the intent says how.

    An existing HA resource gets the intended state and group; those that the intent does not give are not changed. May
    be called again for the same VM.

    Raises ApiError or PermissionDenied as Proxmox answers, InvalidRequest when the rule no longer exists, and what the
    writer raises.
    """
    if intent.group is not None and intent.create is not None:
        group = _new_group(intent.group, intent.create)
        _make(lambda: guest.create_ha_group(node, group), poller)
    # A rule may name only guests that are HA resources already.
    resource: dict[str, t.Any] = {"state": intent.state or "started"}
    if intent.group is not None:
        resource["group"] = intent.group
    try:
        send_write(lambda: guest.add_to_ha(node, resource), poller.sleep)
    except ApiError as error:
        if "already defined" not in error.message:
            raise
        given = {"state": intent.state, "group": intent.group}
        changes = {key: value for key, value in given.items() if value is not None}
        if changes:
            send_write(lambda: guest.change_in_ha(node, changes), poller.sleep)
    name = intent.rule
    if name is None:
        return
    sids = {f"vm:{guest.vmid}"}
    if intent.create is not None:
        # Each adds itself first, so that the second one sees both.
        waiting.setdefault(name, set()).add(guest.vmid)
        sids |= {f"vm:{vmid}" for vmid in waiting[name]}
        if not _ask_if_rule_exists(session, name):
            if intent.create.type == RESOURCES and len(sids) < 2:
                return
            new = _new_rule(name, intent.create, sids)
            _make(lambda: guest.create_ha_rule(node, new), poller)
    if not poller.until(lambda: _join_rule(session, node, guest, name, sids), _JOIN_SECONDS):
        raise ApiError(
            f"HA rule {name!r} was changed by others at each attempt to add VM {guest.vmid}", vmid=guest.vmid
        )


def _make(create: Callable[[], None], poller: Poller) -> None:
    """Make a rule or group. One that exists is not an error: another VM has made it at the same time."""
    try:
        send_write(create, poller.sleep)
    except ApiError as error:
        if "already defined" not in error.message:
            raise


def _ask_if_rule_exists(session: Session, name: str) -> bool:
    return any(row.get("rule") == name for row in session.get("/cluster/ha/rules"))


def _new_rule(name: str, new: NewRule, sids: Collection[str]) -> dict[str, t.Any]:
    """Return the API parameters of a new HA rule for these resources."""
    rule: dict[str, t.Any] = {"rule": name, "type": new.type, "resources": ",".join(sorted(sids))}
    if new.type == RESOURCES:
        return {**rule, "affinity": "positive" if new.positive else "negative"}
    # Not every release 9 knows the affinity of a node-affinity rule. The default is positive.
    affinity = {} if new.positive else {"affinity": "negative"}
    return {**rule, "nodes": ",".join(new.nodes), "strict": int(new.strict), **affinity}


def _new_group(name: str, new: NewRule) -> dict[str, t.Any]:
    return {"group": name, "nodes": ",".join(new.nodes), "restricted": int(new.strict)}


def _join_rule(session: Session, node: str, guest: GuestWriter, name: str, sids: Collection[str]) -> bool | None:
    """Add the VMs to the rule if they are not in it. Returns True when they are, None if another attempt is needed."""
    try:
        guest.change_ha_rule(node, name, lambda: _membership(session, name, sids))
    except AnswerLost:
        return None
    except ApiError as error:
        if not is_modified(error.message):
            raise
        return None
    return True


def _membership(session: Session, name: str, sids: Collection[str]) -> dict[str, t.Any] | None:
    """Return the change that adds VMs to a rule; None if they are in it."""
    rule = next((row for row in session.get("/cluster/ha/rules") if row.get("rule") == name), None)
    if rule is None:
        raise InvalidRequest(f"ha.rule: rule {name!r} no longer exists")
    members = [member for member in str(rule.get("resources") or "").split(",") if member]
    new = sorted(set(sids) - set(members))
    if not new:
        return None
    # Proxmox VE replaces the whole list of members: the digest makes it refuse one that was read too long ago.
    return {"type": rule["type"], "resources": ",".join([*members, *new]), "digest": rule.get("digest")}
