# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules that apply to guests whether or not a run requests these guests: the rules of their tags, and those that a task
lists.
"""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ..errors import InvalidRequest
from ..model import AffinityTerm, Constraints, Expression, Guest, Node, Request, Selector, Snapshot
from .node_selection import NODE_KEY
from .patterns.names import name_pattern
from .selectors import selects, selects_request
from .texts import known_names

AFFINITY = "plb_affinity_"
ANTI_AFFINITY = "plb_anti_affinity_"
PIN = "plb_pin_"
IGNORE = "plb_ignore"


def ignoring_tag(tags: Iterable[str]) -> str | None:
    """Return the tag that keeps a guest from being moved, or None."""
    return next((tag for tag in sorted(tags) if tag.lower() == IGNORE or tag.lower().startswith(f"{IGNORE}_")), None)


def terms_of(tags: Iterable[str]) -> tuple[AffinityTerm, ...]:
    """Return the affinity rules of a guest with these tags, in the order of the tags."""
    terms = []
    for tag in sorted(tag.lower() for tag in tags):
        for prefix, together in ((AFFINITY, True), (ANTI_AFFINITY, False)):
            if tag.startswith(prefix) and len(tag) > len(prefix):
                terms.append(AffinityTerm(together, Selector(tags=frozenset({tag}))))
    return tuple(terms)


def pins_of(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the nodes that the tags pin a guest to, in lower case."""
    pins = (tag.lower().removeprefix(PIN) for tag in tags if tag.lower().startswith(PIN))
    return tuple(sorted(pin for pin in pins if pin))


def without_pin(guest: Guest, nodes: Collection[str]) -> Guest:
    """Return the guest without the rule of its tags that pins it to these nodes alone."""
    pins = set(pins_of(guest.tags))
    if not pins or not pins <= {name.lower() for name in nodes}:
        return guest
    rules = guest.constraints.node_required
    kept = tuple(
        rule
        for rule in rules
        if (rule.key, rule.operator) != (NODE_KEY, "In") or {name.lower() for name in rule.values} != pins
    )
    return replace(guest, constraints=replace(guest.constraints, node_required=kept))


_Expressions = tuple[Expression, ...]


class StandingRule(t.NamedTuple):
    """One rule of a task.

    Attributes:
        where: what messages call it, for example C(rules[0]).
        selector: the guests and new VMs that the rule applies to.
        term: the VMs that they must be with, or apart from; None for a rule about nodes.
        nodes: names of nodes, or patterns that match whole names: the guests must be on one of these nodes.
    """

    where: str
    selector: Selector
    term: AffinityTerm | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StandingRules:
    """All rules that apply in addition to those of the requests. tags tells whether tags are read as rules."""

    tags: bool = True
    rules: tuple[StandingRule, ...] = ()

    def add_to_guests(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with these rules added to the constraints of its guests.

        A pin to a node that the cluster does not have is left out: the node may have been removed since. Raises
        InvalidRequest for a listed rule about unknown nodes.
        """
        rules = [(rule, self._expressions(rule, snapshot.nodes)) for rule in self.rules]
        if not rules and not (self.tags and any(guest.tags for guest in snapshot.guests)):
            return snapshot
        names = _by_lower_case(snapshot.nodes)
        guests = []
        for guest in snapshot.guests:
            own = [bound for bound in rules if selects(bound[0].selector, guest)]
            terms, expressions = self._of(guest.tags, names, own)
            if terms or expressions:
                guest = replace(guest, constraints=merge_constraints(guest.constraints, terms, expressions))
            guests.append(guest)
        return replace(snapshot, guests=tuple(guests))

    def add_to_request(self, request: Request, nodes: Collection[Node]) -> Request:
        """Return the request with these rules. Raises InvalidRequest for a rule or a pin about unknown nodes."""
        own = [(rule, self._expressions(rule, nodes)) for rule in self.rules if selects_request(rule.selector, request)]
        if not own and not (self.tags and request.tags):
            return request
        names = _by_lower_case(nodes)
        unknown = [pin for pin in pins_of(request.tags) if pin not in names] if self.tags else []
        if unknown:
            raise InvalidRequest(
                f"tags: {PIN}{unknown[0]} names no node of the cluster; its nodes: "
                f"{known_names(names.values(), unknown[0])}"
            )
        terms, expressions = self._of(request.tags, names, own)
        if not terms and not expressions:
            return request
        found = merge_constraints(request.constraints, terms, expressions)
        return replace(request, affinity=found.affinity, node_required=found.node_required)

    def _of(
        self, tags: Iterable[str], names: Mapping[str, str], rules: Iterable[tuple[StandingRule, _Expressions]]
    ) -> tuple[list[AffinityTerm], list[Expression]]:
        """Return the affinity terms and node expressions that tags and rules impose on one guest or request."""
        terms: list[AffinityTerm] = []
        expressions: list[Expression] = []
        if self.tags:
            terms += terms_of(tags)
            pins = tuple(names[pin] for pin in pins_of(tags) if pin in names)
            expressions += [Expression(NODE_KEY, "In", pins)] if pins else []
        for rule, about_nodes in rules:
            terms += [rule.term] if rule.term else []
            expressions += about_nodes
        return terms, expressions

    @staticmethod
    def _expressions(rule: StandingRule, nodes: Collection[Node]) -> _Expressions:
        """Return the node expressions of a rule about nodes."""
        if not rule.nodes:
            return ()
        names = sorted(node.name for node in nodes)
        found: set[str] = set()
        for number, wanted in enumerate(rule.nodes):
            matching = [wanted] if wanted in names else list(filter(name_pattern(wanted).matches, names))
            if not matching:
                where = f"{rule.where}.nodes[{number}]"
                raise InvalidRequest(
                    f"{where}: {wanted!r} matches no node; the cluster's nodes: {known_names(names, wanted)}"
                )
            found.update(matching)
        return (Expression(NODE_KEY, "In", tuple(sorted(found))),)


def merge_constraints(
    given: Constraints, terms: Iterable[AffinityTerm], expressions: Iterable[Expression]
) -> Constraints:
    """Return the constraints with these rules, each of them once."""
    return replace(
        given,
        affinity=tuple(dict.fromkeys((*given.affinity, *terms))),
        node_required=tuple(dict.fromkeys((*given.node_required, *expressions))),
    )


def _by_lower_case(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the nodes' names by their spelling in tags."""
    return {node.name.lower(): node.name for node in nodes}
