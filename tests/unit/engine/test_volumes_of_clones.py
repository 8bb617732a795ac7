# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where clones may be made from which template, and what they take: as Proxmox has it."""

from __future__ import annotations

import typing as t

import pytest
from support.small_cluster import cluster, node, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import NodeInfo
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cloning import source_for
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import (
    Shortage,
    Status,
    unresolvable,
    unschedulable,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.volumes import Binding, find_volumes
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    MIB,
    CloneSource,
    Disk,
    Storage,
    StorageClass,
    Template,
)

OFFLINE = frozenset({"off"})


def info(name: str, *storages: Storage) -> NodeInfo:
    """One node of a cluster of pve1, pve2 and the offline node off, with what it sees of the storages."""
    nodes = [node(each, online=each not in OFFLINE) for each in ("pve1", "pve2", "off")]
    found = cluster(nodes, storages=storages).by_name.get(name)
    assert found is not None
    return found


def local(name: str = "data", *at: str) -> list[Storage]:
    return [Storage(name, each, "lvmthin", total=100 * GIB) for each in at or ("pve1", "pve2")]


def shared(name: str = "ceph", *at: str, **fields: t.Any) -> list[Storage]:
    return [Storage(name, each, "rbd", shared=True, total=100 * GIB, **fields) for each in at or ("pve1", "pve2")]


def template(at: str = "pve1", vmid: int = 900, on: str = "ceph", **fields: t.Any) -> Template:
    return Template(vmid, at, "debian", volumes=(("scsi0", on, 10 * GIB),), **fields)


def obstacle(templates: tuple[Template, ...], at: NodeInfo, **clone: t.Any) -> Status | None:
    found = source_for(CloneSource(templates, **clone), at)
    return found if isinstance(found, Status) else None


@pytest.mark.parametrize(
    ("storages", "fields", "clone", "expected"),
    [
        (shared(), {}, {}, None),
        (shared(), {}, {"full": False}, None),
        (local(), {"on": "data"}, {}, "its scsi0 is on local storage 'data' of pve1"),
        (local(), {"on": "data"}, {"full": False}, "its scsi0 is on local storage 'data' of pve1"),
        (shared("ceph", "pve1"), {}, {}, "its scsi0 is on storage 'ceph' of pve1"),
        (shared() + local(), {"on": "data"}, {"storage": "ceph"}, "its scsi0 is on local storage 'data' of pve1"),
        (shared() + local(), {}, {"storage": "data"}, None),
        (shared() + shared("nfs"), {}, {"storage": "nfs"}, None),
        (shared() + shared("nfs", "pve2"), {}, {"storage": "nfs"}, None),
        (shared() + local(), {"media": (("ide2", "data"),)}, {}, "its ide2 is on local storage 'data' of pve1"),
        (shared() + shared("nfs"), {"media": (("ide2", "nfs"),)}, {}, None),
        (shared("ceph", active=False), {}, {}, "storage 'ceph' of its scsi0 is not active"),
    ],
)
def test_clone_for_another_node__needs_everything_on_shared_storage(
    storages: list[Storage], fields: dict[str, t.Any], clone: dict[str, t.Any], expected: str | None
) -> None:
    found = obstacle((template(**fields),), info("pve2", *storages), **clone)
    assert (found and (found.reason, found.detail)) == (expected and ("couldn't be cloned to from 'debian'", expected))


@pytest.mark.parametrize(
    ("storages", "fields", "clone"),
    [
        (local(), {"on": "data"}, {}),
        (shared() + local(), {}, {"storage": "data"}),
        (shared() + local(), {"media": (("ide2", "data"),)}, {}),
    ],
)
def test_template_on_its_own_node__may_have_it_all_on_local_storage(
    storages: list[Storage], fields: dict[str, t.Any], clone: dict[str, t.Any]
) -> None:
    assert obstacle((template(**fields),), info("pve1", *storages), **clone) is None


def test_obstacle__is_worth_waiting_for_only_if_it_may_pass() -> None:
    down = obstacle((template(),), info("pve2", *shared(active=False)))
    assert down is not None
    assert down.resolvable
    never = obstacle((template(on="data"),), info("pve2", *local()))
    assert never is not None
    assert not never.resolvable


