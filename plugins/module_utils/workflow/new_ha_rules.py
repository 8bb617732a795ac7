# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HA rules, or before Proxmox VE 9 HA groups, that a run makes with the VMs that join them.

The scheduler treats them as if they existed. Proxmox VE refuses a rule between VMs that has one member only: the second
VM that joins such a rule makes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..engine.ha_rules import RESOURCES
from ..engine.texts import known_names
from ..errors import InvalidRequest
from ..model import HAIntent, HARule, NewRule, Snapshot
from .job import Job, State


def with_new_rules(snapshot: Snapshot, jobs: Sequence[Job]) -> Snapshot:
    """Return the snapshot with the rules that the run would make. Existing VMs of the run that will join one are
    members.
    """
    made = {rule.name: rule for rule in snapshot.ha_rules}
    for job, intent, new in _jobs_with_new_rules(jobs):
        rule = made.get(intent.joins or "")
        if rule is None:
            rule = _rule(job, intent, new, snapshot)
        if rule.planned:
            vmids = rule.vmids | ({job.guest.vmid} if job.guest is not None else set())
            made[rule.name] = replace(rule, vmids=vmids)
    return replace(snapshot, ha_rules=tuple(made.values()))


def refusals(jobs: Sequence[Job], snapshot: Snapshot) -> Iterator[tuple[Job, InvalidRequest]]:
    """Yield the jobs whose VMs would wait without success for a second one to make their rule with, each with the
    error.
    """
    for rule in snapshot.ha_rules:
        if not rule.planned or rule.type != RESOURCES:
            continue
        named = [job for job, intent, _new in _jobs_with_new_rules(jobs) if intent.joins == rule.name]
        members = [job for job in named if _will_join(job)]
        if len(members) < 2:
            others = ", ".join(job.entry.label for job in named if job not in members)
            why = f"; {others} would join it with update=true" if others else "; request another VM in the same task"
            for job in members:
                text = f"ha.create: rule {rule.name!r} is between VMs, and needs two that join it{why}"
                yield job, InvalidRequest(f"{job.entry.label}: {text}", option="ha")


def _jobs_with_new_rules(jobs: Iterable[Job]) -> Iterator[tuple[Job, HAIntent, NewRule]]:
    """Yield the jobs about VMs that make their rule if it does not exist, each with what its task says of the rule."""
    for job in jobs:
        intent = job.entry.request.ha
        if job.entry.state != "absent" and intent is not None and intent.create is not None:
            yield job, intent, intent.create


def _will_join(job: Job) -> bool:
    changes = job.plan is not None and {"update", "finish"} & set(job.plan.actions)
    return job.error is None and (job.state is State.DECIDED or bool(changes))


def _rule(job: Job, intent: HAIntent, new: NewRule, snapshot: Snapshot) -> HARule:
    """Return the HA rule that a VM makes, as the engine knows rules. Raises InvalidRequest."""
    nodes = new.priorities
    existing = {node.name for node in snapshot.nodes}
    for name in sorted(nodes.keys() - existing):
        raise InvalidRequest(
            f"{job.entry.label}: ha.create.nodes: unknown node {name!r}, known: {known_names(existing, name)}"
        )
    return HARule(
        name=intent.joins or "",
        type=new.type,
        nodes=nodes,
        strict=new.strict,
        positive=new.positive,
        from_group=intent.rule is None,
        planned=True,
    )
