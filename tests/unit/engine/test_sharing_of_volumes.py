# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes share their storage verdicts until their own storages count: decisions are those of asking every node."""

from __future__ import annotations

import random

import pytest
from support.effort import lines_run
from support.small_cluster import node, profile, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.verdicts import Outcome
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Decision, Disk, Snapshot, Storage

CLASSES = {"fast": {"types": ["rbd"]}, "any": {"overcommit": 1.5}, "own": {"shared": False}}
PROFILE = profile({"filters": {"VolumeBinding": {"config": {"storage_classes": CLASSES}}}})

DRIVES = {
    "one": (Disk("scsi0", 4 * GIB),),
    "two": (Disk("scsi0", 4 * GIB), Disk("scsi1", 2 * GIB)),
    "one of a class": (Disk("scsi0", 3 * GIB, storage_class="fast"), Disk("scsi1", 2 * GIB, storage_class="any")),
    "one named shared": (Disk("scsi0", 3 * GIB, "ceph"), Disk("scsi1", 2 * GIB)),
    "one named local": (Disk("scsi0", 3 * GIB, "local"), Disk("scsi1", 2 * GIB)),
    "one of a local class": (Disk("scsi0", 3 * GIB, storage_class="own"), Disk("scsi1", 2 * GIB, "ceph")),
    "two local, one shared": (
        Disk("scsi0", 3 * GIB, storage_class="own"),
        Disk("scsi1", 2 * GIB, "local"),
        Disk("scsi2", GIB, storage_class="fast"),
    ),
}


def snapshot(chance: random.Random) -> Snapshot:
    """Local storages that are as roomy as the shared ones, of which some nodes lack one."""
    names = [f"n{number}" for number in range(chance.randint(3, 6))]
    local = [
        Storage(storage, name, total=chance.choice([4, 20, 20, 40]) * GIB)
        for storage in ("local", "zfs")
        for name in names
        if chance.random() < 0.8
    ]
    shared = [
        Storage(storage, name, kind, shared=True, total=total * GIB, active=chance.random() < 0.9)
        for storage, kind, total in (("ceph", "rbd", chance.randint(20, 50)), ("nfs", "nfs", chance.randint(10, 40)))
        for name in names
        if chance.random() < 0.9
    ]
    return Snapshot(nodes=tuple(node(name, gib=256) for name in names), storages=(*local, *shared))


def told(outcome: Outcome) -> object:
    feasible = [verdict for verdict in outcome.verdicts() if verdict.feasible]
    return outcome.decision, [(v.node, v.score, dict(v.scores)) for v in feasible]


@pytest.mark.parametrize("drives", DRIVES)
def test_volumes__go_to_the_same_storages_whether_shared_or_not(drives: str) -> None:
    placements = 0
    for seed in range(25):
        chance = random.Random(f"{drives}/{seed}")
        data = snapshot(chance)
        kept = Scheduler(ClusterState(data), {"balanced": PROFILE})
        fresh = Scheduler(ClusterState(data), {"balanced": PROFILE}, sharing=False)
        placed: list[Decision] = []
        for number in range(14):
            if placed and chance.random() < 0.25:
                decision = placed.pop(chance.randrange(len(placed)))
                kept.undo(decision)
                fresh.undo(decision)
            request = vm(f"vm-{number}", disks=DRIVES[chance.choice([drives, drives, "two"])])
            one, two = kept.schedule(request), fresh.schedule(request)
            assert told(one) == told(two)
            if one.decision is not None:
                placed.append(one.decision)
                placements += 1
    assert placements > 100


@pytest.mark.parametrize("drives", ["two", "one of a local class"])
def test_storage_to_be_chosen__costs_the_same_on_more_nodes(drives: str) -> None:
    def next_vm(nodes: int) -> int:
        names = [f"n{number:03}" for number in range(nodes)]
        storages = [
            *(Storage("local", name, total=100 * GIB) for name in names),
            *(Storage("ceph", name, "rbd", shared=True, total=10000 * GIB) for name in names),
        ]
        data = Snapshot(nodes=tuple(map(node, names)), storages=tuple(storages))
        where = Scheduler(ClusterState(data), {"balanced": PROFILE})
        for number in range(3):
            where.schedule(vm(f"vm-{number}", disks=DRIVES[drives]))
        return lines_run(lambda: where.schedule(vm("next", disks=DRIVES[drives])), at_most=10**6)

    assert next_vm(200) < 1.2 * next_vm(50)
