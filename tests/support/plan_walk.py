# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carries out a plan in memory, in any order that it allows and with any number of steps at a time, and checks each
step against the law.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from law.law import InForce
from law.steps import broken_step

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Guest, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Creation, Move, Plan


@dataclass
class Walk:
    """The result of carrying out a plan.

    Attributes:
        snapshot: the cluster at the end.
        broken: the rules of the law that steps broke.
        peak: by node, the maximum memory in use at any time, with guests that are moving counted on both nodes.
    """

    snapshot: Snapshot
    broken: list[str] = field(default_factory=list)
    peak: dict[str, int] = field(default_factory=dict)


def walk(snapshot: Snapshot, plan: Plan, chance: random.Random, in_force: InForce | None = None) -> Walk:
    """Start and end the steps of a plan in a random order; each waits for the steps in its C(after)."""
    result = Walk(snapshot)
    waiting = {step.id: step for step in (*plan.moves, *plan.creations)}
    under_way: dict[int, Move | Creation] = {}
    ended: set[int] = set()
    while waiting or under_way:
        ready = [step for step in waiting.values() if ended.issuperset(step.after)]
        if ready and (not under_way or chance.random() < 0.6):
            step = chance.choice(ready)
            result.broken += broken_step(result.snapshot, under_way.values(), step, in_force)
            under_way[step.id] = waiting.pop(step.id)
            _note_peak(result, under_way)
        elif under_way:
            step = under_way.pop(chance.choice(sorted(under_way)))
            ended.add(step.id)
            result.snapshot = done(result.snapshot, step)
        else:
            result.broken.append(f"steps {sorted(waiting)} wait for each other")
            break
    return result


def done(snapshot: Snapshot, step: Move | Creation) -> Snapshot:
    """The cluster after a step."""
    if isinstance(step, Move):
        vmids = {step.vmid, *step.together}
        guests = tuple(replace(g, node=step.target) if g.vmid in vmids else g for g in snapshot.guests)
        return replace(snapshot, guests=guests)
    return replace(snapshot, guests=(*snapshot.guests, created(step)))


def created(step: Creation) -> Guest:
    decision, request = step.decision, step.decision.request
    return Guest(decision.vmid, request.name, decision.node, status="running", cores=request.cores,
                 memory=request.memory, tags=request.tags, pool=request.pool,
                 constraints=request.constraints)  # fmt: skip


def _note_peak(result: Walk, under_way: dict[int, Move | Creation]) -> None:
    used: dict[str, int] = dict.fromkeys((node.name for node in result.snapshot.nodes), 0)
    memory = {g.vmid: 0 if g.template else g.memory * g.running for g in result.snapshot.guests}
    node_of = {guest.vmid: guest.node for guest in result.snapshot.guests}
    for guest in result.snapshot.guests:
        used[guest.node] += memory[guest.vmid]
    for step in under_way.values():
        if isinstance(step, Move):
            vmids = [vmid for vmid in (step.vmid, *step.together) if node_of[vmid] != step.target]
            used[step.target] += sum(memory[vmid] for vmid in vmids)
        else:
            used[step.decision.node] += step.decision.request.memory
    for name, amount in used.items():
        result.peak[name] = max(result.peak.get(name, 0), amount)
