# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user writes about placement: rules of a VM, made into the fields of its request; rules that apply to guests
whether or not a run requests them (C(rules), C(tag_rules)); and facts of the nodes that Proxmox does not know.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping

from ...demand import CPU, MEMORY, STATED, Demand
from ...engine.patterns.names import compile_option_pattern, name_pattern
from ...engine.standing_rules import StandingRule, StandingRules
from ...engine.texts import hint, known_names
from ...errors import InvalidRequest
from ...model import (
    MIB,
    AffinityTerm,
    Expression,
    GangRef,
    Node,
    Selector,
    SpreadConstraint,
    Taint,
    Toleration,
)
from ...proxmox.options.values import MOST, Fields, invalid, items_of, number, text_of, whole_of
from .ha_options import HA, read_ha

Spec = dict[str, dict[str, t.Any]]

TYPES = {"affinity": True, "anti-affinity": False, "with": True, "apart": False}
"""The types of a rule between VMs, and whether it places them together. The last two are older names."""

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
MATCHES = ("Equal", "Exists")
EFFECTS = ("NoSchedule", "PreferNoSchedule")
HARD, SOFT = "do_not_schedule", "schedule_anyway"
WEIGHTS = (1, 100)
PRIORITIES = (-(10**9), 10**9)

# --- what a rule may say ---

SELECTOR: Spec = {
    "name": {"type": "str"},
    "tags": {"type": "list", "elements": "str"},
    "pool": {"type": "str"},
    "group": {"type": "str"},
}
AFFINITY: Spec = {
    "type": {"type": "str", "choices": list(TYPES), "required": True},
    "required": {"type": "bool", "default": True},
    "weight": {"type": "int"},
    "topology_key": {"type": "str", "default": "node", "no_log": False},
    "lasting": {"type": "bool"},
    **SELECTOR,
}
SPREAD: Spec = {
    "topology_key": {"type": "str", "required": True, "no_log": False},
    "max_skew": {"type": "int", "default": 1},
    "when_unsatisfiable": {"type": "str", "choices": [HARD, SOFT], "default": HARD},
    **SELECTOR,
}
EXPRESSION: Spec = {
    "key": {"type": "str", "required": True, "no_log": False},
    "operator": {"type": "str", "choices": list(OPERATORS), "required": True},
    "values": {"type": "list", "elements": "str"},
}
REQUIRED: Spec = {**EXPRESSION, "lasting": {"type": "bool"}}
PREFERRED: Spec = {**EXPRESSION, "weight": {"type": "int", "default": 1}}
TOLERATION: Spec = {
    "key": {"type": "str", "no_log": False},
    "operator": {"type": "str", "choices": list(MATCHES), "default": "Equal"},
    "value": {"type": "str"},
    "effect": {"type": "str", "choices": list(EFFECTS)},
}
DEMAND: Spec = {"cpu": {"type": "float"}, "memory": {"type": "int"}}
GROUP: Spec = {"name": {"type": "str", "required": True}, "min_available": {"type": "int"}}


def _list_of(options: Spec) -> dict[str, t.Any]:
    return {"type": "list", "elements": "dict", "options": options}


RULE_OPTIONS: t.Final[Spec] = {
    "affinity": _list_of(AFFINITY),
    "topology_spread": _list_of(SPREAD),
    "node_affinity": {
        "type": "dict",
        "options": {"required": _list_of(REQUIRED), "preferred": _list_of(PREFERRED)},
    },
    "tolerations": _list_of(TOLERATION),
    "ha": {"type": "dict", "options": HA},
    "group": {"type": "dict", "options": GROUP},
    "demand": {"type": "dict", "options": DEMAND},
    "priority": {"type": "str"},
    "scheduling_gates": {"type": "list", "elements": "str"},
    "profile": {"type": "str"},
}
"""The rules that one VM may have: at the top level, and in each entry of C(vms)."""


