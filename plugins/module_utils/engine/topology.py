# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts guests by topology domain."""

from __future__ import annotations

from collections.abc import Iterable

from ..model import Guest, Node
from .cache import NodeInfo
from .node_selection import label


class DomainCounts:
    """How many of the counted guests each domain of one topology key holds.

    Attributes:
        key: the topology key; nodes without this label belong to no domain.
        total: over all domains.
        lowest: the smallest number that any of the domains holds; 0 without domains.
    """

    def __init__(self, key: str, counted: Iterable[tuple[Guest, NodeInfo]], domains: Iterable[str] = ()) -> None:
        """counted are the guests with their nodes; domains are those that matter even if they hold none of them."""
        self.key = key
        self._guests: dict[str, list[Guest]] = {domain: [] for domain in domains}
        for guest, info in counted:
            domain = label(info.node, key)
            if domain is not None:
                self._guests.setdefault(domain, []).append(guest)
        sizes = [len(guests) for guests in self._guests.values()]
        self.total, self.lowest = sum(sizes), min(sizes, default=0)

    def __len__(self) -> int:
        """The number of domains."""
        return len(self._guests)

    def count(self, node: Node) -> int:
        """The number of counted guests in the node's domain; 0 if it has no domain."""
        domain = label(node, self.key)
        return 0 if domain is None else len(self._guests.get(domain, ()))

    def first(self, node: Node) -> Guest:
        """One of the counted guests in the node's domain. There must be one."""
        return self._guests[label(node, self.key) or ""][0]
