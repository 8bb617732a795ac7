# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts guests by topology domain, updated incrementally."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from ..model import Guest, Node
from .cache import NodeInfo
from .node_selection import NODE_KEY, label


class DomainCounts:
    """How many of the counted guests each domain of one topology key holds.

    Attributes:
        key: the topology key; nodes without this label belong to no domain.
        total: over all domains.
    """

    def __init__(self, key: str, counted: Callable[[Guest], bool]) -> None:
        self.key = key
        self.total = 0
        self._counted = counted
        self._guests: dict[str, dict[int, Guest]] = {}

    def count(self, node: Node) -> int:
        """The number of counted guests in the node's domain; 0 if it has no domain."""
        domain = node.name if self.key == NODE_KEY else node.labels.get(self.key)
        return 0 if domain is None else len(self._guests.get(domain, ()))

    def first(self, node: Node) -> Guest:
        """The guest that the node's domain has counted for the longest time. It must count one."""
        return next(iter(self._guests[label(node, self.key) or ""].values()))

    def fill(self, found: Iterable[tuple[Guest, NodeInfo]]) -> None:
        """Start with these guests and their nodes; all of them count."""
        for guest, info in found:
            domain = label(info.node, self.key)
            if domain is not None:
                self._guests.setdefault(domain, {})[guest.vmid] = guest
                self.total += 1

    def change(self, guest: Guest, node: Node, sign: int) -> int | None:
        """Count guest on node in (sign 1) or out (-1).

        Return how many its domain holds now, or None when the guest does not count.
        """
        domain = label(node, self.key)
        if domain is None or not self._counted(guest):
            return None
        self.total += sign
        guests = self._guests.setdefault(domain, {})
        if sign > 0:
            guests[guest.vmid] = guest
        else:
            guests.pop(guest.vmid, None)
        return len(guests)


class EvenCounts(DomainCounts):
    """The same over a fixed set of domains, of which the emptiest is always known.

    Attributes:
        lowest: the smallest number that any of the domains holds; 0 without domains.
    """

    def __init__(self, key: str, counted: Callable[[Guest], bool], domains: Iterable[str]) -> None:
        super().__init__(key, counted)
        self.lowest = 0
        self._guests = {domain: {} for domain in domains}

    def __len__(self) -> int:
        """How many domains there are."""
        return len(self._guests)

    def fill(self, found: Iterable[tuple[Guest, NodeInfo]]) -> None:
        """The nodes must be in the domains."""
        super().fill(found)
        self._find_lowest()

    def change(self, guest: Guest, node: Node, sign: int) -> int | None:
        """node must be in one of the domains."""
        after = super().change(guest, node, sign)
        if after is not None:
            self._find_lowest()
        return after

    def _find_lowest(self) -> None:
        self.lowest = min(map(len, self._guests.values()), default=0)


def nodes_by_domain(nodes: Iterable[NodeInfo], keys: Iterable[str]) -> Mapping[tuple[str, str], list[NodeInfo]]:
    """The nodes of each (key, domain), for keys that are labels; a node is alone in its domain of the key C(node)."""
    members: dict[tuple[str, str], list[NodeInfo]] = defaultdict(list)
    labels = sorted(set(keys) - {NODE_KEY})
    for info in nodes:
        for key in labels:
            domain = info.node.labels.get(key)
            if domain is not None:
                members[key, domain].append(info)
    return members
