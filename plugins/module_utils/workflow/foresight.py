# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Predicts in check mode what Proxmox VE would refuse, by additional reads."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..engine.texts import known
from ..errors import InvalidRequest
from ..model import Decision, Node, Snapshot
from ..proxmox.api.reader import Reader
from ..proxmox.inventory.nodes import with_bridges
from ..proxmox.inventory.rows import mark_of
from ..proxmox.inventory.volumes import read_volumes
from ..proxmox.options.conversions import Drives
from ..proxmox.options.drives import kind_of
from ..proxmox.options.kinds import NET
from ..proxmox.options.request import create_parameters
from ..proxmox.options.table import option_of
from .existing.converger import missing_pool
from .job import Job, State


@dataclass(frozen=True, slots=True)
class Foresight:
    """Checks the planned requests against the cluster.

    reader should cache responses: many VMs name the same bridges and images.
    """

    reader: Reader
    snapshot: Snapshot

    def check(self, job: Job) -> None:
        """Fail a job that Proxmox VE would refuse, and warn of problems that it would accept."""
        plan = job.plan
        try:
            if job.state is State.DECIDED and job.decision is not None:
                job.warnings.extend(self._of_new(job.label, job.decision))
            elif plan is not None and "update" in plan.actions:
                runs = plan.status_after == "running"
                plan.cautions.extend(self._check(job.label, plan.guest.node, plan.changes.parameters, runs=runs))
        except InvalidRequest as error:
            job.refuse(error)

    def _of_new(self, label: str, decision: Decision) -> list[str]:
        request = decision.request
        if request.pool is not None and request.pool not in self.snapshot.pools:
            missing = missing_pool(self.reader, request.pool)
            if missing is not None:
                marks = {mark_of(node.name) for node in self.snapshot.nodes}
                known_pools = known(self.snapshot.pools - marks, request.pool)
                raise InvalidRequest(f"{label}: pool: {missing}; known: {known_pools}", option="pool")
        return self._check(label, decision.node, create_parameters(request, decision), runs=request.running)

    def _check(self, label: str, node: str, parameters: Mapping[str, t.Any], *, runs: bool) -> list[str]:
        host = next((each for each in self.snapshot.nodes if each.name == node), None)
        if host is None:
            return []
        for text in self._missing_volumes(host, parameters):
            raise InvalidRequest(f"{label}: {text}")
        bridges = [f"{label}: {text}" for text in self._missing_bridges(host, parameters)]
        if bridges and runs:
            raise InvalidRequest("; ".join(bridges))
        return [f"{text}. The VM cannot be started." for text in bridges]

    def _missing_bridges(self, node: Node, parameters: Mapping[str, t.Any]) -> Iterator[str]:
        named = {
            option: bridge
            for option, value in sorted(parameters.items())
            if re.fullmatch(r"net\d+", option) and (bridge := NET.read(str(value)).get("bridge"))
        }
        bridges = with_bridges(self.reader, [node])[0].bridges if named else None
        for option, bridge in named.items():
            if bridges is not None and bridge not in bridges:
                yield f"{option}: there is no bridge {bridge!r} on {node.name}; known: {known(bridges, bridge)}"

    def _missing_volumes(self, node: Node, parameters: Mapping[str, t.Any]) -> Iterator[str]:
        named = {volume: option for option, value in sorted(parameters.items()) for volume in _volumes(option, value)}
        found = read_volumes(self.reader, [node], self.snapshot.storages, named) if named else {}
        for volume, option in named.items():
            if found.get((node.name, volume), 0) is None:
                yield f"{option}: there is no {volume} on {node.name}"


def _volumes(option: str, value: t.Any) -> list[str]:
    """The volumes that have to exist: media, and sources of imports."""
    described = option_of(option)
    if described is None or not isinstance(described.conversion, Drives):
        return []
    drive = kind_of(option).read(str(value))
    return [volume for key in ("file", "import-from") if (volume := drive.get(key))]
