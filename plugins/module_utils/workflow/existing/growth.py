# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether VMs that exist may grow or start where they are: asked of the filters that a new VM meets."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace

from ...engine.findings import amount_text, shortages_in
from ...engine.framework.status import Category, Status
from ...engine.plugins.storages import VolumeBinding
from ...engine.scheduling_cycle import Scheduler
from ...engine.texts import first, join_words, of_one, whole_number
from ...engine.volumes import class_of, is_allowed
from ...errors import CollectionError, LimitExceeded
from ...model import MIB, Disk, Guest, Request
from ...proxmox.options.drives import drive_size
from ...proxmox.options.request import drives_of
from ...proxmox.outcomes import allocations
from ..job import Job
from .plan import ExistingPlan

COUNT_DIGITS = 9
"""No number of vCPUs or MiB has more digits than this."""

NODES_NAMED = 5
"""How many other nodes a message names."""


class Growth(t.NamedTuple):
    """What a plan takes of the VM's node in addition.

    request is the VM as it will be, with only its additional disk space. resources are those of which it takes more:
    C(cpu), C(memory), C(storage). starts: whether the VM is started, as it is off or is stopped meanwhile.
    """

    request: Request
    resources: frozenset[str]
    starts: bool


def check_limits(scheduler: Scheduler, jobs: Iterable[Job], now: float) -> None:
    """Check for each existing VM whether it may grow and start, in order: what one VM takes counts for the following
    ones.

    Chooses storages for new drives that name none, and for drives outside their storage class. A plan gets cautions if
    limits only warn, and if the VM breaks its own rules. A job whose plan exceeds an enforced limit is refused.
    """
    for job in jobs:
        plan = job.plan
        if plan is None or "delete" in plan.actions or plan.guest.template:
            continue
        try:
            _check(scheduler, plan, now)
        except CollectionError as error:
            job.refuse(error)


def displaced_slots(scheduler: Scheduler, request: Request, node: str, config: Mapping[str, t.Any]) -> frozenset[str]:
    """Return the slots of a VM's drives that are not on a storage of the class that the request names for them.

    Raises InvalidRequest for an unknown class.
    """
    info, classes = scheduler.cluster.by_name.get(node), scheduler.profile(request).policy.storage_classes
    storages = info.storages if info is not None else {}
    found = set()
    for disk in request.disks:
        storage = storages.get(str(config.get(disk.slot, "")).partition(":")[0])
        if storage is not None and not is_allowed(storage, class_of(disk, classes)):
            found.add(disk.slot)
    return frozenset(found)


def is_allowed_storage(scheduler: Scheduler, request: Request, node: str, slot: str, storage: str) -> bool:
    """Whether a drive that the request leaves open may be on a storage of the node. Raises InvalidRequest for an
    unknown class.
    """
    info, classes = scheduler.cluster.by_name.get(node), scheduler.profile(request).policy.storage_classes
    found = info.storages.get(storage) if info is not None else None
    disk = next((each for each in request.disks if slot in (each.slot, *each.others)), None)
    if found is None or disk is None or disk.storage not in (None, storage):
        return False
    return disk.content in found.content and is_allowed(found, class_of(disk, classes))


def growth_of(plan: ExistingPlan) -> Growth | None:
    """Return what a plan takes of its node in addition; None if nothing."""
    starts = bool({"start", "reboot", "restart"} & set(plan.actions))
    (cores, memory), (cores_after, memory_after) = sizes_of(plan.config), sizes_of(plan.config_after)
    disks = _new_space(plan)
    more = {"cpu": starts or cores_after > cores, "memory": starts or memory_after > memory, "storage": bool(disks)}
    if not any(more.values()):
        return None
    resources = frozenset(filter(more.get, more))
    return Growth(replace(_as_it_is(plan), cores=cores_after, memory=memory_after, disks=disks), resources, starts)


def sizes_of(config: Mapping[str, object]) -> tuple[float, int]:
    """Return the vCPUs and the bytes of memory that a config gives a VM."""
    cores = _count(config.get("cores"), 1) * _count(config.get("sockets"), 1)
    return float(_count(config.get("vcpus"), cores)), _count(config.get("memory"), 512) * MIB


def _count(value: object, default: int) -> int:
    """Return a number in a config. A value that is no number counts as not set."""
    number = whole_number(value, COUNT_DIGITS)
    return default if number is None else number


def _check(scheduler: Scheduler, plan: ExistingPlan, now: float) -> None:
    """Check the rules and the growth of a VM, and count the VM with its growth for those that follow."""
    growth = growth_of(plan) if plan.actions else None
    guest = scheduler.cluster.guests.get(plan.guest.vmid)
    has_rules = plan.entry.request != _without_rules(plan.entry.request)
    if guest is None or (growth is None and not has_rules):
        return
    # The filters must not count the VM itself; afterwards it counts with its growth.
    after = guest
    scheduler.cluster.remove(guest.vmid)
    try:
        if has_rules:
            plan.cautions.extend(_broken_rules(scheduler, plan, now))
        if growth is not None:
            _fit(scheduler, plan, growth, now)
            after = _guest_with_growth(guest, plan, growth)
    finally:
        scheduler.cluster.restore(after)


