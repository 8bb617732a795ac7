# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options for rules that apply to guests whether or not a run requests them: C(rules) and C(tag_rules)."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ...engine.patterns.names import checked_pattern
from ...engine.standing_rules import StandingRule, StandingRules
from ...errors import InvalidRequest
from ...model import AffinityTerm
from ...proxmox.options.values import invalid
from .fields import Fields, listed
from .rules import SELECTOR, WEIGHTS, selector_argument_spec, selector_of

TYPES = ("affinity", "anti-affinity", "node-affinity")
BETWEEN_GUESTS = ("required", "weight", "topology_key")
KEYS = ("type", "nodes", *BETWEEN_GUESTS, *SELECTOR)


def guest_rules_argument_spec() -> dict[str, dict[str, t.Any]]:
    """The options that several modules share."""
    rule = {
        "type": {"type": "str", "choices": list(TYPES), "required": True},
        "nodes": {"type": "list", "elements": "str"},
        "required": {"type": "bool"},
        "weight": {"type": "int"},
        "topology_key": {"type": "str", "no_log": False},
        **selector_argument_spec(),
    }
    return {
        "rules": {"type": "list", "elements": "dict", "default": [], "options": rule},
        "tag_rules": {"type": "bool", "default": True},
    }


def standing_rules(params: Mapping[str, t.Any]) -> StandingRules:
    """The rules of the options. Raises InvalidRequest, which names option, value and what was expected."""
    rules = [_rule(Fields(where, body, KEYS)) for where, body in listed("rules", params.get("rules"))]
    return StandingRules(params.get("tag_rules", True), tuple(rules))


def _rule(body: Fields) -> StandingRule:
    kind = body.choice("type", TYPES)
    selector = selector_of(body)
    if kind == "node-affinity":
        for key in BETWEEN_GUESTS:
            if key in body:
                raise invalid(body.path(key), body.body[key], "a rule of type affinity or anti-affinity")
        nodes = body.texts("nodes")
        if not nodes:
            raise InvalidRequest(f"{body.path('nodes')}: is missing, expected the nodes that the guests may be on")
        for number, pattern in enumerate(nodes):
            checked_pattern(f"{body.path('nodes')}[{number}]", pattern)
        return StandingRule(body.where, selector, nodes=nodes)
    if "nodes" in body:
        raise invalid(body.path("nodes"), body.body["nodes"], "a rule of type node-affinity")
    required = body.flag("required", True)
    if required and "weight" in body:
        raise invalid(body.path("weight"), body.body["weight"], "a weight only together with required: false")
    term = AffinityTerm(
        together=kind == "affinity",
        selector=selector,
        required=required,
        topology_key=body.text("topology_key") or "node",
        weight=body.whole("weight", *WEIGHTS),
    )
    return StandingRule(body.where, selector, term)
