# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which recording of a move needs which preparation, and which are compared elsewhere."""

from __future__ import annotations

import asyncio
from fnmatch import fnmatch

from simulated_cluster.ha_manager import Service
from simulator.lab import Lab
from simulator.preparations import (
    Step,
    acl,
    config,
    disarmed,
    managed,
    no_quorum,
    node_rule,
    offline,
    on,
    resource_rule,
    rules,
    running,
    without,
)


def moving(vmid: int) -> Step:
    """A migration of the guest is under way."""

    async def step(lab: Lab) -> None:
        await config(vmid, lock="migrate")(lab)
        await lab.cluster.guests[vmid].lock.acquire()

    return step


def held(vmid: int) -> Step:
    """Somebody has the guest's file lock until a task waits for it."""

    async def step(lab: Lab) -> None:
        lock = lab.cluster.guests[vmid].lock
        await lock.acquire()

        async def release() -> None:
            while not any(task.log for task in lab.cluster.tasks.recent()):
                await asyncio.sleep(0.001)
            lock.release()

        lab.background.append(asyncio.ensure_future(release()))

    return step


def stopped(vmid: int) -> Step:
    async def step(lab: Lab) -> None:
        guest = lab.cluster.guests[vmid]
        guest.status = guest.qmpstatus = "stopped"

    return step


def full(storage: str) -> Step:
    async def step(lab: Lab) -> None:
        lab.cluster.storages[storage].base_used["pve3"] = lab.cluster.storages[storage].sizes["pve3"]

    return step


def orphan(volid: str, node: str) -> Step:
    """What a move that was cut off left on the target."""

    async def step(lab: Lab) -> None:
        vmid = int(volid.split("/")[1].split("-")[1])
        lab.cluster.volumes.allocate(lab.cluster.storages[volid.partition(":")[0]], node, vmid, 67108864, "raw")

    return step


def strays(vmid: int, node: str | None) -> Step:
    async def step(lab: Lab) -> None:
        lab.cluster.guests[vmid].half_mirrored = True
        if node is not None:
            lab.cluster.guests[vmid].strays.add(node)

    return step


async def maintained(lab: Lab) -> None:
    """Node pve1 has been in maintenance for some time."""
    node = lab.cluster.nodes["pve1"]
    node.maintenance, node.maintenance_since = True, lab.cluster.clock.now() - 60


async def leaving(lab: Lab) -> None:
    """The manager moves two guests off pve1."""
    for sid in ("vm:140", "vm:142"):
        lab.cluster.ha.manager.services[sid] = Service("migrate", "pve3", maintenance_node="pve1")


HA = managed(140, 141, 142)
TOGETHER = rules(together=resource_rule("positive", "vm:140,vm:142"))
APART = rules(apart=resource_rule("negative", "vm:140,vm:141"))
STRICT = rules(only=node_rule("vm:141", "pve1,pve3", strict=1))
AWAY = on(141, "pve3")
PAIR = (HA, TOGETHER, APART, AWAY)

