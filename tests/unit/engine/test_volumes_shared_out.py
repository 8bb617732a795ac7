# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which storage each drive gets when there are several of both, and what exists already has to be on the node."""

from __future__ import annotations

import typing as t

import pytest
from support.effort import lines_run
from support.small_cluster import cluster, node, profile, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import (
    Shortage,
    Status,
    unresolvable,
    unschedulable,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import build_profiles
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.volumes import (
    MOST_TRIES,
    Binding,
    find_volumes,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Disk, Storage, StorageClass

FAST = StorageClass("fast", storages=("fast-.*",))
ISO = "media:iso/debian.iso"
IMAGE = "media:import/debian.qcow2"


def data(name: str, gib: float, at: str = "pve1", **fields: t.Any) -> Storage:
    return Storage(name, at, total=int(gib * GIB), **fields)


def find(
    disks: tuple[Disk, ...],
    *storages: Storage,
    classes: tuple[StorageClass, ...] = (FAST,),
    volumes: t.Mapping[tuple[str, str], int | None] | None = None,
    at: str = "pve1",
) -> Binding | Status:
    names = sorted({storage.node for storage in storages})
    info = cluster([node(name) for name in names], storages=storages, volumes=volumes or {}).by_name.get(at)
    assert info is not None
    return find_volumes(vm(disks=disks), info, {each.name: each for each in classes})


def new(slot: str, gib: float, **fields: t.Any) -> Disk:
    return Disk(slot, int(gib * GIB), **fields)


def storages_of(found: Binding | Status) -> dict[str, str]:
    assert isinstance(found, Binding), found
    return found.storages


def test_large_drive__gives_way_to_one_that_has_no_other_place() -> None:
    disks = new("scsi0", 10), new("scsi1", 8, storage_class="fast")
    found = find(disks, data("fast-1", 12), data("slow", 10))
    assert storages_of(found) == {"scsi0": "slow", "scsi1": "fast-1"}
    assert isinstance(found, Binding)
    assert found.bytes == {"slow": 10 * GIB, "fast-1": 8 * GIB}


def test_drives_that_are_made_together__give_way_together() -> None:
    disks = new("scsi0", 10, others=("scsi1", "efidisk0")), new("scsi2", 8, storage_class="fast")
    found = find(disks, data("fast-1", 12), data("slow", 10))
    assert storages_of(found) == {**dict.fromkeys(("scsi0", "scsi1", "efidisk0"), "slow"), "scsi2": "fast-1"}
    refused = find(disks[:1], data("slow", 9))
    assert isinstance(refused, Status)
    assert "scsi0 with scsi1, efidisk0 needs 10 GiB, 9 GiB free on slow" in refused.text


def test_drives__are_shared_out_until_all_fit() -> None:
    disks = new("scsi0", 10), new("scsi1", 6), new("scsi2", 6)
    assert storages_of(find(disks, data("a", 12), data("b", 10))) == {"scsi0": "b", "scsi1": "a", "scsi2": "a"}


def test_storage_class__matches_each_storage_name_once() -> None:
    """Another drive or node costs the same, however many patterns the class has."""

    def again(patterns: int) -> int:
        many = StorageClass("many", storages=tuple(f"x-{number}-.*" for number in range(patterns)))
        disks, storages = (new("scsi0", 1, storage_class="many"),), [data(f"s{number}", 9) for number in range(20)]
        find(disks, *storages, classes=(many,))
        return lines_run(lambda: find(disks, *storages, classes=(many,)), at_most=10**6)

    assert again(200) == again(1)


def test_search_for_room__ends() -> None:
    disks = tuple(new(f"scsi{number}", 10) for number in range(30))
    found = find(disks, *(data(f"s{number}", 59) for number in range(5)))
    assert isinstance(found, Status), "25 drives fit, 30 do not, and there are too many ways to try them all"
    assert MOST_TRIES < 5**5
    # Where the straight way leads to a place for each, the limit does not matter.
    assert isinstance(find(disks[:25], *(data(f"s{number}", 59) for number in range(5))), Binding)


def test_what_is_told__is_where_the_straight_way_ended() -> None:
    found = find((new("scsi0", 10), new("scsi1", 8)), data("a", 12), data("b", 5))
    assert found == unschedulable(
        "had no storage for content type 'images'", "scsi1 needs 8 GiB, 5 GiB free on b", Shortage("storage", 3 * GIB)
    )


@pytest.mark.parametrize(
    ("storages", "detail", "resolvable"),
    [
        ([data("slow", 100), data("hdd", 100)], "scsi0: there is none among hdd (dir) and slow (dir)", False),
        ([data("fast-1", 100, content=frozenset({"iso"}))], "scsi0: there is none", False),
        ([data(f"fast-{n}", 9, active=False) for n in (1, 2)], "scsi0: fast-1, fast-2 not active", True),
    ],
)
def test_class_without_a_storage_here__says_whether_one_is_only_inactive(
    storages: list[Storage], detail: str, resolvable: bool
) -> None:
    found = find((new("scsi0", 1, storage_class="fast"),), *storages)
    assert isinstance(found, Status)
    assert (found.reason, found.detail) == ("had no storage for storage class 'fast'", detail)
    assert found.resolvable is resolvable


@pytest.mark.parametrize("named", ["data", None])
@pytest.mark.parametrize(
    ("wanted", "most"),
    [
        (StorageClass("roomy"), 100),
        (StorageClass("roomy", overcommit=2, reserved=0.1), 190),
        (StorageClass("roomy", reserved=30 * GIB), 70),
    ],
)
def test_what_even_the_empty_storage_could_not_hold__is_not_waited_for(
    wanted: StorageClass, most: int, named: str | None
) -> None:
    full = data("data", 100, used=180 * GIB)
    for gib, hopeful in ((most, True), (most + 1, False)):
        disk = new("scsi0", gib, storage=named, storage_class="roomy")
        found = find((disk,), full, classes=(wanted,))
        assert isinstance(found, Status)
        assert (found.resolvable, bool(found.shortages)) == (hopeful, True)


def test_drives_that_name_one_storage__must_fit_there_together_to_be_waited_for() -> None:
    for second, hopeful in ((40, True), (50, False)):
        disks = new("scsi0", 60, storage="data"), new("scsi1", second, storage="data")
        found = find(disks, data("data", 100, used=30 * GIB))
        assert isinstance(found, Status)
        assert found.resolvable is hopeful


def test_storage_that_is_not_active_or_of_unknown_size__may_be_large_enough() -> None:
    small = data("small", 10)
    for other in (data("large", 100, active=False), data("unknown", 0)):
        found = find((new("scsi0", 50),), small, other)
        assert isinstance(found, Status)
        assert found.resolvable
    found = find((new("scsi0", 50),), small, data("large", 100, content=frozenset({"iso"})))
    assert isinstance(found, Status)
    assert not found.resolvable


def test_local_storages_of_different_nodes__go_to_no_node_together() -> None:
    storages = data("here", 100, "pve1"), data("there", 100, "pve2")
    disks = new("scsi0", 1, storage="here"), new("scsi1", 1, storage="there")
    reasons = [found.reason for at in ("pve1", "pve2") if isinstance(found := find(disks, *storages, at=at), Status)]
    assert reasons == ["didn't have storage 'there'", "didn't have storage 'here'"]


@pytest.mark.parametrize(("gib", "told"), [(64, "64 GiB, 12 GiB"), (0.5, None), (20000, "20000 GiB, 12 GiB")])
def test_sizes__are_told_in_gib(gib: float, told: str | None) -> None:
    found = find((new("scsi0", gib, storage="data"),), data("data", 12))
    assert (isinstance(found, Status) and found.detail) == (told is not None and f"scsi0 needs {told} free")


# --- ISO images, and what is imported ---

LOCAL = [data("media", 50, at, content=frozenset({"iso", "import"})) for at in ("pve1", "pve2")]
DATA = [data("data", 50, at) for at in ("pve1", "pve2")]
CD = Disk("ide2", content="iso", storage="media", volume=ISO)


def test_image_on_local_storage_of_one_node__keeps_the_vm_there() -> None:
    volumes = {("pve1", ISO): GIB, ("pve2", ISO): None}
    assert isinstance(find((CD,), *LOCAL, volumes=volumes), Binding)
    assert find((CD,), *LOCAL, volumes=volumes, at="pve2") == unresolvable("didn't have 'media:iso/debian.iso'")


def test_image_of_which_nothing_is_known__may_be_there() -> None:
    assert isinstance(find((CD,), *LOCAL), Binding)


def test_what_is_imported__takes_its_own_size_or_the_one_asked_for() -> None:
    for asked, size in ((0, 20), (5, 20), (30, 30)):
        found = find((new("scsi0", asked, source=IMAGE),), *LOCAL, *DATA, volumes={("pve1", IMAGE): 20 * GIB})
        assert isinstance(found, Binding)
        assert found.bytes == {"data": size * GIB}
    found = find((new("scsi0", 0, source=IMAGE),), *LOCAL, *DATA, volumes={("pve1", IMAGE): 60 * GIB})
    assert found == unresolvable(
        "had no storage for content type 'images'",
        "scsi0 needs 60 GiB, 50 GiB free on data",
        Shortage("storage", 10 * GIB),
    )


def test_what_is_imported__must_be_on_a_storage_of_the_node() -> None:
    volumes = {("pve1", IMAGE): GIB, ("pve2", IMAGE): None}
    disks = (new("scsi0", 0, source=IMAGE),)
    assert isinstance(find(disks, *LOCAL, *DATA, volumes=volumes), Binding)
    for storages, reason in ((LOCAL, "didn't have 'media:import/debian.qcow2'"), (LOCAL[:1], "didn't have storage")):
        found = find(disks, *storages, *DATA, volumes=volumes, at="pve2")
        assert isinstance(found, Status)
        assert found.reason.startswith(reason)


def test_path_to_import_from__says_nothing_of_storages() -> None:
    assert isinstance(find((new("scsi0", 1, source="/srv/images/debian.qcow2"),), *DATA), Binding)


# --- the classes of one profile ---


def test_scores__take_over_the_classes_that_drives_are_bound_by() -> None:
    config = {
        "filters": {"VolumeBinding": {"config": {"storage_classes": {"fast": {"storages": ["fast-.*"]}}}}},
        "scores": {"LeastAllocated": {"config": {"storage_weight": 1}}, "BalancedAllocation": {}},
    }
    profiles = build_profiles(builtin_registry(), config)
    assert not {"Random", "MostAllocated"} & set(profiles["balanced"].weights), "none is turned on by it"
    state = cluster([node("pve1")], storages=(data("fast-1", 12), data("slow", 100)))
    outcome = Scheduler(state, profiles).schedule(vm(disks=(new("scsi0", 1, storage_class="fast"),)))
    assert outcome.error is None
    assert outcome.decision is not None
    assert outcome.decision.storages == {"scsi0": "fast-1"}


def test_storage_classes__of_a_binding_that_is_off_are_known_to_scores_all_the_same() -> None:
    off = {"enable": False}
    config = {
        "filters": {"VolumeBinding": {**off, "config": {"storage_classes": {"fast": {}}}}},
        "reserves": {"VolumeBinding": off},
    }
    policy = build_profiles(builtin_registry(), config)["balanced"].policy
    assert list(policy.storage_classes) == ["fast"]
    assert "storage_classes" not in policy.enforced


def test_profile_without_classes__is_as_it_was() -> None:
    assert build_profiles(builtin_registry())["balanced"].weights == profile().weights