def parse_rules(
    params: Mapping[str, t.Any], *, prefix: str = "", priority_classes: Mapping[str, int] | None = None
) -> dict[str, t.Any]:
    """Return the fields of a Request that the rules among params give; what is not given is left out.

    prefix stands before the options' names in messages (C(vms[1].)). priority_classes are what
    C(parse_priority_classes) returns. Raises InvalidRequest, which names option, value and what was expected.
    """
    fields: dict[str, t.Any] = {}
    # Each with its name in messages.
    given = {name: (f"{prefix}{name}", params[name]) for name in RULE_OPTIONS if params.get(name) is not None}
    if (found := given.get("affinity")) is not None:
        fields["affinity"] = tuple(_affinity(Fields(*item, AFFINITY)) for item in items_of(*found))
    if (found := given.get("topology_spread")) is not None:
        fields["topology_spread"] = tuple(_spread(Fields(*item, SPREAD)) for item in items_of(*found))
    if (found := given.get("node_affinity")) is not None:
        body = Fields(*found, ("required", "preferred"))
        fields["node_required"] = tuple(_expression(item) for item in body.maps("required", REQUIRED))
        fields["node_preferred"] = tuple(_expression(item) for item in body.maps("preferred", PREFERRED))
    if (found := given.get("tolerations")) is not None:
        fields["tolerations"] = tuple(_toleration(Fields(*item, TOLERATION)) for item in items_of(*found))
    if (found := given.get("ha")) is not None:
        fields["ha"] = read_ha(Fields(*found, HA))
    if (found := given.get("group")) is not None:
        body = Fields(*found, GROUP)
        fields["gang"] = GangRef(body.require_text("name"), body.whole("min_available", 1, default=0))
    if (found := given.get("demand")) is not None:
        fields["demand"] = _demand(Fields(*found, DEMAND))
    if (found := given.get("priority")) is not None:
        fields["priority"] = _priority(*found, priority_classes or {})
    if (found := given.get("scheduling_gates")) is not None:
        fields["scheduling_gates"] = tuple(text_of(*item) for item in items_of(*found))
    if (found := given.get("profile")) is not None:
        fields["profile"] = text_of(*found)
    return fields


def _demand(body: Fields) -> dict[str, Demand]:
    """Return what the user states that a VM will use."""
    found = {}
    for key, unit in ((CPU, 1), (MEMORY, MIB)):
        if key in body:
            amount = float(number(body.path(key), body.body[key], 0, MOST))
            found[key] = Demand(STATED, (amount * unit,))
    return found


def parse_priority_classes(classes: t.Any) -> dict[str, int]:
    """Return the priority of each named class. Raises InvalidRequest."""
    if classes is None:
        return {}
    if not isinstance(classes, Mapping):
        raise invalid("priority_classes", classes, "a mapping of names to whole numbers")
    return {str(name): whole_of(f"priority_classes.{name}", value, *PRIORITIES) for name, value in classes.items()}


def selector_of(body: Fields) -> Selector:
    """Return the VMs that a rule selects. Raises InvalidRequest for a rule that selects none by anything."""
    if not any(key in body for key in SELECTOR):
        raise InvalidRequest(f"{body.where}: selects no VMs, expected at least one of {', '.join(SELECTOR)}")
    for key in ("name", "pool", "group"):
        # Ansible makes a text of a list, which is a pattern for one letter.
        if re.fullmatch(r"\[\s*(?:'.*'|\".*\")?\s*\]", str(body.body.get(key) or "")):
            raise invalid(
                body.path(key), body.body[key], "a text, not a list; for several names, a pattern: (web|db)-.*"
            )
    return Selector(
        name=body.pattern("name"),
        tags=frozenset(body.texts("tags")),
        pool=body.text("pool"),
        group=body.text("group"),
    )


def _affinity(body: Fields) -> AffinityTerm:
    """Return a rule between VMs. Raises InvalidRequest."""
    required = body.flag("required", True)
    if required and "weight" in body:
        raise invalid(body.path("weight"), body.body["weight"], "a weight only together with required: false")
    return AffinityTerm(
        together=TYPES[body.choice("type", tuple(TYPES))],
        selector=selector_of(body),
        required=required,
        topology_key=body.text("topology_key") or "node",
        weight=body.whole("weight", *WEIGHTS),
    )


def _spread(body: Fields) -> SpreadConstraint:
    """Return a constraint about the spread over domains. Raises InvalidRequest."""
    return SpreadConstraint(
        topology_key=body.require_text("topology_key", "the key of a node label, or node"),
        selector=selector_of(body),
        max_skew=body.whole("max_skew", 1),
        hard=body.choice("when_unsatisfiable", (HARD, SOFT), HARD) == HARD,
    )


