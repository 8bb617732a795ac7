# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What controllers are asked to do."""

from __future__ import annotations

import typing as t
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.draining import drain_nodes
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.rebalancing import rebalance
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import ONE_VM_OPTIONS
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.schedule import schedule

from .tours import tour

Warn = Callable[[str], None]
RUNS: dict[str, Callable[[dict[str, t.Any], bool, Warn], dict[str, t.Any]]] = {
    "qemu_schedule": lambda params, check, warn: schedule(params, ONE_VM_OPTIONS, check_mode=check, warn=warn),
    "node_drain": lambda params, check, warn: drain_nodes(params, check_mode=check, warn=warn),
    "maintenance_tour": lambda params, _check, warn: tour(params, warn),
    "cluster_rebalance": lambda params, check, warn: rebalance(params, check_mode=check, warn=warn),
}
"""What the modules do: options, whether in check mode, and what takes warnings."""

PLAN_FILE, APPLY = "plan_file", "apply"
DRAIN = "node_drain"
TOUR = "maintenance_tour"


@dataclass(frozen=True)
class Task:
    """What a controller is asked to do. names are the VMs, or the nodes, that it is about; state is
    that of all its VMs, if it is not the one that each has in the end.

    The options plan_file and apply are names of files here.
    """

    module: str = "qemu_schedule"
    names: tuple[str, ...] = ()
    options: dict[str, t.Any] = field(default_factory=dict)
    state: str | None = None

    @property
    def in_check_mode(self) -> bool:
        """Whether it only keeps a plan."""
        return PLAN_FILE in self.options

    def keeping(self, file: str) -> Task:
        """The task that plans this one, in check mode."""
        return replace(self, options={**self.options, PLAN_FILE: file})

    def applying(self, file: str) -> Task:
        """The task that carries out what was planned for this one."""
        return replace(self, options={**self.options, APPLY: file})

    def __str__(self) -> str:
        options = self.options if self.state is None else {"state": self.state, **self.options}
        return " ".join([self.module, *self.names, *(f"{key}={value}" for key, value in options.items())])
