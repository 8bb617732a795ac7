# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Picking free VMIDs by the scheduler's rules, without creating anything."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import replace

from ..engine.cache import ClusterState
from ..engine.guard import check_request
from ..engine.plugins.builtin import builtin_registry
from ..engine.profiles import Profile
from ..engine.scheduling_cycle import Scheduler
from ..errors import NoVMIDAvailable
from ..model import Request
from ..proxmox.options.request import vm_request
from ..proxmox.options.values import check_range
from .access import Access
from .counting import cluster_state, count_reservations, known_guests

PROFILE = "vmid_pick"
MOST = 100_000


def pick_vmids(params: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the module's result: the lowest VMIDs that are neither taken nor reserved nor excluded.

    Raises InvalidRequest, NoVMIDAvailable, and what reading the cluster raises.
    """
    count = params["count"]
    check_range("count", count, 1, MOST)
    # The VMIDs are not for a particular VM.
    request = replace(vm_request({**params, "name": "any"}), name="")
    profile = Profile(PROFILE, builtin_registry())
    check_request(profile.plugins_about(request), request)
    access = Access.open(params, lambda nodes: {})
    try:
        scheduler = Scheduler(_state(access, request, params), {PROFILE: profile}, PROFILE)
    finally:
        access.close()
    vmids: list[int] = []
    while len(vmids) < count:
        try:
            vmid = scheduler.pick_vmid(request)
        except NoVMIDAvailable as error:
            if not vmids:
                raise
            raise NoVMIDAvailable(
                f"only {len(vmids)} of {count} VMIDs are available; once these are taken, there is {error.message}"
            ) from error
        scheduler.cluster.taken.add(vmid)
        vmids.append(vmid)
    return {"changed": False, "vmid": vmids[0], "vmids": vmids}


def _state(access: Access, request: Request, params: Mapping[str, t.Any]) -> ClusterState:
    reservations = access.ledger.reservations(access.identity())
    known = known_guests(reservations)
    snapshot = access.complete(access.read(known), [request], (), None)
    counted = count_reservations(snapshot, reservations, known, access.ask_if_gone, access.ask_if_another)
    return cluster_state(counted.snapshot, counted.stand_ins, params["exclude"])