def _expression(body: Fields) -> Expression:
    """Return an expression about a node's labels. Raises InvalidRequest."""
    operator = body.choice("operator", OPERATORS)
    values = body.texts("values")
    where = body.path("values")
    if operator in ("In", "NotIn") and not values:
        raise InvalidRequest(f"{where}: is missing, expected one value or more for operator {operator}")
    if operator in ("Exists", "DoesNotExist") and values:
        raise invalid(where, list(values), f"no values for operator {operator}")
    if operator in ("Gt", "Lt") and not (len(values) == 1 and re.fullmatch(r"-?\d{1,18}", values[0])):
        raise invalid(where, list(values), f"one whole number for operator {operator}")
    return Expression(
        key=body.require_text("key", "the key of a node label, or node"),
        operator=operator,
        values=values,
        weight=body.whole("weight", *WEIGHTS),
    )


def _toleration(body: Fields) -> Toleration:
    """Return a toleration. Raises InvalidRequest."""
    operator = body.choice("operator", MATCHES, "Equal")
    if operator == "Exists" and "value" in body:
        raise invalid(body.path("value"), body.body["value"], "no value for operator Exists")
    if operator == "Equal" and "key" not in body:
        raise InvalidRequest(
            f"{body.path('key')}: is missing, expected a taint's key, or operator: Exists for all keys"
        )
    return Toleration(
        key=body.text("key") or "",
        operator=operator,
        value=body.text("value") or "",
        effect=body.choice("effect", EFFECTS) if "effect" in body else "",
    )


def _priority(where: str, value: t.Any, classes: Mapping[str, int]) -> int:
    """Return the priority that a number or the name of a class stands for. Raises InvalidRequest."""
    if str(value) in classes:
        return classes[str(value)]
    if isinstance(value, str) and not re.fullmatch(r"-?\d+", value.strip()):
        names = ", ".join(sorted(classes)) or "none is defined"
        raise invalid(where, value, f"a whole number or the name of a priority class ({names}{hint(classes, value)})")
    return whole_of(where, value, *PRIORITIES)


# --- standing rules ---

STANDING_TYPES = ("affinity", "anti-affinity", "node-affinity")
BETWEEN_GUESTS: Spec = {
    "required": {"type": "bool"},
    "weight": {"type": "int"},
    "topology_key": {"type": "str", "no_log": False},
}
STANDING: Spec = {
    "type": {"type": "str", "choices": list(STANDING_TYPES), "required": True},
    "nodes": {"type": "list", "elements": "str"},
    **BETWEEN_GUESTS,
    **SELECTOR,
}


GUEST_RULE_OPTIONS: t.Final[Spec] = {
    "rules": {**_list_of(STANDING), "default": []},
    "tag_rules": {"type": "bool", "default": True},
}
"""The options for standing rules, which several modules share."""


def standing_rules(params: Mapping[str, t.Any]) -> StandingRules:
    """Return the rules of the options. Raises InvalidRequest, which names option, value and what was expected."""
    rules = [_standing_rule(Fields(where, body, STANDING)) for where, body in items_of("rules", params.get("rules"))]
    return StandingRules(params.get("tag_rules", True), tuple(rules))


def _standing_rule(body: Fields) -> StandingRule:
    """Return a rule of the option rules. Raises InvalidRequest."""
    kind = body.choice("type", STANDING_TYPES)
    selector = selector_of(body)
    if kind == "node-affinity":
        for key in BETWEEN_GUESTS:
            if key in body:
                raise invalid(body.path(key), body.body[key], "a rule of type affinity or anti-affinity")
        nodes = body.texts("nodes")
        if not nodes:
            raise InvalidRequest(f"{body.path('nodes')}: is missing, expected the nodes that the guests may be on")
        for number, pattern in enumerate(nodes):
            compile_option_pattern(f"{body.path('nodes')}[{number}]", pattern)
        return StandingRule(body.where, selector, nodes=nodes)
    if "nodes" in body:
        raise invalid(body.path("nodes"), body.body["nodes"], "a rule of type node-affinity")
    return StandingRule(body.where, selector, _affinity(body))


# --- facts of the nodes: labels, taints, reserves and overcommit ratios ---

FACTS = ("labels", "taints", "reserved", "overcommit")
OWN_NAME = "node"


