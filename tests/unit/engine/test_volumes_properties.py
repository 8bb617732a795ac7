# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold for any storages, any drives and any clones: no space promised twice, nothing where it may not be."""

from __future__ import annotations

import itertools
import typing as t
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_cluster import cluster, node, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch_cycle import schedule_all
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.bindings import volumes_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import (
    ClusterState,
    NodeStorage,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import CycleState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import Status
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.storages import VolumeBinding
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import Profile
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.verdicts import NodeVerdict, Outcome
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.volumes import (
    Binding,
    find_volumes,
    is_allowed,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    CloneSource,
    Decision,
    Disk,
    Request,
    Selector,
    Storage,
    StorageClass,
    Template,
)

NODES = ("pve1", "pve2", "pve3")
NAMES = ("ceph", "data", "fast", "nfs")
SHARED = frozenset({"ceph", "nfs"})
IMAGES, ISO = frozenset({"images", "rootdir"}), frozenset({"iso"})
CLASSES: dict[str, t.Any] = {
    "any": {},
    "local": {"shared": False},
    "shared": {"shared": True},
    "thin": {"overcommit": 2.0, "reserved": 2},
    "kept": {"storages": ["data", "ceph"], "reserved": "25%"},
}
PROFILE = {"filters": {"VolumeBinding": {"config": {"storage_classes": CLASSES}}}}
BY_SPACE = {**PROFILE, "scores": {"LeastAllocated": {"config": {"storage_weight": 1}}}}
"""Another score goes by the space of storages, and by more than that."""

PARSED = VolumeBinding({"storage_classes": CLASSES}).sets["storage_classes"]
PLAIN = StorageClass("")
APART = (AffinityTerm(False, Selector(name="db-.*"), required=False),)


@st.composite
def storages(draw: st.DrawFn) -> tuple[Storage, ...]:
    """Some storages on some nodes; a shared one is the same for all."""
    found = []
    for name in NAMES:
        total = draw(st.integers(0, 80))
        for at in NODES:
            if not draw(st.booleans()):
                continue
            size = total if name in SHARED else draw(st.integers(0, 20))
            found.append(
                Storage(
                    name,
                    at,
                    "rbd" if name in SHARED else "lvm",
                    shared=name in SHARED,
                    content=draw(st.sampled_from([IMAGES, IMAGES, IMAGES, ISO])),
                    active=draw(st.sampled_from([True, True, True, False])),
                    total=size * GIB,
                    used=(size // 4) * GIB,
                )
            )
    return tuple(found)


@st.composite
def drives(draw: st.DrawFn) -> tuple[Disk, ...]:
    """One to four drives, named, of a class, or neither."""
    found = []
    for number in range(draw(st.integers(1, 4))):
        where = draw(st.sampled_from([*NAMES, *CLASSES, None]))
        found.append(
            Disk(
                f"scsi{number}",
                draw(st.integers(0, 6)) * GIB,
                storage=where if where in NAMES else None,
                storage_class=where if where in CLASSES else None,
            )
        )
    return tuple(found)


@st.composite
def clones(draw: st.DrawFn) -> CloneSource:
    """One or two copies of a template with one or two volumes."""
    copies = draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=2, unique=True))
    full = draw(st.booleans())
    return CloneSource(
        tuple(
            Template(
                900 + number,
                at,
                "golden",
                tuple(
                    (slot, draw(st.sampled_from(NAMES)), draw(st.integers(1, 5)) * GIB)
                    for slot in draw(st.sampled_from([("scsi0",), ("scsi0", "virtio0")]))
                ),
                media=draw(st.sampled_from([(), (), (("ide2", "data"),)])),
            )
            for number, at in enumerate(copies)
        ),
        full=full,
        **draw(st.sampled_from(PLACES if full else PLACES[:1])),
    )


PLACES: list[dict[str, str]] = [
    {},
    *({"storage": name} for name in NAMES),
    *({"storage_class": name} for name in CLASSES),
]
DRIVES = drives()
CLONE = st.none() | clones()
KINDS = st.lists(st.tuples(DRIVES, CLONE, st.sampled_from([(), APART])), min_size=1, max_size=3)