def _fit(scheduler: Scheduler, plan: ExistingPlan, growth: Growth, now: float) -> None:
    """Choose storages for new drives. Refuses a plan that exceeds a limit, or adds a caution."""
    refusals = scheduler.refusals(growth.request, now)
    of_node = refusals.get(plan.guest.node, {})
    # A shortage of what the VM takes no more of existed before.
    refused = {plugin: status for plugin, status in of_node.items() if _concerns(status, growth.resources)}
    if refused:
        text = _refusal(scheduler, plan, growth, refused, now)
        if plan.entry.limits == "enforce":
            raise LimitExceeded(text, node=plan.guest.node, rejected_by=sorted(refused))
        plan.cautions.append(text)
    if plan.changes.unplaced:
        storages = scheduler.storages_on(growth.request, plan.guest.node, now)
        chosen = {slot: storages[slot] for slot in plan.changes.unplaced if slot in storages}
        plan.changes = plan.changes.with_storages(plan.entry.request.options, plan.config, chosen)


def _concerns(status: Status, resources: Set[str]) -> bool:
    if status.shortages:
        return any(shortage.resource in resources for shortage in status.shortages)
    return status.category is not Category.CAPACITY or bool(resources & {"cpu", "memory"})


def _refusal(
    scheduler: Scheduler, plan: ExistingPlan, growth: Growth, refused: Mapping[str, Status], now: float
) -> str:
    """Return one sentence that says why the VM cannot grow or start on its node, and one that says what would fit
    where.
    """
    node, request = plan.guest.node, growth.request
    reasons = "; ".join(f"{node} {of_one(status.text)}" for _plugin, status in sorted(refused.items()))
    asked = {"cpu": request.cores, "memory": float(request.memory)}
    fits = [
        amount_text(resource, asked[resource] - missing)
        for resource, missing in sorted(shortages_in(refused).items())
        if resource in asked and asked[resource] > missing
    ]
    verb = "started" if growth.starts else "updated"
    parts = [f"{plan.entry.label} ({plan.guest.vmid}) cannot be {verb}: {reasons}"]
    if fits:
        parts.append(f"{node} has room for {join_words(fits)}")
    if any(_is_about_the_node(status) for status in refused.values()):
        elsewhere = scheduler.refusals(replace(request, disks=()), now)
        others = [name for name, by_plugin in sorted(elsewhere.items()) if name != node and not by_plugin]
        parts.append(
            f"{join_words(first(others, NODES_NAMED))} could run it" if others else "no other node could run it"
        )
    return "; ".join(parts)


def _is_about_the_node(status: Status) -> bool:
    """Whether another node may help. It does not if a disk lacks its storage, or exceeds it."""
    return status.plugin != VolumeBinding.name


def _broken_rules(scheduler: Scheduler, plan: ExistingPlan, now: float) -> Iterator[str]:
    """Yield the rules that a VM breaks on its node: between VMs, its own and those of others; about nodes, its own."""
    request = replace(_as_it_is(plan), cores=0, memory=0)
    with_rules = scheduler.refusals(request, now).get(plan.guest.node, {})
    without = scheduler.refusals(_without_rules(request), now).get(plan.guest.node, {})
    for plugin, status in sorted(with_rules.items()):
        if plugin in without and status.category is not Category.RULE:
            continue
        reason = of_one(status.text)
        yield f"{plan.entry.label} breaks a placement rule: {plan.guest.node} {reason}; it is not moved"


def _without_rules(request: Request) -> Request:
    return replace(request, affinity=(), topology_spread=(), node_required=(), node_regex=None, context={})


def _as_it_is(plan: ExistingPlan) -> Request:
    """Return the VM's request without what is fixed for an existing VM: its node, disks, devices and HA resource."""
    request, guest = plan.entry.request, plan.guest
    return replace(
        request,
        name=guest.name or request.name,
        vmid=guest.vmid,
        running=True,
        tags=request.tags or guest.tags,
        pool=request.pool or guest.pool,
        node=None,
        disks=(),
        clone=None,
        devices=(),
        ha=None,
        scheduling_gates=(),
        created=0.0,
    )


def _new_space(plan: ExistingPlan) -> tuple[Disk, ...]:
    """Return the space that an update takes on storages: new drives, moved drives, and the growth of others."""
    if not {"update", "finish"} & set(plan.actions):
        return ()
    changes, drives = plan.changes, drives_of(plan.entry.request.options)
    moved = {*changes.moves, *(plan.config.keys() & set(changes.unplaced))}
    new = {*allocations(changes.parameters), *changes.unplaced} & drives.keys() - moved
    made = [disk for slot in sorted(new) if (disk := drives[slot].to_disk()) is not None]
    for slot in sorted(moved):
        size = max(drives[slot].size, drive_size(slot, str(plan.config[slot])))
        made.append(Disk(slot, size, changes.moves.get(slot), drives[slot].storage_class))
    for slot, size in sorted(changes.resizes.items()):
        if slot not in new | moved:
            current = str(plan.config[slot])
            grown = size - drive_size(slot, current)
            made.append(Disk(slot, size=grown, storage=current.partition(":")[0]))
    return tuple(made)


def _guest_with_growth(guest: Guest, plan: ExistingPlan, growth: Growth) -> Guest:
    """Return the guest as it counts for the following VMs."""
    space = dict(guest.storage_pending)
    for disk in growth.request.disks:
        storage = disk.storage or _storage_of(plan, disk.slot)
        if storage is not None:
            space[storage, guest.node] = space.get((storage, guest.node), 0) + disk.size
    status = "assumed" if growth.starts else guest.status
    return replace(
        guest, cores=growth.request.cores, memory=growth.request.memory, status=status, storage_pending=space
    )


def _storage_of(plan: ExistingPlan, slot: str) -> str | None:
    value = str(plan.changes.parameters.get(slot, ""))
    return plan.changes.moves.get(slot) or value.partition(":")[0] or None
