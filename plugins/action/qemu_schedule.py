# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module of the same name; shows each VM as soon as it is done, and VMs that wait for capacity."""

from __future__ import annotations

import typing as t

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.decisions import decision_table
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine import batch
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.texts import first, join_words
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory import ha_state
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow import binding
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.existing import converger, existing_vms
from ansible_collections.qemu_scheduler.proxmox.plugins.modules import qemu_schedule
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.moves import move_line
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.progress import ProgressAction

QUICK = 1.0
NAMED = 5
PARTICIPLES = {
    "create": "created",
    "clone": "cloned",
    "restore": "restored",
    "finish": "finished",
    "update": "updated",
    "start": "started",
    "stop": "stopped",
    "delete": "removed",
    "reboot": "rebooted",
    "restart": "restarted",
    "pause": "paused",
    "resume": "resumed",
    "suspend": "suspended",
}


def line_of(step: dict[str, t.Any]) -> str | None:
    """Return the line for one VM, or for those that wait; None for a single VM that took less than QUICK seconds."""
    if "waiting" in step:
        by = f", rejected by {join_words(step['rejected_by'])}" if step["rejected_by"] else ""
        names = join_words(first(step["waiting"], NAMED))
        return f"qemu_schedule: waiting for capacity: {names}{by}, {step['waited']} s of {step['patience']} s"
    if "outcome" in step:
        return move_line(step)
    if step["total"] == 1 and step["seconds"] < QUICK:
        return None
    name = step["name"] or step["vmid"]
    cluster = f"cluster {step['cluster']}, " if "cluster" in step else ""
    where = "" if step["node"] is None else f" on {cluster}{step['node']} as {step['vmid']}"
    what = f"failed, {step['error']}" if step["error"] else " and ".join(PARTICIPLES[a] for a in step["actions"])
    width = len(str(step["total"]))
    return f"qemu_schedule: {step['done']:>{width}}/{step['total']} {name} {what}{where} ({step['seconds']:.1f} s)"


def table_of(result: dict[str, t.Any], width: int) -> list[str]:
    """Return the lines about a result; none if it has no VMs."""
    return decision_table(result["vms"], width) if result.get("vms") else []


class ActionModule(ProgressAction):
    """Found by Ansible by this name."""

    module = qemu_schedule
    imports = (batch, binding, converger, existing_vms, ha_state)
    line_of = staticmethod(line_of)
    table_of = staticmethod(table_of)
