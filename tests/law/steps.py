# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The law of moves: what must hold when a step of a plan starts while others are under way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    Decision,
    Guest,
    HAIntent,
    Request,
    Snapshot,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import LIVE, Creation, Move

from .law import InForce, arrived, broken

OF_NEW_VMS = frozenset({"Names", "DeviceClaims", "VolumeBinding", "TemplateLocality"})
"""Rules about what a new VM creates or claims, which a moving guest has already."""

BETWEEN_GUESTS = frozenset({"GuestLimit", "HARules", "TopologySpread", "VMAffinity"})
"""Rules that do not concern templates."""


def broken_step(
    state: Snapshot, in_flight: Iterable[Move | Creation], step: Move | Creation, in_force: InForce | None = None
) -> list[str]:
    """The reasons why the step must not start now, as sentences; empty if it may.

    state is the cluster with every guest on its current node, in_flight are the steps under way, which count on both
    nodes. in_force are the rules that apply to the step, all of them by default. Rules that keep guests together must
    hold after all moves, but not in between; those of the HA manager must always hold.
    """
    in_force = in_force or InForce()
    copies = [guest for each in in_flight for guest in _arriving(each, state)]
    if isinstance(step, Creation):
        decided = [(step.decision, in_force)]
    else:
        there = {guest.vmid: guest for guest in state.guests}
        gone = sorted({*step.vmids} - there.keys())
        if gone:
            return [f"guest {vmid} is not there" for vmid in gone]
        if there[step.vmid].node != step.source:
            return [f"guest {step.vmid} is on {there[step.vmid].node}, not on {step.source}"]
        lacking = [text for vmid in step.vmids for text in _lacking(there[vmid], step, state)]
        if lacking:
            return lacking
        undone = [text for vmid in step.vmids for text in _brought_back(there[vmid], step.target, state)]
        if undone:
            return undone
        decided = [_moved(there[vmid], step.target, state, in_force) for vmid in sorted({*step.vmids})]
    moving = {decision.vmid for decision, _in_force in decided}
    if any(guest.vmid in moving for guest in copies):
        return [f"guest {min(moving)} is under way already"]
    others = tuple(guest for guest in (*state.guests, *copies) if guest.vmid not in moving)
    return broken(replace(state, guests=others), decided)


def _brought_back(guest: Guest, target: str, state: Snapshot) -> list[str]:
    """Whether the HA manager brings a guest back from the target: it keeps those that run on the nodes that their
    node-affinity rule ranks highest, of those that are available, unless failback is off.
    """
    available = [node.name for node in state.nodes if node.online and not node.maintenance]
    for rule in state.ha_rules if guest.running and guest.ha_managed and guest.ha_state != "ignored" else ():
        if rule.type != "node-affinity" or rule.disabled or guest.vmid not in rule.vmids - rule.no_failback:
            continue
        ranks = {node: rule.nodes.get(node, 0) for node in available if (node in rule.nodes) is rule.positive}
        if ranks and ranks.get(target, min(ranks.values()) - 1) < max(ranks.values()):
            return [f"the HA manager would bring guest {guest.vmid} back because of HA rule {rule.name}"]
    return []


def _lacking(guest: Guest, step: Move, state: Snapshot) -> list[str]:
    """What the target lacks that a guest needs there: bridges; for a live move of a guest that sees the CPU of its
    node, the flags of that CPU.
    """
    nodes = {node.name: node for node in state.nodes}
    source, target, demands = nodes.get(guest.node), nodes.get(step.target), guest.demands
    if source is None or target is None or step.target == guest.node:
        return []
    known = (source.bridges or frozenset()) & demands.bridges
    missing = known - (known if target.bridges is None else target.bridges)
    if step.how == LIVE and demands.cpu_type in ("host", "max") and source.processor and target.processor:
        missing |= source.processor.flags - target.processor.flags
    return [f"{step.target} lacks what guest {guest.vmid} needs: {', '.join(sorted(missing))}"] if missing else []


def _arriving(step: Move | Creation, state: Snapshot) -> list[Guest]:
    """What will be on the target when the step has ended."""
    if isinstance(step, Creation):
        return [arrived(step.decision, state)]
    return [replace(guest, node=step.target) for guest in state.guests if guest.vmid in step.vmids]


def _moved(guest: Guest, target: str, state: Snapshot, in_force: InForce) -> tuple[Decision, InForce]:
    """The move of a guest as if it were a new VM like it; one that is off takes nothing unless stopped guests count,
    and a template nothing at all. With the rules that hold for it.
    """
    there, member = not guest.template, any(guest.vmid in rule.vmids for rule in state.ha_rules)
    rules = replace(
        guest.constraints,
        affinity=tuple(term for term in guest.constraints.affinity if not term.together),
        ha=guest.constraints.ha or (HAIntent() if member else None),
    )
    request = Request(
        guest.name or "", vmid=guest.vmid, tags=guest.tags, pool=guest.pool, cores_max=guest.cores,
        cores=guest.cores if there and (guest.running or in_force.cpu.include_stopped) else 0,
        memory=guest.memory if there and (guest.running or in_force.memory.include_stopped) else 0,
        cpu_type=guest.demands.cpu_type, cpu_flags=guest.demands.cpu_flags, named=guest.demands.named,
        **{each.name: getattr(rules, each.name) for each in fields(rules)},
    )  # fmt: skip
    exempt = OF_NEW_VMS if there else OF_NEW_VMS | BETWEEN_GUESTS
    return Decision(request, target, guest.vmid), replace(in_force, rules=in_force.rules - exempt)
