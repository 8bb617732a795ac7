# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HA rules of a cluster, indexed by their members, with the decided VMs that join them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from ..model import Guest, HAIntent, HARule
from .ha_rules import RESOURCES, find_rule


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
        """The rule that a VM joins, if any, and all rules that may apply to the VM then: its own, those of the VMs in
        the same rules, and those of all VMs that positive rules keep together with one of these. The returned rules
        include the VM. Raises InvalidRequest.
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
        """The position of the rule or group that intent names; None if it names none."""
        for position in self._named.get(intent.joins or "", ()):
            if self._shown[position].from_group is (intent.rule is None):
                return position
        find_rule(self._shown, intent)
        return None
