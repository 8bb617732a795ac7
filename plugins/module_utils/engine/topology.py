# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts guests by topology domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..model import Guest, Node
from .guest_index import GuestsByNode
from .node_selection import label


class DomainCounts:
    """How many of the selected guests each domain of one topology key holds.

    Attributes:
        key: the topology key; nodes without this label belong to no domain.
        total: over all domains.
        lowest: the smallest number that any of the domains holds; 0 without domains.
    """

    def __init__(self, key: str, selected: GuestsByNode, nodes: Iterable[Node]) -> None:
        """nodes make up the domains. Selected guests on other nodes are not counted."""
        self.key = key
        self._counts: dict[str, int] = {}
        self._held: dict[str, Mapping[int, Guest]] = {}
        for node in nodes:
            domain = label(node, key)
            if domain is None:
                continue
            there = selected.get(node.name)
            self._counts[domain] = self._counts.get(domain, 0) + (len(there) if there else 0)
            if there:
                self._held.setdefault(domain, there)
        self.total, self.lowest = sum(self._counts.values()), min(self._counts.values(), default=0)

    def __len__(self) -> int:
        """Return the number of domains."""
        return len(self._counts)

    def count(self, node: Node) -> int:
        """Return the number of counted guests in the node's domain; 0 if it has no domain."""
        domain = label(node, self.key)
        return 0 if domain is None else self._counts.get(domain, 0)

    def first_guest(self, node: Node) -> Guest:
        """Return one of the counted guests in the node's domain, whatever their order. There must be one."""
        held = self._held[label(node, self.key) or ""]
        return held[min(held)]
