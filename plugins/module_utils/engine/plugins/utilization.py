# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes by the measured use of nodes: two scores and a filter."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...demand import CPU, MEMORY, Demand
from ...model import Request, demand_of
from ..cache import NodeInfo
from ..framework.interface import CycleState, Event, ScorePlugin, Setting, Subject
from ..framework.many_nodes import FilterOfMany, ScoreOfMany
from ..framework.status import Category, Status, unschedulable
from ..usual import usual_loads


class Utilization(ScoreOfMany):
    """Scores 100 for an idle node, 0 for one whose CPU and memory are fully in use and where tasks always wait. Off by
    default.

    The weighted mean of measured CPU use, memory use and pressure. Pressure is the fraction of time in which tasks on
    the node waited for CPU, memory or disk, the highest of the three, over the last five minutes. Reading it costs one
    API request per node and requires Sys.Audit there. A node that does not report it, as before Proxmox VE 9, is scored
    by CPU and memory only. Decided VMs that the measured use cannot include yet count with their full size, so that one
    run does not place all VMs on the same idle node.

    With C(history), the use is not that of the moment, but what the node did not exceed during 95 % of the last day, or
    what it used in the last hour if that is higher. Decided VMs count with what they will use: as their option
    C(demand) states, else by the use of up to five running VMs like them, else with their full size. VMs like a new one
    are those of its pool with its name but for digits; else the clones of its template that the task lists; else those
    with its tags, which a clone has from its template; else all of its pool. This costs one API request per node and
    one per such VM.
    """

    name = "Utilization"
    enabled = False
    bounded = True
    events = frozenset({Event.NODE, Event.GUEST})
    settings = {
        "cpu_weight": Setting("float", 1.0, "weight of CPU use within this score", minimum=0),
        "memory_weight": Setting("float", 1.0, "weight of memory use within this score", minimum=0),
        "pressure_weight": Setting(
            "float", 1.0, "weight of pressure within this score; with 0 it is not read", minimum=0
        ),
        "history": Setting("bool", False, "score by the use of the last day instead of the moment"),
    }

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        super().__init__(config)
        self.reads = frozenset({Subject.PRESSURE} if config["pressure_weight"] else ())
        self.reads |= frozenset({Subject.DEMAND} if config["history"] else ())

    def score_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[float]:
        loads = usual_loads(nodes) if self.config["history"] else [(None, None)] * len(nodes)
        return [self._score(node, *load) for node, load in zip(nodes, loads, strict=True)]

    def _score(self, node: NodeInfo, cpu: float | None, memory: float | None) -> float:
        """Return the score of a node by what it usually uses, as far as that is known, else by the moment."""
        host = node.node
        decided = [guest for guest in node.guests if guest.status == "assumed"] if cpu is None or memory is None else ()
        if cpu is None:
            cpu = host.cpu_used * host.cores + sum(demand_of(guest, CPU).usual for guest in decided)
        if memory is None:
            memory = host.memory_used + sum(demand_of(guest, MEMORY).usual for guest in decided)
        parts = [
            (self.config["cpu_weight"], _part(cpu, host.cores)),
            (self.config["memory_weight"], _part(memory, host.memory)),
        ]
        if host.pressure is not None:
            parts.append((self.config["pressure_weight"], host.pressure))
        total = sum(weight for weight, _used in parts)
        used = sum(weight * min(used, 1.0) for weight, used in parts) / total if total else 0.0
        return 100.0 * (1.0 - used)


class UsedLimit(FilterOfMany):
    """Rejects a node that would use more than C(most) of its CPU or memory with the VM. A node counts with the use that
    it did not exceed during 95 % of the last day, or with that of the last hour if it is higher. Off by default.

    The limits of allocation hold as well; this limit is for nodes whose CPU or memory is overcommitted.
    The VM counts with what it will use: a guest that is moved as measured, a new VM as its option C(demand) states,
    else by the use of up to five running VMs like it, as for Utilization, else with its full size. Guests that a plan
    moves are counted where they would be, and guests that were made or came within the last 90 minutes where they are,
    which the statistics do not show yet. No guest has to leave a node because of this rule; C(balance) with C(by: used)
    relieves nodes. A node or resource of which nothing is known is not rejected.

    Costs one API request per node, one per VM that is like a new one or was just started, and for plans that move
    guests one per running guest that may move. The requests require C(Sys.Audit) on the nodes and C(VM.Audit) on
    the guests.
    """

    name = "UsedLimit"
    enabled = False
    category = Category.PLACEMENT
    cure = "relieve other nodes, or raise most of UsedLimit"
    reads = frozenset({Subject.DEMAND})
    settings = {"most": Setting("float", 0.85, "fraction of a node's CPU and memory that may be used", minimum=0)}

    def filter_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[Status | None]:
        demands = demand_of(request, CPU), demand_of(request, MEMORY)
        return [
            next(self._refusals(demands, loads, node), None)
            for loads, node in zip(usual_loads(nodes), nodes, strict=True)
        ]

    def _refusals(self, demands: Iterable[Demand], loads: Iterable[float | None], node: NodeInfo) -> Iterator[Status]:
        most, sizes = self.config["most"], (node.node.cores, node.node.memory)
        for name, demand, used, size in zip(("CPU", "memory"), demands, loads, sizes, strict=True):
            if used is not None and size and demand.usual and (used + demand.usual) / size > most:
                yield unschedulable(
                    f"would use more than {most:.0%} of its {name}",
                    f"{(used + demand.usual) / size:.0%} with the VM, which counts as {demand.source}",
                )


def _part(used: float, capacity: float) -> float:
    return used / capacity if capacity else 1.0


FLOOR = 0.01
"""Use below this counts as this: an idle node must not score infinity."""


class NodeResource(ScorePlugin):
    """Scores 1 / (CPU use x memory use) by the measured use, each at least 0.01, relative to the best node, which gets
    100. Off by default.

    The measured use does not include VMs that were just placed: all VMs of a run see the same figures.
    """

    name = "NodeResource"
    enabled = False
    events = frozenset({Event.NODE})

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        memory_use = node.node.memory_used / node.node.memory if node.node.memory else 1.0
        return 1.0 / (max(node.node.cpu_used, FLOOR) * max(memory_use, FLOOR))

    def normalize(
        self, state: CycleState, request: Request, nodes: Sequence[NodeInfo], scores: list[float]
    ) -> list[float]:
        best = max(scores)
        return [100.0 * score / best for score in scores]