def facts_of(nodes: t.Any) -> Callable[[Iterable[Node]], Mapping[str, Mapping[str, t.Any]]]:
    """Return a function that returns, for each node that something is said of, the fields of a Node.

    nodes maps names, or patterns that match names in full, to C(labels), C(taints), C(reserved) (C(memory) in MiB,
    C(cores)) and C(overcommit) (C(cpu), C(memory)). Where several speak of one node, labels and taints add up, and of
    contradicting values the last one written wins; a node's own name wins over every pattern.

    Raises InvalidRequest for a mistake that needs no cluster to be seen; the function raises it for a name or pattern
    that matches no node.
    """
    said = {} if nodes in (None, {}) else _read_facts(nodes)
    return lambda there: _facts_by_node(said, [node.name for node in there]) if said else {}


def _read_facts(nodes: t.Any) -> dict[str, dict[str, t.Any]]:
    """Return the fields that are said of nodes, by the name or pattern that says of which."""
    if not isinstance(nodes, Mapping):
        raise invalid("nodes", nodes, "a mapping of node names or patterns")
    for key in nodes:
        compile_option_pattern(f"nodes.{key}", str(key))
    return {str(key): _facts(Fields(f"nodes.{key}", body or {}, FACTS)) for key, body in nodes.items()}


def _facts_by_node(said: Mapping[str, Mapping[str, t.Any]], node_names: Collection[str]) -> dict[str, dict[str, t.Any]]:
    """Return the facts of each node, those under its own name last."""
    found: dict[str, dict[str, t.Any]] = {}
    # Sorting keeps the order in which patterns were written, and puts names after them.
    for key in sorted(said, key=lambda key: key in node_names):
        for name in _nodes_named(key, node_names):
            _merge_facts(found.setdefault(name, {}), said[key])
    return found


def _nodes_named(key: str, node_names: Collection[str]) -> list[str]:
    names = [key] if key in node_names else sorted(filter(name_pattern(key).matches, node_names))
    if not names:
        raise InvalidRequest(f"nodes: {key!r} matches no node; the cluster's nodes: {known_names(node_names, key)}")
    return names


def _facts(body: Fields) -> dict[str, t.Any]:
    """Return what is said of a node as fields of Node. Raises InvalidRequest."""
    facts: dict[str, t.Any] = {}
    if "labels" in body:
        facts["labels"] = labels_of(body.path("labels"), body.body["labels"])
    if "taints" in body:
        facts["taints"] = tuple(_taint(item) for item in body.maps("taints", ("key", "value", "effect")))
    if "reserved" in body:
        reserved = Fields(body.path("reserved"), body.body["reserved"], ("memory", "cores"))
        facts["reserved_cores"] = reserved.number("cores")
        memory = reserved.number("memory")
        facts["reserved_memory"] = None if memory is None else int(memory * MIB)
    if "overcommit" in body:
        overcommit = Fields(body.path("overcommit"), body.body["overcommit"], ("cpu", "memory"))
        facts["cpu_ratio"] = overcommit.number("cpu")
        facts["memory_ratio"] = overcommit.number("memory")
    return {field: value for field, value in facts.items() if value is not None}


def labels_of(where: str, labels: t.Any) -> dict[str, str]:
    """Return the labels that a user wrote, as texts. where is the option that has them. Raises InvalidRequest."""
    if not isinstance(labels, Mapping):
        raise invalid(where, labels, "a mapping of keys to texts")
    if OWN_NAME in labels:
        raise invalid(f"{where}.{OWN_NAME}", labels[OWN_NAME], "another key: this one is every node's own name")
    return {str(key): text_of(f"{where}.{key}", value) for key, value in labels.items()}


def _taint(body: Fields) -> Taint:
    return Taint(
        key=body.require_text("key", "the taint's key"),
        value=body.text("value") or "",
        effect=body.choice("effect", EFFECTS, "NoSchedule"),
    )


def _merge_facts(into: dict[str, t.Any], facts: Mapping[str, t.Any]) -> None:
    """Add facts to those of a node: labels and taints add up, another value replaces the earlier one."""
    for field, value in facts.items():
        if field == "labels":
            into[field] = {**into.get(field, {}), **value}
        elif field == "taints":
            into[field] = tuple(dict.fromkeys((*into.get(field, ()), *value)))
        else:
            into[field] = value
