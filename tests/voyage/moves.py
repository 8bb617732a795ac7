# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The moves that controllers have asked for, until they are over."""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import dataclass

from simulated_cluster.cluster import Cluster
from simulated_cluster.ha_manager import MOVING

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Move

from .actors import Process

_PATH = re.compile(r"/nodes/([^/]+)/(qemu|lxc)/(\d+)/migrate$")


@dataclass(eq=False)
class Asked:
    """A move that the cluster has accepted. by is who asked for it."""

    move: Move
    upid: str
    by: Process


class Moves:
    """What is under way by the controllers' will."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._asked: list[Asked] = []
        self._judged = 0

    def note(self, method: str, path: str, sent: t.Mapping[str, t.Any], response: t.Any, by: Process) -> None:
        """Note the answer to a request, if it begins a move."""
        match = _PATH.search(path) if method == "POST" else None
        if match is None or response.status != 200:
            return
        source, kind, vmid = match[1], match[2], int(match[3])
        name = self._cluster.guests[vmid].name
        move = Move(len(self._asked) + 1, vmid, name, source, str(sent["target"]), "", kind)
        self._asked.append(Asked(move, json.loads(response.body)["data"], by))

    def under_way(self) -> list[Asked]:
        """Those that are not over. One that was asked for again, as the HA manager had ignored it, is one move."""
        latest = {(asked.move.vmid, asked.move.target): asked for asked in self._asked if self._goes_on(asked)}
        return list(latest.values())

    def arrived(self, vmid: int, node: str) -> bool:
        """Whether a controller has asked for this guest to be moved to this node."""
        return any(asked.move.vmid == vmid and asked.move.target == node for asked in self._asked)

    def by(self, process: Process) -> bool:
        """Whether a process has asked for a move."""
        return any(asked.by is process for asked in self._asked)

    def new(self) -> list[Asked]:
        """Those that were not returned before."""
        found, self._judged = self._asked[self._judged :], len(self._asked)
        return found

    def _goes_on(self, asked: Asked) -> bool:
        task = self._cluster.tasks.find(asked.upid)
        if task is not None and task.running:
            return True
        if ":hamigrate:" not in asked.upid:
            return False
        kind = "ct" if asked.move.kind == "lxc" else "vm"
        service = self._cluster.ha.manager.services.get(f"{kind}:{asked.move.vmid}")
        if service is None:
            return False
        requested = service.request is not None and service.request[1] == asked.move.target
        return requested or (service.state in MOVING and service.target == asked.move.target)
