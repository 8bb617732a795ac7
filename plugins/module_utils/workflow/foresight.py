# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Foresees what Proxmox VE would refuse, before the first write, by a few additional reads."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..engine.texts import NAMED_KINDS, known_names
from ..errors import CollectionError, InvalidRequest, PermissionDenied
from ..model import Node, Snapshot
from ..proxmox.api.reader import Reader, ReadOnce
from ..proxmox.options.drives import volumes_of
from ..proxmox.options.request import cards_in, create_parameters, names_in
from .access import Access
from .job import Job, State
from .pools import unknown_pool


def foresee(jobs: Sequence[Job], access: Access, snapshot: Snapshot) -> Iterator[tuple[Job, CollectionError]]:
    """Yield the jobs that Proxmox VE would refuse as far as that can be foreseen, and why. Reads only if a VM is to be
    created or updated. snapshot is that of Foresight.
    """
    if any(rule.planned for rule in snapshot.ha_rules):
        from .new_ha_rules import refusals

        yield from refusals(jobs, snapshot)
    if any(job.is_made_or_updated for job in jobs):
        foresight = Foresight(access, ReadOnce(access.reader), snapshot)
        for job in jobs:
            objection = foresight.objection(job)
            if objection is not None:
                yield job, objection


@dataclass(frozen=True, slots=True)
class Foresight:
    """Checks what a run is about to do against the cluster.

    Attributes:
        access: to the cluster, for bridges and rights.
        reader: should cache responses: many VMs name the same images.
        snapshot: the cluster before any decision, with what the plugins have read.
    """

    access: Access
    reader: Reader
    snapshot: Snapshot

    def objection(self, job: Job) -> CollectionError | None:
        """Return why Proxmox VE would refuse a job, if that can be foreseen. Warns of problems that it would accept."""
        plan = job.plan
        try:
            if job.state is State.DECIDED and job.decision is not None:
                request, node = job.decision.request, job.decision.node
                problem = unknown_pool(self.reader, self.snapshot, request.pool) if request.pool else None
                if problem is not None:
                    raise InvalidRequest(f"{job.entry.label}: {problem}", option="pool")
                parameters = create_parameters(request, job.decision)
                job.warnings.extend(self._check(job.entry.label, node, parameters, runs=request.running))
            elif plan is not None and "update" in plan.actions:
                self.access.check_rights({**dict.fromkeys(plan.changes.unset, ""), **plan.changes.parameters})
                runs = plan.status_after == "running"
                plan.cautions.extend(self._check(job.entry.label, plan.guest.node, plan.changes.parameters, runs=runs))
        except (InvalidRequest, PermissionDenied) as error:
            return error
        return None

    def _check(self, label: str, node: str, parameters: Mapping[str, t.Any], *, runs: bool) -> list[str]:
        """Return warnings about what a node lacks. Raises InvalidRequest for parameters that it would refuse."""
        host = next((each for each in self.snapshot.nodes if each.name == node), None)
        if host is None:
            return []
        for text in self._missing_volumes(host, parameters):
            raise InvalidRequest(f"{label}: {text}")
        lacking = [f"{label}: {text}" for text in self._missing_bridges(host, parameters)]
        unsure = []
        for option, kind, name, there in self._resources_in(host, parameters):
            what = f"{NAMED_KINDS[kind]} {name!r}"
            if there is False:
                lacking.append(f"{label}: {option}: there is no {what} on {node}, or this user may not use it")
            elif there is None:
                right = "; that takes Datastore.Allocate on its storage" if kind == "snippet" else ""
                unsure.append(f"{label}: {option}: it is not known whether {node} has {what}{right}")
        if lacking and runs:
            raise InvalidRequest("; ".join(lacking))
        return [*(f"{text}. The VM cannot be started." for text in lacking), *unsure]

    def _missing_bridges(self, node: Node, parameters: Mapping[str, t.Any]) -> Iterator[str]:
        """Yield the bridges that the parameters name and the node lacks, as sentences."""
        named = {
            option: bridge
            for option, card in cards_in(dict(sorted(parameters.items())))
            if (bridge := card.get("bridge"))
        }
        bridges = self.access.bridges.read_for([node], set(named.values()))[node.name] if named else None
        for option, bridge in named.items():
            if bridges is not None and bridge not in bridges:
                yield (
                    f"{option}: there is no bridge {bridge!r} on {node.name}, or this user may not use it; "
                    f"known: {known_names(bridges, bridge)}"
                )

    def _resources_in(self, node: Node, parameters: Mapping[str, t.Any]) -> Iterator[tuple[str, str, str, bool | None]]:
        """Yield what options name, as option, kind, name, and whether the node has it; None if that is not known."""
        named = {each: option for option, value in sorted(parameters.items()) for each in names_in({option: value})}
        told = {each for other in self.snapshot.nodes for each in other.has}
        unread = named.keys() - told
        has = node.has
        if unread:
            from ..proxmox.inventory.named import with_named

            has = with_named(self.reader, [node], self.snapshot.storages, unread)[0].has
        for (kind, name), option in named.items():
            yield option, kind, name, has.get((kind, name))

    def _missing_volumes(self, node: Node, parameters: Mapping[str, t.Any]) -> Iterator[str]:
        """Yield the volumes that the parameters name and the node surely lacks, as sentences."""
        named = {volume: option for option, value in sorted(parameters.items()) for volume in volumes_of(option, value)}
        known_ones = {volume for _node, volume in self.snapshot.volumes}
        unread = [volume for volume in named if volume not in known_ones]
        found = {**self.snapshot.volumes}
        if unread:
            from ..proxmox.inventory.named_volumes import read_volumes

            found |= read_volumes(self.reader, [node], self.snapshot.storages, unread)
        for volume, option in named.items():
            if found.get((node.name, volume), 0) is None:
                yield f"{option}: there is no {volume} on {node.name}"
