# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Indexes of the guests that a rule selects, and of the rules that concern a VM, so that not all have to be compared.

Guests and anti-affinity rules are looked up by handles: one tag, name, group or pool that a selector requires.
Selectors that have only a name pattern are compared with every guest.
"""

from __future__ import annotations

import typing as t
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..model import AffinityTerm, Guest, HAIntent, HARule, Request, Selector
from .ha_rules import RESOURCES, find_rule
from .selectors import Handle, handle_of, handles, handles_of_request, may_select, selects, selects_request

GuestsByNode: t.TypeAlias = Mapping[str, Mapping[int, Guest]]
"""Guests by the name of their node and by VMID, in the order in which they came."""

SELECTORS_KEPT = 1024
"""For how many selectors the selected guests are kept."""

CHANGES_KEPT = 10_000
"""How many guests that came or left are kept, before all selectors are looked for again."""


@dataclass(slots=True, eq=False)
class Selected:
    """The guests that a selector selects, and how many of the changes that has seen."""

    found: dict[str, dict[int, Guest]]
    seen: int


@dataclass(slots=True, eq=False)
class GuestIndex:
    """The guests by their handles and by the selectors that were used. Built on first use, and brought up to date when
    it is used again: of many selectors that take turns, each is compared with the guests since its last turn only.
    """

    _guests: Mapping[int, Guest]
    _by: defaultdict[Handle, dict[int, Guest]] | None = None
    _selected: dict[Selector, Selected] = field(default_factory=dict)
    _changes: list[tuple[Guest, int]] = field(default_factory=list)

    def select(self, selector: Selector) -> GuestsByNode:
        """Return the guests that the selector selects, until guests come or leave."""
        kept, candidates = self._selected.get(selector), self._candidates(selector)
        if kept is None or len(self._changes) - kept.seen > len(candidates):
            kept = Selected({}, len(self._changes))
            changes: Iterable[tuple[Guest, int]] = ((guest, 1) for guest in candidates)
            if selector in self._selected or len(self._selected) < SELECTORS_KEPT:
                self._selected[selector] = kept
        else:
            changes, kept.seen = self._changes[kept.seen :], len(self._changes)
        for guest, sign in changes:
            if may_select(selector, guest.name) and selects(selector, guest):
                _count(kept.found, guest, sign)
        return kept.found

    def count(self, guest: Guest, sign: int) -> None:
        """Note that a guest came (sign 1) or left (-1)."""
        if self._selected:
            self._changes.append((guest, sign))
        if len(self._changes) > CHANGES_KEPT:
            self._selected, self._changes = {}, []
        if self._by is not None:
            self._count_handles(self._by, guest, sign)

    def _candidates(self, selector: Selector) -> Collection[Guest]:
        """Return a superset of the guests that the selector selects."""
        handle = handle_of(selector)
        if handle is None:
            return self._guests.values()
        if self._by is None:
            self._by = defaultdict(dict)
            for guest in self._guests.values():
                self._count_handles(self._by, guest, 1)
        return self._by[handle].values() if handle in self._by else ()

    @staticmethod
    def _count_handles(by: defaultdict[Handle, dict[int, Guest]], guest: Guest, sign: int) -> None:
        for handle in handles(guest.name, guest.tags, guest.pool, guest.group):
            if sign > 0:
                by[handle][guest.vmid] = guest
            else:
                by[handle].pop(guest.vmid, None)


def _count(by_node: dict[str, dict[int, Guest]], guest: Guest, sign: int) -> None:
    if sign > 0:
        by_node.setdefault(guest.node, {})[guest.vmid] = guest
    else:
        by_node.get(guest.node, {}).pop(guest.vmid, None)


class RepellingTerms(dict[AffinityTerm, dict[str, dict[int, Guest]]]):
    """The known required anti-affinity terms of guests, each with the guests that have it, as in GuestsByNode."""

    def __init__(self) -> None:
        super().__init__()
        self._by: defaultdict[Handle | None, dict[AffinityTerm, None]] = defaultdict(dict)

    def count(self, guest: Guest, sign: int) -> None:
        """Note that a guest came (sign 1) or left (-1)."""
        for term in dict.fromkeys(repelling_terms(guest.constraints.affinity)):
            held, alike = self.setdefault(term, {}), self._by[handle_of(term.selector)]
            _count(held, guest, sign)
            alike[term] = None
            if not any(held.values()):
                del self[term], alike[term]

    def terms_against(self, request: Request) -> list[AffinityTerm]:
        """Return the terms that repel this request. They include its own terms even if no guest has them yet, so that
        the first of several equal VMs is treated like the others.
        """
        found = [term for term in repelling_terms(request.affinity) if selects_request(term.selector, request)]
        if self:
            for handle in (None, *handles_of_request(request)):
                alike = [term for term in self._by.get(handle, ()) if may_select(term.selector, request.name)]
                found += [term for term in alike if selects_request(term.selector, request)]
        return list(dict.fromkeys(found))


def repelling_terms(terms: Collection[AffinityTerm]) -> list[AffinityTerm]:
    """Return the required anti-affinity terms among terms."""
    return [term for term in terms if term.required and not term.together]


class RuleIndex:
    """Finds the rules of one VM without going through all rules. The cache keeps it up to date."""

    def __init__(self, rules: Iterable[HARule]) -> None:
        self._shown = tuple(rules)
        self._rules = list(self._shown)
        self._named: dict[str, list[int]] = defaultdict(list)
        self._of: dict[int, set[int]] = defaultdict(set)
        self._joined: dict[int, set[int]] = defaultdict(set)
        for position, rule in enumerate(self._rules):
            self._named[rule.name].append(position)
            for vmid in rule.vmids:
                self._of[vmid].add(position)

    def count(self, guest: Guest, sign: int) -> None:
        """Note that a decided VM joins the rule that it names (sign 1), or no longer does (-1)."""
        intent = guest.constraints.ha
        for position in self._named.get(intent.joins, ()) if intent is not None and intent.joins is not None else ():
            (self._joined[position].add if sign > 0 else self._joined[position].discard)(guest.vmid)
            rule = self._shown[position]
            self._rules[position] = replace(rule, vmids=rule.vmids | self._joined[position])
            if guest.vmid not in rule.vmids:
                (self._of[guest.vmid].add if sign > 0 else self._of[guest.vmid].discard)(position)

    def with_vm(self, vmid: int, intent: HAIntent) -> tuple[HARule | None, list[HARule]]:
        """Return the rule that a VM joins, if any, and all rules that may apply to the VM then: its own, those of the
        VMs in the same rules, and those of all VMs that positive rules keep together with one of these. The returned
        rules include the VM. Raises InvalidRequest.
        """
        position = self._position(intent)
        found: set[int] = set()
        joined: HARule | None = None
        if position is not None:
            joined = replace(self._rules[position], vmids=self._rules[position].vmids | {vmid})
            found.add(position)
        waiting = {vmid} | (joined.vmids if joined is not None and joined.type == RESOURCES else frozenset())
        seen = set(waiting)
        while waiting:
            for other in self._of.get(waiting.pop(), set()) - found:
                found.add(other)
                rule = self._rules[other]
                if rule.type == RESOURCES and rule.positive:
                    waiting |= rule.vmids - seen
                    seen |= rule.vmids
        return joined, [joined if at == position and joined else self._rules[at] for at in sorted(found)]

    def _position(self, intent: HAIntent) -> int | None:
        """Return the position of the rule or group that intent names; None if it names none."""
        for position in self._named.get(intent.joins or "", ()):
            if self._shown[position].from_group is (intent.rule is None):
                return position
        find_rule(self._shown, intent)
        return None