@st.composite
def runs(draw: st.DrawFn) -> list[Request | int]:
    """VMs of a few kinds, in any order; a number takes back one of those decided so far."""
    kinds = draw(KINDS)
    found: list[Request | int] = []
    for number, step in enumerate(draw(st.lists(st.integers(0, 3 * len(kinds)), min_size=1, max_size=16))):
        disks, clone, affinity = kinds[step % len(kinds)]
        undone = step == 3 * len(kinds)
        found.append(number if undone else vm(f"vm-{number}", disks=disks, clone=clone, affinity=affinity))
    return found


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    return [vm(f"vm-{number}", disks=draw(DRIVES), clone=draw(CLONE)) for number in range(draw(st.integers(1, 6)))]


def placed_on(found: tuple[Storage, ...], config: Mapping[str, t.Any] = PROFILE) -> Scheduler:
    state = cluster([node(name, cores=99, gib=999) for name in NODES], storages=found)
    return Scheduler(state, {"balanced": Profile("balanced", builtin_registry(), config)})


@settings(max_examples=400, deadline=None)
@given(storages(), DRIVES, CLONE)
def test_bindings_on_many_nodes__are_those_of_each_node_alone(
    found: tuple[Storage, ...], disks: tuple[Disk, ...], clone: CloneSource | None
) -> None:
    nodes, request = placed_on(found).cluster.nodes, vm(disks=disks, clone=clone)
    alone = [find_volumes(request, info, PARSED) for info in nodes]
    assert volumes_of(CycleState(), request, nodes, PARSED) == alone


def test_nodes_with_the_same_shared_storages__share_a_binding_unless_a_local_one_has_more_space() -> None:
    everywhere = [Storage("ceph", at, "rbd", shared=True, total=80 * GIB) for at in NODES]
    local = [Storage("data", at, "lvm", total=size * GIB) for at, size in zip(NODES, (20, 79, 81), strict=True)]
    nodes = placed_on((*everywhere, *local)).cluster.nodes
    one, two, three = volumes_of(CycleState(), vm(disks=(Disk("scsi0", GIB),)), nodes, PARSED)
    assert one is two
    assert isinstance(three, Binding)
    assert three.storages == {"scsi0": "data"}


def limit(wanted: StorageClass, seen: NodeStorage) -> float:
    total = seen.use.total
    return total * wanted.overcommit - (wanted.reserved * total if wanted.reserved < 1 else wanted.reserved)


def class_of(disk: Disk | None) -> StorageClass:
    return PARSED[disk.storage_class] if disk is not None and disk.storage_class else PLAIN


def check(decision: Decision, state: ClusterState) -> None:
    """The decision as it is right after it was made."""
    info = state.by_name.get(decision.node)
    assert info is not None
    request = decision.request
    asked = {disk.slot: disk for disk in request.disks}
    made = {slot for slot, _storage, _size in decision.template.volumes} if decision.template else set()
    assert set(decision.storages) == set(asked) | made
    for slot, name in decision.storages.items():
        seen, disk = info.storages[name], asked.get(slot)
        assert seen.active
        assert "images" in seen.content
        assert disk is None or disk.storage in (None, name)
        assert is_allowed(seen, class_of(disk))
    for (name, at), _size in decision.storage_bytes.items():
        assert at == decision.node
        seen = info.storages[name]
        limits = [limit(class_of(asked.get(slot)), seen) for slot, on in decision.storages.items() if on == name]
        assert seen.use.used + seen.use.pending <= max(limits)
    check_clone(decision, state)


def check_clone(decision: Decision, state: ClusterState) -> None:
    clone, template = decision.request.clone, decision.template
    assert (clone is None) == (template is None)
    if clone is None or template is None:
        return
    info = state.by_name.get(decision.node)
    assert info is not None
    size = sum(decision.storage_bytes.values())
    asked = {disk.slot: disk for disk in decision.request.disks}
    new = {disk.slot: disk.size for disk in decision.request.disks}
    for slot, storage, has in template.volumes:
        disk = asked.get(slot, Disk(slot))
        wanted = disk.storage_class if disk.storage or disk.storage_class else clone.storage_class
        if disk.storage or not (clone.full and wanted):
            default = storage if disk.storage_class else clone.storage or storage
            assert decision.storages[slot] == (disk.storage or default)
        assert not wanted or is_allowed(info.storages[decision.storages[slot]], PARSED[wanted])
        size -= max(new.pop(slot, 0), has) if clone.full else max(new.pop(slot, 0) - has, 0)
    assert size == sum(new.values())
    if template.node != decision.node:
        held = {storage for _slot, storage, _size in template.volumes} | {storage for _slot, storage in template.media}
        assert held | {decision.landing or storage for _slot, storage, _size in template.volumes} <= SHARED


