# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Backup jobs, and which guests they cover. Names come from the configs, which every node has."""

from __future__ import annotations

from typing import Any

from ..errors import parameter_error
from ..model import Guest
from ..property_strings import split_list
from ..routing import Call, route


def _covered(call: Call, job: dict[str, Any]) -> set[int]:
    if job.get("all"):
        return set(call.cluster.guests)
    if job.get("pool"):
        return set(call.cluster.access.pools[job["pool"]]["vms"])
    return {int(vmid) for vmid in split_list(str(job.get("vmid", "")))}


def _row(guest: Guest, key: str) -> dict[str, Any]:
    name = guest.config.get("name" if guest.kind == "qemu" else "hostname")
    return {key: guest.vmid, "type": guest.kind, **({"name": name} if name else {})}


def _visible(call: Call) -> list[Guest]:
    return [guest for guest in call.cluster.guests.values() if call.allowed(f"/vms/{guest.vmid}", "VM.Audit")]


@route("GET", "/cluster/backup")
def jobs(call: Call) -> list[dict[str, Any]]:
    call.require("/", "Sys.Audit")
    return [{"type": "vzdump", "enabled": 1, **job} for job in call.cluster.backup_jobs]


@route("GET", "/cluster/backup/{id}/included_volumes")
def included(call: Call) -> dict[str, Any]:
    call.require("/", "Sys.Audit")
    job = next((job for job in call.cluster.backup_jobs if job["id"] == call["id"]), None)
    if job is None:
        raise parameter_error(id=f"No such job '{call['id']}'")
    covered = _covered(call, job)
    return {"children": [{**_row(guest, "id"), "leaf": 1} for guest in _visible(call) if guest.vmid in covered]}


@route("GET", "/cluster/backup-info/not-backed-up")
def not_backed_up(call: Call) -> list[dict[str, Any]]:
    call.require("/", "Sys.Audit")
    covered = set().union(*(_covered(call, job) for job in call.cluster.backup_jobs))
    return [_row(guest, "vmid") for guest in _visible(call) if guest.vmid not in covered]
