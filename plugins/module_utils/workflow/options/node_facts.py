# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the user says of the nodes, and Proxmox does not know: labels, taints, reserves and overcommit ratios."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping

from ...engine.patterns.names import checked_pattern, name_pattern
from ...engine.texts import known
from ...errors import InvalidRequest
from ...model import MIB, Node, Taint
from ...proxmox.options.values import Fields, invalid, text_of
from .rules import EFFECTS

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
    said = _read(nodes)
    return lambda there: _by_node(said, [node.name for node in there])


def _read(nodes: t.Any) -> dict[str, dict[str, t.Any]]:
    """The fields that are said of nodes, by the name or pattern that says of which."""
    if nodes is None:
        return {}
    if not isinstance(nodes, Mapping):
        raise invalid("nodes", nodes, "a mapping of node names or patterns")
    for key in nodes:
        checked_pattern(f"nodes.{key}", str(key))
    return {str(key): _facts(Fields(f"nodes.{key}", body or {}, FACTS)) for key, body in nodes.items()}


def _by_node(said: Mapping[str, Mapping[str, t.Any]], node_names: Collection[str]) -> dict[str, dict[str, t.Any]]:
    found: dict[str, dict[str, t.Any]] = {}
    # Sorting keeps the order in which patterns were written, and puts names after them.
    for key in sorted(said, key=lambda key: key in node_names):
        for name in _named(key, node_names):
            _merge(found.setdefault(name, {}), said[key])
    return found


def _named(key: str, node_names: Collection[str]) -> list[str]:
    names = [key] if key in node_names else sorted(filter(name_pattern(key).matches, node_names))
    if not names:
        raise InvalidRequest(f"nodes: {key!r} matches no node; the cluster's nodes: {known(node_names, key)}")
    return names


def _facts(body: Fields) -> dict[str, t.Any]:
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
    """Labels as a user writes them. where is the option that has them. Raises InvalidRequest."""
    if not isinstance(labels, Mapping):
        raise invalid(where, labels, "a mapping of keys to texts")
    if OWN_NAME in labels:
        raise invalid(f"{where}.{OWN_NAME}", labels[OWN_NAME], "another key: this one is every node's own name")
    return {str(key): text_of(f"{where}.{key}", value) for key, value in labels.items()}


def _taint(body: Fields) -> Taint:
    return Taint(
        key=body.needed("key", "the taint's key"),
        value=body.text("value") or "",
        effect=body.choice("effect", EFFECTS, "NoSchedule"),
    )


def _merge(into: dict[str, t.Any], facts: Mapping[str, t.Any]) -> None:
    for field, value in facts.items():
        if field == "labels":
            into[field] = {**into.get(field, {}), **value}
        elif field == "taints":
            into[field] = tuple(dict.fromkeys((*into.get(field, ()), *value)))
        else:
            into[field] = value