# The first pattern that fits decides.
PREPARATIONS: dict[str, tuple[Step, ...]] = {
    "move-err-during-*": (moving(121), moving(152)),
    "move-during-*": (moving(152),),
    "move-err-after-worker-killed*": (moving(150),),
    "move-after-worker-killed-unlock": (config(150, lock="migrate"),),
    "move-after-worker-killed-unlocked-next-attempt": (strays(150, "pve2"),),
    "move-after-worker-killed-unlocked-third-attempt": (
        strays(150, None), orphan("fast:150/vm-150-disk-0.raw", "pve2"), orphan("fast:150/vm-150-disk-1.raw", "pve2")),
    "move-after-worker-killed-unlocked-disks-target": (
        orphan("fast:150/vm-150-disk-0.raw", "pve2"), orphan("fast:150/vm-150-disk-1.raw", "pve2")),
    "move-after-worker-killed-unlocked*": (),
    "move-after-worker-killed-disks-target": (
        orphan("fast:150/vm-150-disk-0.raw", "pve2"), orphan("fast:150/vm-150-disk-1.raw", "pve2")),
    "move-after-worker-killed-*": (config(150, lock="migrate"),),
    "move-after-delete-mirror-next-attempt": (orphan("fast:150/vm-150-disk-0.raw", "pve3"),),
    "move-after-delete-task-next-attempt": (orphan("fast:150/vm-150-disk-0.raw", "pve2"),),
    "move-after-delete-task-disks-target": (orphan("fast:150/vm-150-disk-0.raw", "pve2"),),
    "move-err-full-online": (running(151), full("tiny")),
    "move-err-full-online-status": (running(151),),
    "move-err-full-offline": (full("tiny"),),
    "move-full-storage-status-target": (full("tiny"),),
    "move-concurrent-151": (running(151),),
    "move-disks-after-target": (on(103, "pve2"),),
    "move-disks-after-source": (on(103, "pve2"),),
    "move-err-source-after-switch-resize": (on(121, "pve2"), held(121)),
    "move-*-wrong-node": (on(102, "pve2"), on(200, "pve2")),
    "move-err-restore-storage-full": (full("tiny"),),
    "move-err-source-after-switch-*": (on(121, "pve2"),),
    "move-err-source-offline*": (offline("pve3"),),
    "move-err-*target-offline*": (offline("pve3"),),
    "move-err-target-just-died": (offline("pve2", seconds=0),),
    "move-precheck-*offline*": (offline("pve3"),),
    "move-target-dies-*": (offline("pve3"),),
    "move-err-noquorum-ha": (managed(140), no_quorum),
    "move-err-noquorum-*": (no_quorum,),
    "move-migrateall": (on(101, "pve2"), on(102, "pve2"), on(107, "pve2"), stopped(101)),
    "move-hibernated-*": (stopped(160), config(160, lock="suspended", vmstate="fast:160/vm-160-state-suspend.raw",
                           runningmachine="pc-i440fx-10.0+pve0", runningcpu="qemu64")),
    "move-err-suspending-*": (config(160, lock="suspending"),),
    "move-err-suspend-again": (running(160, qmpstatus="paused"),),
    "move-suspended-precheck": (running(160, qmpstatus="paused"),),
    "move-op-online-paused-vm": (running(101, qmpstatus="paused"),),
    "move-op-paused-vm-status-after": (running(101, qmpstatus="paused"),),
    "move-op-offline-local-secure": (config(107, ide2="fast:107/vm-107-cloudinit.qcow2,media=cdrom,size=4M"),),
    "move-op-online-cloudinit-local-with-local-disks": (
        config(117, ide2="fast:117/vm-117-cloudinit.qcow2,media=cdrom,size=4M"),),
    "move-concurrent-117": (config(117, ide2="fast:117/vm-117-cloudinit.qcow2,media=cdrom,size=4M"),),
    "move-op-targetstorage-as-mig2": (acl("/storage/fast", "mig2@pve", "PVEDatastoreUser"),),
    "move-err-source-volume-missing": (
        acl("/storage/fast", "mig2@pve", "PVEDatastoreUser"),
        config(103, scsi0="tiny:103/vm-103-disk-0.raw,size=31458K")),
    "move-err-restore-exists*": (),
    "move-err-restore-again-over-leftover": (),
    "move-err-restore-force-running": (running(170),),
    "move-restore-op": (without(170),),
    "move-pending-before": (),
    "move-ha-precheck-plain": (managed(140),),
    "move-ha-precheck-negative*": PAIR,
    "move-ha-precheck-positive": (HA, TOGETHER),
    "move-ha-precheck-positive-and-negative": PAIR,
    "move-ha-precheck-strict-rule": (HA, STRICT, AWAY),
    "move-ha-precheck-during-maintenance": (HA, TOGETHER, maintained),
    "move-ha-err-negative-blocks": PAIR,
    "move-ha-resource-*-negative-blocks": PAIR,
    "move-ha-resource-*-strict-*": (HA, STRICT, AWAY),
    "move-ha-strict-rule-forbids-accepted": (HA, STRICT, AWAY),
    "move-ha-resource-migrate-to-own-node": (HA, AWAY),
    "move-ha-resource-migrate-to-node-in-maintenance": (HA, TOGETHER, on(140, "pve3"), on(142, "pve3"), maintained),
    "move-ha-to-node-in-maintenance": (HA, TOGETHER, on(142, "pve3"), maintained),
    "move-ha-resource-migrate-to-offline-node": (HA, TOGETHER, offline("pve3")),
    "move-ha-to-offline-node*": (HA, TOGETHER, offline("pve3")),
    "move-ha-disarmed-*": (HA, disarmed),
    "move-ha-maintenance-*": (HA, maintained, leaving),
    "move-ha-*": (HA,),
}

UNCOMPARED = {
    "move-backup-volume-attributes": "attributes of one volume are not simulated",
    "move-timeline-*": "not a single request; compared by tests of their own",
    "move-*rrddata*": "values of one history; their form is compared by a test of its own",
    "move-err-*rrddata*": "the same",
    "move-err-during-snapshot": "snapshots are not simulated",
    "move-err-online-local-size-not-aligned": "a quirk of QEMU that is not simulated",
    "move-restore-leftover-*": "between two restores; compared by a test of its own",
    "move-err-restore-storage-full-config-after": "between two restores; compared by a test of its own",
    "move-restore-op-config": "after a restore; compared by a test of its own",
    "move-restore-op-unique-storage-config": "after a restore; compared by a test of its own",
    "move-restore-with-params-config": "after a restore; compared by a test of its own",
    "move-err-restore-again-over-leftover": "between two restores; compared by a test of its own",
    "move-pending-*": "values of one history; compared by a test of its own",
    "move-during-task-status": "about a task of the recorded cluster",
    "move-during-tasks-*": "about a task of the recorded cluster",
}


def preparation(name: str) -> tuple[Step, ...]:
    return next((steps for pattern, steps in PREPARATIONS.items() if fnmatch(name, pattern)), ())


def uncompared(name: str) -> str | None:
    return next((reason for pattern, reason in UNCOMPARED.items() if fnmatch(name, pattern)), None)
