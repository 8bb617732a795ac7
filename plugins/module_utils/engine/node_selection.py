# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes a request allows: by name, by pattern, by expressions over labels, or by taints. Pure functions.

Used by the filters that enforce it, and by rules that count only the nodes that the request allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ..errors import InvalidRequest
from ..model import Expression, Node, Request, Taint, Toleration
from .patterns.names import NamePattern, compile_option_pattern

NODE_KEY = "node"
"""The label that every node has: its own name."""

CLUSTER_KEY = "cluster"
"""The label that every node of a task about several clusters has: the name of its cluster."""

HARD = "NoSchedule"
SOFT = "PreferNoSchedule"
"""The effects of taints."""

REGEX_CONTEXT_KEY = "node.qemu-scheduler/regex"


def label(node: Node, key: str) -> str | None:
    """Return the node's value of the label key, or None if it has no such label."""
    return node.name if key == NODE_KEY else node.labels.get(key)


def matches(expression: Expression, node: Node) -> bool:
    """Whether an expression matches a node, by the rules of Kubernetes.

    In and NotIn compare with any of the values, NotIn and DoesNotExist match if the label is missing; Gt and Lt compare
    whole numbers and match nothing else.
    """
    value = label(node, expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _compare(value, expression.values, lambda left, right: left > right)
        case "Lt":
            return _compare(value, expression.values, lambda left, right: left < right)
        case operator:
            raise InvalidRequest(f"node_affinity: unknown operator {operator!r}")


def matches_all(expressions: Iterable[Expression], node: Node) -> bool:
    """Whether every expression holds for a node; without any, it does."""
    return all(matches(expression, node) for expression in expressions)


def wanted_regex(request: Request) -> str | None:
    """Return the pattern of node names that the request sets, by its option or in its context."""
    return request.node_regex or request.context.get(REGEX_CONTEXT_KEY)


def compile_node_regex(request: Request) -> NamePattern | None:
    """Return the same, compiled. Raises InvalidRequest."""
    text = wanted_regex(request)
    return None if text is None else compile_option_pattern("node_regex", text)


def node_matcher(request: Request) -> Callable[[Node], bool]:
    """Return a function that returns whether the request's C(node), pattern and required expressions allow a node."""
    pattern = compile_node_regex(request)

    def is_allowed(node: Node) -> bool:
        return (
            (request.node is None or request.node == node.name)
            and (pattern is None or pattern.matches(node.name))
            and matches_all(request.node_required, node)
        )

    return is_allowed


def untolerated_taints(tolerations: Sequence[Toleration], node: Node, effect: str) -> Iterator[Taint]:
    """Return the node's taints of that effect that none of the tolerations covers."""
    return (taint for taint in node.taints if taint.effect == effect and not is_tolerated(tolerations, taint))


def is_tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations covers the taint; empty keys and effects cover all."""
    return any(
        toleration.effect in ("", taint.effect)
        and toleration.key in ("", taint.key)
        and (toleration.operator == "Exists" or toleration.value == taint.value)
        for toleration in tolerations
    )


def _compare(value: str | None, limits: tuple[str, ...], holds: Callable[[int, int], bool]) -> bool:
    try:
        return value is not None and holds(int(value), int(limits[0]))
    except (ValueError, IndexError):
        return False
