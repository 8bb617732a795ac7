# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The law about relations to other guests: affinity, spread and the rules of the HA manager."""

from __future__ import annotations

import typing as t
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from ...model import AffinityTerm, Decision, Guest, Node, Selector
from ..patterns.names import name_pattern
from .state import State, asked_nodes, called, label, matches


def _guest(decision: Decision) -> Guest:
    """The VM as a rule about others sees it."""
    request = decision.request
    place = (decision.vmid, request.name, decision.node)
    return Guest(*place, status="assumed", tags=request.tags, pool=request.pool, constraints=request.constraints)


def _selects(selector: Selector, guest: Guest) -> bool:
    return (
        selector.pool in (None, guest.pool)
        and selector.group in (None, guest.group)
        and {tag.lower() for tag in selector.tags} <= {tag.lower() for tag in guest.tags}
        and (selector.name is None or (guest.name is not None and name_pattern(selector.name).matches(guest.name)))
    )


def _count(nodes: Mapping[str, Node], guests: Iterable[Guest], selector: Selector, key: str) -> Counter[str]:
    """How many of the guests are selected in each domain, over these nodes."""
    found = (label(nodes[guest.node], key) for guest in guests if guest.node in nodes and _selects(selector, guest))
    return Counter(domain for domain in found if domain is not None)


def affinity(state: State) -> Iterator[str]:
    """Decisions that break a required affinity or anti-affinity term."""
    under, nodes = state.under("VMAffinity"), {node.name: node for node in state.snapshot.nodes}
    there = [guest for guest in state.snapshot.guests if not guest.template]
    every = [_guest(decision) for decision, _in_force in state.decided]
    bound = [_guest(decision) for decision, _in_force in under]
    terms = {term for decision, _in_force in under for term in decision.request.affinity if term.required}
    before = {term: _count(nodes, there, term.selector, term.topology_key) for term in terms}
    beside = {
        term: _count(nodes, every if term.together else bound, term.selector, term.topology_key) for term in terms
    }
    kept: dict[AffinityTerm, set[str | None]] = defaultdict(set)
    for guest in there:
        for term in guest.constraints.affinity if guest.node in nodes else ():
            if term.required and not term.together:
                kept[term].add(label(nodes[guest.node], term.topology_key))
    first: Counter[frozenset[AffinityTerm]] = Counter()
    for me, (decision, _in_force) in zip(bound, under, strict=True):
        host = nodes.get(me.node, Node(me.node))
        domains = {term: label(host, term.topology_key) for term in {*terms, *kept}}
        required = [term for term in decision.request.affinity if term.required]
        near = {
            term: before[term][domain] + beside[term][domain] > _selects(term.selector, me)
            for term in required
            if (domain := domains[term]) is not None
        }
        keepers = [term for term in kept if domains[term] is not None and domains[term] in kept[term]]
        if any(near.get(term) and not term.together for term in required) or any(
            _selects(term.selector, me) for term in keepers
        ):
            yield f"{called(decision)}: is not apart from VMs that it must be apart from"
        together = frozenset(term for term in required if term.together)
        if not all(near.get(term) for term in together):
            # The first of its kind may be alone, where it is among those that it must be with.
            first[together] += 1
            kind = all(_selects(term.selector, me) and term in near and not before[term] for term in together)
            if first[together] > 1 or not kind:
                yield f"{called(decision)}: is not with the VMs that it must be with"


def spread(state: State) -> Iterator[str]:
    """Decisions that exceed the skew of a required spread constraint."""
    there = [guest for guest in state.snapshot.guests if not guest.template]
    everywhere = {node.name: node for node in state.snapshot.nodes}
    kinds: dict[tuple[t.Any, ...], list[Decision]] = defaultdict(list)
    for decision, _in_force in state.under("TopologySpread"):
        hard = tuple(constraint for constraint in decision.request.topology_spread if constraint.hard)
        kinds[hard, *asked_nodes(decision.request)].append(decision)
    for (hard, name, regex, required), decisions in kinds.items():
        nodes = {
            node.name: node
            for node in everywhere.values()
            if name in (None, node.name)
            and (not regex or name_pattern(regex).matches(node.name))
            and all(matches(expression, node) for expression in required)
            and all(label(node, constraint.topology_key) is not None for constraint in hard)
        }
        bound = [_guest(decision) for decision in decisions]
        theirs = set(map(id, decisions))
        free = [_guest(decision) for decision, _in_force in state.decided if id(decision) not in theirs]
        for constraint in hard:
            key = constraint.topology_key
            kept = _count(nodes, [*there, *bound], constraint.selector, key)
            # VMs that the constraint does not bind may have come later.
            late = _count(nodes, free, constraint.selector, key)
            domains = {label(node, key) or "" for node in nodes.values()}
            lowest = min((kept[domain] + late[domain] for domain in domains), default=0)
            for decision in decisions:
                domain = label(everywhere.get(decision.node, Node(decision.node)), key)
                if domain is None or kept[domain] - lowest > constraint.max_skew:
                    yield f"{called(decision)}: is not spread over {key} within {constraint.max_skew}"


def ha(state: State) -> Iterator[str]:
    """Decisions that the HA manager would undo by moving the VM."""
    rules = {rule.name: rule for rule in state.snapshot.ha_rules if not rule.disabled}
    before = {guest.vmid for guest in state.snapshot.guests}
    on: dict[str, set[int]] = defaultdict(set)
    for guest in (*state.snapshot.guests, *(_guest(decision) for decision, _in_force in state.decided)):
        on[guest.node].add(guest.vmid)
    members = {name: set(rule.vmids) for name, rule in rules.items()}
    bound: dict[str, dict[int, Decision]] = {name: {} for name in rules}
    for guest in state.snapshot.guests:
        joined = guest.constraints.ha.joins if guest.constraints.ha else None
        if joined in members:
            members[joined].add(guest.vmid)
    for decision, in_force in state.decided:
        intent = decision.request.ha
        for name, rule in rules.items() if intent is not None else ():
            joins = intent is not None and intent.joins == name
            if joins:
                members[name].add(decision.vmid)
            if "HARules" in in_force.rules and (joins or decision.request.vmid in rule.vmids):
                bound[name][decision.vmid] = decision
    positive = [members[name] for name, rule in rules.items() if rule.type == "resource-affinity" and rule.positive]
    for name, rule in rules.items():
        alone = []
        for vmid, decision in bound[name].items():
            here = on[decision.node] - {vmid}
            kept = _kept_together(positive, vmid)
            if rule.type == "node-affinity":
                own = [each for each in rules if rules[each].type == rule.type and vmid in bound[each]]
                if rule.strict and decision.node not in rule.nodes and own == [name]:
                    yield f"{called(decision)}: is not on a node of HA rule {name}"
            elif rule.positive and not here & kept:
                alone.append(decision)
            elif not rule.positive and here & (before | bound[name].keys()) & members[name] - kept:
                yield f"{called(decision)}: is not apart from the VMs of HA rule {name}"
        if len(alone) > (not members[name] & before):
            yield from (f"{called(decision)}: is not with the VMs of HA rule {name}" for decision in alone)


def _kept_together(positive: Iterable[set[int]], vmid: int) -> set[int]:
    """The VM and all that HA rules keep with it, directly or through others."""
    group = {vmid}
    while len(larger := group.union(*(members for members in positive if members & group))) > len(group):
        group = larger
    return group