def test_node__prefers_its_own_copy_to_one_that_it_can_reach() -> None:
    copies = (template("pve1", 900), template("pve2", 901))
    chosen = [source_for(CloneSource(copies), info(name, *shared())) for name in ("pve1", "pve2")]
    assert chosen == [copies[0], copies[1]]


def test_node_without_a_copy_of_its_own__takes_one_that_it_can_reach() -> None:
    copies = (template("pve1", 900, on="data"), template("off", 901))
    storages = local("data", "pve1") + shared("ceph", "off", "pve2")
    assert source_for(CloneSource(copies), info("pve2", *storages)) == copies[1]


def test_every_copy_out_of__reach_is_told_but_not_endlessly() -> None:
    copies = tuple(template(f"pve{number}", 900 + number, on="data") for number in range(3, 9))
    found = obstacle(copies, info("pve2", *local()))
    assert found is not None
    assert found.detail == "; ".join(f"its scsi0 is on local storage 'data' of pve{number}" for number in (3, 4, 5))


# --- what the drives of a clone take ---


def bound(*disks: Disk, source: Template | None = None, classes: t.Any = (), **clone: t.Any) -> Binding | Status:
    request = vm(disks=disks, clone=CloneSource((source or template(),), **clone))
    at = info("pve1", *shared(), *local())
    return find_volumes(request, at, {each.name: each for each in classes})


def test_linked_clone__stays_on_its_templates_storage_and_takes_its_growth() -> None:
    found = bound(Disk("scsi0", 12 * GIB), Disk("scsi1", GIB, "data"), full=False)
    assert isinstance(found, Binding)
    assert found.storages == {"scsi0": "ceph", "scsi1": "data"}
    assert found.bytes == {"ceph": 2 * GIB, "data": GIB}


def test_linked_clone__copies_the_cloud_init_drive() -> None:
    source = Template(
        900, "pve1", "debian", (("ide2", "data", 4 * MIB), ("scsi0", "ceph", 10 * GIB)), copied=frozenset({"ide2"})
    )
    found = bound(source=source, full=False)
    assert isinstance(found, Binding)
    assert found.bytes == {"data": 4 * MIB}


def test_full_clone__takes_all_drives_to_the_storage_that_is_asked_for() -> None:
    source = Template(
        900, "pve1", "debian", (("efidisk0", "ceph", 4 * MIB), ("ide2", "ceph", 4 * MIB), ("scsi0", "ceph", GIB))
    )
    found = bound(source=source, storage="data")
    assert isinstance(found, Binding)
    assert found.storages == {"efidisk0": "data", "ide2": "data", "scsi0": "data"}
    assert found.bytes == {"data": GIB + 8 * MIB}


def test_drive_of_a_linked_clone__does_not_go_to_another_storage() -> None:
    found = bound(Disk("scsi0", 10 * GIB, "data"), full=False)
    assert found == unresolvable(
        "couldn't get a clone of 'debian' with scsi0 on storage 'data'", "it is made on 'ceph'"
    )
    assert isinstance(bound(Disk("scsi0", storage_class="here"), full=False, classes=[HERE]), Status)


HERE = StorageClass("here", shared=False)
TWO = (("efidisk0", "ceph", 4 * MIB), ("scsi0", "ceph", 10 * GIB))


