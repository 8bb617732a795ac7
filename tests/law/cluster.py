# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster as the law sees it: sets and sums over its guests, to which every decision is added."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.patterns.names import name_pattern
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    Guest,
    Node,
    Selector,
    Snapshot,
    Storage,
)


class Cluster:
    """A cluster at one moment of a replay.

    Attributes:
        names: the names of VMs; names_on those on each node.
        vmids: the VMIDs of guests; on: the same by node; joined: those of guests that join an HA rule, by rule.
        cores, memory: their sums by node, of running guests (False) and of all (True).
        counts: the number of guests by node and tag, and by node (None).
        held: how often each device is taken, by node; used: the space that is taken of storages.
        repelled: the guests that must stay away, each as a topology key, its value and a selector.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.nodes = {node.name: node for node in snapshot.nodes}
        self.storages = {(storage.name, storage.node): storage for storage in snapshot.storages}
        self.devices = {(each.node, each.driver, each.mapping, each.id): each for each in snapshot.devices}
        self.guests: list[Guest] = []
        self.vmids: set[int] = set()
        self.on: dict[str, set[int]] = defaultdict(set)
        self.joined: dict[str | None, set[int]] = defaultdict(set)
        self.names: set[str | None] = set()
        self.names_on: defaultdict[str, set[str | None]] = defaultdict(set)
        self.cores: dict[tuple[str, bool], float] = defaultdict(float)
        self.memory: dict[tuple[str, bool], int] = defaultdict(int)
        self.counts: Counter[tuple[str, str | None]] = Counter()
        self.held: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self.used = Counter({place(storage): storage.used for storage in snapshot.storages})
        self.repelled: set[tuple[str, str, Selector]] = set()
        self._selected: dict[Selector, Counter[str]] = {}  # by node
        for guest in snapshot.guests:
            self.add(guest)

    def add(self, guest: Guest) -> None:
        """Count a guest. A template takes storage and devices, and no rule selects it."""
        node = guest.node
        self.vmids.add(guest.vmid)
        self.on[node].add(guest.vmid)
        if guest.constraints.ha is not None:
            self.joined[guest.constraints.ha.joins].add(guest.vmid)
        if guest.kind == "qemu" and guest.status != "assumed":
            self.names.add(guest.name)
            self.names_on[node].add(guest.name)
        for at, size in guest.storage_pending.items():
            if at in self.storages:
                self.used[place(self.storages[at])] += size
        self.held[node].update(guest.devices)
        if guest.template:
            return
        self.guests.append(guest)
        for tag in (None, *guest.tags):
            self.counts[node, tag] += 1
        for of_all in (True, False) if guest.running else (True,):
            self.cores[node, of_all] += guest.cores
            self.memory[node, of_all] += guest.memory
        for selector, counts in self._selected.items():
            counts[node] += selects(selector, guest)
        for term in guest.constraints.affinity if node in self.nodes else ():
            domain = label(self.nodes[node], term.topology_key)
            if term.required and not term.together and domain is not None:
                self.repelled.add((term.topology_key, domain, term.selector))

    def selected(self, selector: Selector, key: str, nodes: Iterable[Node] | None = None) -> Counter[str | None]:
        """How many guests are selected in each domain of a label, over some nodes, by default all."""
        if selector not in self._selected:
            self._selected[selector] = Counter(guest.node for guest in self.guests if selects(selector, guest))
        domains: Counter[str | None] = Counter()
        for node in self.nodes.values() if nodes is None else nodes:
            if (domain := label(node, key)) is not None:
                domains[domain] += self._selected[selector][node.name]
        return domains


def selects(selector: Selector, guest: Guest) -> bool:
    """Whether a guest has all that a selector asks for. In tags, upper and lower case are the same."""
    return (
        selector.pool in (None, guest.pool)
        and selector.group in (None, guest.group)
        and {tag.lower() for tag in selector.tags} <= {tag.lower() for tag in guest.tags}
        and (selector.name is None or (guest.name is not None and name_pattern(selector.name).matches(guest.name)))
    )


def label(node: Node, key: str) -> str | None:
    """The node's label; its name is one, too."""
    return node.name if key == "node" else node.labels.get(key)


def place(storage: Storage) -> tuple[str, str]:
    """The name of a storage and its node; nodes share a shared one."""
    return storage.name, "" if storage.shared else storage.node
