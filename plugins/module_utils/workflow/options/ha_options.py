# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task says of high availability: the HA rule or group that a VM joins, and the one to make if there is none."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping

from ...engine.ha_rules import NODES, RESOURCES
from ...errors import InvalidRequest
from ...model import HAIntent, NewRule
from ...proxmox.options.values import Fields, invalid

Spec = dict[str, dict[str, t.Any]]

HA_STATES = ("started", "stopped", "disabled", "ignored")
NEW_RULE: Spec = {
    "type": {"type": "str", "choices": [NODES, RESOURCES]},
    "affinity": {"type": "str", "choices": ["positive", "negative"]},
    "nodes": {"type": "raw"},
    "strict": {"type": "bool"},
}
HA: Spec = {
    "rule": {"type": "str"},
    "group": {"type": "str"},
    "state": {"type": "str", "choices": list(HA_STATES)},
    "create": {"type": "dict", "options": NEW_RULE},
}


def read_ha(body: Fields) -> HAIntent:
    """Return what C(ha) requests. Raises InvalidRequest."""
    rule, group = body.text("rule"), body.text("group")
    if rule is not None and group is not None:
        raise InvalidRequest(f"{body.where}: has both rule {rule!r} and group {group!r}, expected one of them")
    state = body.choice("state", HA_STATES) if "state" in body else None
    create = None
    if "create" in body:
        name = rule or group or ""
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]+", name, re.ASCII):
            expected = "a letter, then letters, digits, dashes and underscores"
            raise invalid(body.path("rule" if group is None else "group"), name, expected)
        create = _new_rule(Fields(body.path("create"), body.body["create"], NEW_RULE), of_group=group is not None)
    return HAIntent(rule, group, state, create)


def _new_rule(body: Fields, *, of_group: bool) -> NewRule:
    """Return the rule that C(ha.create) describes. If it is empty, the rule keeps VMs apart; with nodes, it binds them
    to these.
    """
    nodes = _nodes_with_priorities(body)
    kind = body.choice("type", (NODES, RESOURCES), NODES if nodes or of_group else RESOURCES)
    about_nodes = kind == NODES
    if about_nodes != bool(nodes):
        expected = "is missing, expected nodes such as [pve1, pve2] or {pve1: 2, pve2: 1}"
        raise InvalidRequest(f"{body.path('nodes')}: {expected if about_nodes else f'contradicts type {RESOURCES}'}")
    affinity = body.choice("affinity", ("positive", "negative"), "positive" if about_nodes else "negative")
    if of_group and (not about_nodes or affinity == "negative"):
        raise InvalidRequest(f"{body.where}: an HA group is a set of nodes, expected nodes and strict only")
    strict = body.flag("strict", False)
    if strict and not about_nodes:
        raise InvalidRequest(f"{body.path('strict')}: is for type {NODES} only")
    return NewRule(kind, affinity == "positive", nodes, strict)


def _nodes_with_priorities(body: Fields) -> tuple[str, ...]:
    """Return the nodes, as C(NAME) or C(NAME:PRIORITY)."""
    given = body.body.get("nodes")
    if given is None:
        return ()
    if isinstance(given, Mapping):
        given = [str(name) if priority is None else f"{name}:{priority}" for name, priority in given.items()]
    nodes = tuple(map(str, given.split(",") if isinstance(given, str) else given if isinstance(given, list) else ()))
    for node in nodes or ("",):
        if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?::\d{1,9})?", node, re.ASCII):
            expected = "nodes such as [pve1, pve2], or with priorities {pve1: 2, pve2: 1}"
            raise invalid(body.path("nodes"), given, expected)
    return nodes