@settings(deadline=None)
@given(storages(), requests())
def test_no_storage__is_promised_beyond_its_limit_and_no_drive_goes_where_it_may_not_be(
    found: tuple[Storage, ...], wanted: list[Request]
) -> None:
    where = placed_on(found)
    for request in wanted:
        decision = where.schedule(request).decision
        if decision is not None:
            check(decision, where.cluster)


@settings(deadline=None)
@given(storages(), requests())
def test_same_cluster_and_requests__lead_to_the_same_storages(
    found: tuple[Storage, ...], wanted: list[Request]
) -> None:
    first, second = (
        [(o.decision, o.message) for o in schedule_all(placed_on(given), wanted)] for given in (found, found[::-1])
    )
    assert first == second


@settings(max_examples=300, deadline=None)
@given(storages(), runs(), st.sampled_from([PROFILE, PROFILE, BY_SPACE]))
def test_storages_that_were_changed__lead_to_the_decisions_of_ones_counted_anew(
    found: tuple[Storage, ...], run: list[Request | int], config: dict[str, t.Any]
) -> None:
    where = placed_on(found, config)
    placed: list[Decision] = []
    told: list[tuple[Outcome, tuple[NodeVerdict, ...]]] = []
    for step in run:
        if isinstance(step, int):
            if placed:
                where.undo(placed.pop(step % len(placed)))
            continue
        fresh = placed_on(found, config)
        for known in where.cluster.guests.values():
            fresh.cluster.assume(known)
        expected, outcome = fresh.schedule(step), where.schedule(step)
        assert (outcome.decision, outcome.message) == (expected.decision, expected.message)
        told.append((outcome, expected.verdicts()))
        if outcome.decision is not None:
            placed.append(outcome.decision)
    assert [outcome.verdicts() for outcome, _verdicts in told] == [verdicts for _outcome, verdicts in told]


@settings(deadline=None)
@given(storages(), requests())
def test_what_is_taken_back__is_free_again(found: tuple[Storage, ...], wanted: list[Request]) -> None:
    where = placed_on(found)
    decisions = [decision for request in wanted if (decision := where.schedule(request).decision) is not None]
    for decision in decisions:
        where.undo(decision)
    assert {s.use.pending for info in where.cluster.nodes for s in info.storages.values()} <= {0}


@settings(deadline=None)
@given(storages(), drives())
def test_drives__are_turned_away_only_where_no_way_to_share_them_out_fits(
    found: tuple[Storage, ...], disks: tuple[Disk, ...]
) -> None:
    info = cluster([node(name) for name in NODES], storages=found).nodes[0]
    result = find_volumes(vm(disks=disks), info, PARSED)
    assert isinstance(result, (Binding, Status))
    fitting = [
        way for way in itertools.product(sorted(info.storages), repeat=len(disks)) if _fits(info.storages, disks, way)
    ]
    assert bool(fitting) == isinstance(result, Binding)


def _fits(seen: dict[str, NodeStorage], disks: tuple[Disk, ...], way: tuple[str, ...]) -> bool:
    """Whether one way to share the drives out keeps to all limits, the drives taken in the engine's order."""
    for disk, name in zip(disks, way, strict=True):
        storage = seen[name]
        if not storage.active or "images" not in storage.content or not is_allowed(storage, class_of(disk)):
            return False
        if disk.storage not in (None, name):
            return False
    pairs = zip(disks, way, strict=True)
    order = sorted(pairs, key=lambda each: (each[0].storage is None, -each[0].size, each[0].slot))
    taken: dict[str, int] = {}
    for disk, name in order:
        use = seen[name].use
        taken[name] = taken.get(name, 0) + disk.size
        if disk.size and use.used + taken[name] > limit(class_of(disk), seen[name]):
            return False
    return True