@pytest.mark.parametrize(
    ("at", "drives", "clone", "landing", "expected"),
    [
        ("pve1", (), {}, None, {"efidisk0": "ceph", "scsi0": "ceph"}),
        ("pve1", (), {"storage": "data"}, "data", {"efidisk0": "data", "scsi0": "data"}),
        ("pve1", (), {"storage_class": "here"}, "data", {"efidisk0": "data", "scsi0": "data"}),
        ("pve1", (Disk("scsi0", storage="data"),), {}, "data", {"efidisk0": "ceph", "scsi0": "data"}),
        ("pve1", (Disk("efidisk0", storage="data"),), {}, "ceph", {"efidisk0": "data", "scsi0": "ceph"}),
        ("pve2", (), {"storage": "data"}, None, {"efidisk0": "data", "scsi0": "data"}),
        ("pve2", (), {"storage_class": "here"}, None, {"efidisk0": "data", "scsi0": "data"}),
        ("pve2", (), {"storage": "nfs"}, "nfs", {"efidisk0": "nfs", "scsi0": "nfs"}),
        ("pve2", (), {"storage": "far"}, None, {"efidisk0": "far", "scsi0": "far"}),
        (
            "pve2",
            (Disk("scsi0", storage_class="here"),),
            {"storage": "nfs"},
            None,
            {"efidisk0": "nfs", "scsi0": "data"},
        ),
    ],
)
def test_full_clone__lands_where_least_has_to_be_moved(
    at: str, drives: tuple[Disk, ...], clone: dict[str, t.Any], landing: str | None, expected: dict[str, str]
) -> None:
    source = Template(900, "pve1", "debian", TWO)
    request = vm(disks=drives, clone=CloneSource((source,), **clone))
    storages = [*shared(), *shared("nfs"), *shared("far", "pve2"), *local()]
    found = find_volumes(request, info(at, *storages), {"here": HERE})
    assert isinstance(found, Binding)
    assert (found.landing, found.storages) == (landing, expected)


def test_storage_that_a_clone_only_lands_on__needs_room_for_it_as_well() -> None:
    request = vm(clone=CloneSource((template(),), storage="data"))
    full = [Storage("ceph", at, "rbd", shared=True, total=100 * GIB, used=95 * GIB) for at in ("pve1", "pve2")]
    assert isinstance(find_volumes(request, info("pve1", *full, *local()), {}), Binding)
    found = find_volumes(request, info("pve2", *full, *local()), {})
    assert isinstance(found, Status)
    assert (found.reason, found.resolvable) == ("had too little space on storage 'ceph'", True)
    assert found.detail == "the clone is made there, and needs 10 GiB, 5 GiB free, before its drives are moved"


def test_copy_on_the_right_storage__decides_where_a_drive_can_be_had() -> None:
    copies = (template("pve1", 900, on="data"), template("pve2", 901, on="fast"))
    request = vm(disks=(Disk("scsi0", 10 * GIB, "fast"),), clone=CloneSource(copies))
    storages = local("data", "pve1") + local("fast", "pve2")
    assert isinstance(find_volumes(request, info("pve1", *storages), {}), Status)
    found = find_volumes(request, info("pve2", *storages), {})
    assert isinstance(found, Binding)
    assert found.template == copies[1]


def test_drive_of_the_template__is_where_the_request_says_when_the_clone_goes_there() -> None:
    found = bound(Disk("scsi0", 20 * GIB, "data"), storage="data")
    assert isinstance(found, Binding)
    assert found.bytes == {"data": 20 * GIB}


def test_class__holds_for_the_drives_of_the_template_as_well() -> None:
    classes = [StorageClass("shared", shared=True), StorageClass("local", shared=False)]
    assert isinstance(bound(Disk("scsi0", storage_class="shared"), classes=classes), Binding)
    found = bound(Disk("scsi0", storage_class="local"), classes=classes, full=False)
    assert found == unresolvable("had storage 'ceph' outside of storage class 'local'", "scsi0")


def test_linked_clone_that_takes_nothing__fits_where_nothing_is_left() -> None:
    full = [Storage("ceph", "pve1", "rbd", shared=True, total=10 * GIB, used=11 * GIB)]
    request = vm(clone=CloneSource((template(),), full=False))
    assert isinstance(find_volumes(request, info("pve1", *full), {}), Binding)
    grown = vm(clone=CloneSource((template(),), full=False), disks=(Disk("scsi0", 11 * GIB),))
    assert find_volumes(grown, info("pve1", *full), {}) == unschedulable(
        "had too little space on storage 'ceph'", "scsi0 needs 1 GiB, 0 GiB free", Shortage("storage", 2 * GIB)
    )
