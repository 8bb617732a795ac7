# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster as the law sees it: sets and sums over its guests, to which every decision is added."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable

from ...model import Guest, Node, Selector, Snapshot, Storage
from ..patterns.names import name_pattern


class Cluster:
    """A cluster at one moment of a replay.

    Attributes:
        names: the names of VMs.
        there: the VMIDs of guests; on: the same by node; joined: those that join an HA rule, by rule.
        vcpus, memory: their sums by node, for running guests and for all.
        counts: the number of guests by node and tag, and by node.
        used: the space that is taken of storages.
        held: how often devices are taken, by node.
        repelled: the selectors of the guests that must stay away, by topology key and domain.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.nodes = {node.name: node for node in snapshot.nodes}
        self.storages = {(storage.name, storage.node): storage for storage in snapshot.storages}
        self.devices = {(each.node, each.driver, each.mapping, each.id): each for each in snapshot.devices}
        self.guests: list[Guest] = []
        self.names: set[str | None] = set()
        self.there: set[int] = set()
        self.on: dict[str, set[int]] = defaultdict(set)
        self.joined: dict[str | None, set[int]] = defaultdict(set)
        self.vcpus: dict[tuple[str, bool], float] = defaultdict(float)
        self.memory: dict[tuple[str, bool], int] = defaultdict(int)
        self.counts: dict[tuple[str, str | None], int] = defaultdict(int)
        self.used = Counter({place(storage): storage.used for storage in snapshot.storages})
        self.held: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self.repelled: dict[str, dict[str, set[Selector]]] = defaultdict(lambda: defaultdict(set))
        self._tallies: dict[Hashable, Tally] = {}
        for guest in snapshot.guests:
            self.add(guest)

    def add(self, guest: Guest) -> None:
        """Count a guest. A template takes storage and devices, and no rule selects it."""
        node = guest.node
        self.there.add(guest.vmid)
        self.on[node].add(guest.vmid)
        if guest.kind == "qemu" and guest.status != "assumed":
            self.names.add(guest.name)
        if guest.constraints.ha is not None:
            self.joined[guest.constraints.ha.joins].add(guest.vmid)
        for at, size in guest.storage_pending.items():
            if at in self.storages:
                self.used[place(self.storages[at])] += size
        if guest.devices:
            self.held[node].update(guest.devices)
        if guest.template:
            return
        self.guests.append(guest)
        for tag in (None, *guest.tags):
            self.counts[node, tag] += 1
        for stopped_too in (True, False) if guest.running else (True,):
            self.vcpus[node, stopped_too] += guest.cores
            self.memory[node, stopped_too] += guest.memory
        for tally in self._tallies.values():
            tally.add(guest)
        for term in guest.constraints.affinity if node in self.nodes else ():
            domain = label(self.nodes[node], term.topology_key)
            if term.required and not term.together and domain is not None:
                self.repelled[term.topology_key][domain].add(term.selector)

    def selected(
        self, selector: Selector, key: str, allowed: Callable[[Node], bool] = bool, known_as: Hashable = None
    ) -> Counter[str | None]:
        """How many guests are selected in each domain of a label, over the nodes that are allowed. known_as tells these
        from others; by default all are allowed.
        """
        tally = self._tallies.get((selector, key, known_as))
        if tally is None:
            tally = self._tallies[selector, key, known_as] = Tally(selector, key, filter(allowed, self.nodes.values()))
            for guest in self.guests:
                tally.add(guest)
        return tally.found


class Tally:
    """How many guests are selected in each domain of a label, over some nodes."""

    def __init__(self, selector: Selector, key: str, nodes: Iterable[Node]) -> None:
        self._selector = selector
        self._domains = {node.name: domain for node in nodes if (domain := label(node, key)) is not None}
        self.found: Counter[str | None] = Counter(dict.fromkeys(self._domains.values(), 0))

    def add(self, guest: Guest) -> None:
        if guest.node in self._domains and selects(self._selector, guest):
            self.found[self._domains[guest.node]] += 1


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
