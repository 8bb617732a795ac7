# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lives for one cycle, and is found once in it."""

from __future__ import annotations

import typing as t

from support.small_cluster import cluster, guest, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.bindings import volumes_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.devices.constraints import Matcher
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.devices.finding import devices_on
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import (
    CycleState,
    FilterPlugin,
    PreFilterPlugin,
    ReservePlugin,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import Status
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Disk, Storage


class Forgetful(PreFilterPlugin, FilterPlugin, ReservePlugin):
    """Notes in the state what it has seen, and never clears it."""

    name = "Forgetful"
    seen: t.ClassVar[list[object]] = []

    def pre_filter(self, state: CycleState, *args: t.Any) -> Status | None:
        self.seen.append(state.get(self.name))
        state[self.name] = "from PreFilter"
        return None

    def filter(self, state: CycleState, *args: t.Any) -> Status | None:
        return None

    def reserve(self, state: CycleState, *args: t.Any) -> Status | None:
        self.seen.append(state[self.name])
        return None


def test_cycle_state__lives_from_pre_filter_to_reserve_of_one_vm() -> None:
    where = scheduler(cluster([node("pve1")]), own=[Forgetful])
    for number in range(2):
        assert where.schedule(vm(f"vm-{number}")).decision is not None
    assert Forgetful.seen == [None, "from PreFilter"] * 2


def test_volumes_and_devices__are_found_once_per_node_and_cycle() -> None:
    storages = [Storage("local", name, total=10 * GIB) for name in ("pve1", "pve2")]
    one, two = cluster([node("pve1"), node("pve2")], [guest(100, "pve1")], storages=storages).nodes
    request, matcher = vm(disks=(Disk("scsi0", GIB),)), Matcher()
    state = CycleState()
    assert volumes_of(state, request, (one,), {})[0] is volumes_of(state, request, (one,), {})[0]
    assert volumes_of(state, request, (one,), {})[0] is not volumes_of(state, request, (two,), {})[0]
    assert volumes_of(CycleState(), request, (one,), {})[0] is not volumes_of(state, request, (one,), {})[0]
    assert devices_on(state, request, one, matcher) is devices_on(state, request, one, matcher)
    assert devices_on(state, request, one, matcher) is not devices_on(state, request, two, matcher)
