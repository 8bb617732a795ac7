# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VolumeBinding, TemplateLocality and StorageBalance: where drives go, and where clones can be made."""

from __future__ import annotations

import typing as t

import pytest
from support.looking import allowed, normalized, reasons
from support.small_cluster import cluster, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import NodeInfo
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import (
    CycleState,
    FilterPlugin,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import (
    Category,
    Status,
    unschedulable,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.verdicts import Outcome
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    InvalidPluginConfig,
    InvalidRequest,
    NoStorageAvailable,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    MIB,
    CloneSource,
    Disk,
    Expression,
    Request,
    Storage,
    Template,
)


def storage(name: str, at: str, gib: float = 100, used: float = 0, **fields: t.Any) -> Storage:
    return Storage(name, at, total=int(gib * GIB), used=int(used * GIB), **fields)


def disk(slot: str = "scsi0", gib: float = 10, storage: str | None = None, **fields: t.Any) -> Disk:
    return Disk(slot, int(gib * GIB), storage, **fields)


def where(*storages: Storage, **classes: t.Any) -> Scheduler:
    """A scheduler over the nodes that the storages name."""
    config = {"config": {"storage_classes": classes}}
    nodes = [node(name) for name in sorted({s.node for s in storages})]
    return scheduler(cluster(nodes, storages=storages), {"filters": {"VolumeBinding": config}})


def with_disks(*disks: Disk) -> Request:
    return vm(disks=disks)


def reason(outcome: Outcome, at: str = "pve1") -> str | None:
    return reasons(outcome, "VolumeBinding").get(at)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": "other"}, "didn't have storage 'data'"),
        ({"active": False}, "had storage 'data' not active"),
        ({"content": frozenset({"iso"})}, "had storage 'data' without content type 'images'"),
        ({"used": 91}, "had too little space on storage 'data' (scsi0 needs 10 GiB, 9 GiB free)"),
        ({"used": 90}, None),
    ],
)
def test_named_storage__must_be_there_active_of_the_kind_and_have_the_space(
    fields: dict[str, t.Any], expected: str | None
) -> None:
    outcome = where(storage(**{"name": "data", "at": "pve1", **fields})).schedule(with_disks(disk(storage="data")))
    assert reason(outcome) == expected


def test_unnamed_storage__is_the_one_with_the_most_space_left() -> None:
    found = where(storage("a", "pve1", used=50), storage("b", "pve1", used=40), storage("c", "pve1", used=60))
    decision = found.schedule(with_disks(disk())).decision
    assert decision is not None
    assert decision.storages == {"scsi0": "b"}
    assert decision.storage_bytes == {("b", "pve1"): 10 * GIB}


def test_inactive_storages_and_those_for_other_content__are_not_chosen() -> None:
    storages = [
        storage("off", "pve1", active=False),
        storage("iso", "pve1", content=frozenset({"iso"})),
        storage("small", "pve1", gib=20),
    ]
    decision = where(*storages).schedule(with_disks(disk())).decision
    assert decision is not None
    assert decision.storages == {"scsi0": "small"}


def test_disks_of_one_vm__do_not_take_the_same_space_twice() -> None:
    found = where(storage("data", "pve1", gib=15))
    assert reason(found.schedule(with_disks(disk(), disk("scsi1")))) is not None
    assert reason(found.schedule(with_disks(disk(storage="data"), disk("scsi1", storage="data")))) is not None
    spread = where(storage("a", "pve1", gib=15), storage("b", "pve1", gib=12))
    decision = spread.schedule(with_disks(disk(), disk("scsi1"))).decision
    assert decision is not None
    assert decision.storages == {"scsi0": "a", "scsi1": "b"}


@pytest.mark.parametrize("named", ["data", None])
def test_disks_of_decided_vms__count(named: str | None) -> None:
    found = where(storage("data", "pve1", gib=25))
    outcomes = [found.schedule(with_disks(disk(storage=named))) for _vm in range(3)]
    assert [outcome.decision is not None for outcome in outcomes] == [True, True, False]


def test_shared_storage__is_counted_once_for_the_cluster() -> None:
    found = where(*[storage("ceph", f"pve{n}", gib=25, shared=True) for n in range(3)])
    outcomes = [found.schedule(with_disks(disk())) for _ in range(3)]
    assert [outcome.decision is not None for outcome in outcomes] == [True, True, False]
    assert len(reasons(outcomes[-1], "VolumeBinding")) == 3


def test_existing_volume_binds_but__takes_no_space() -> None:
    iso = Disk("ide2", volume="media:iso/debian.iso", content="iso")
    found = where(storage("media", "pve1", gib=1, used=1), storage("data", "pve2"))
    outcome = found.schedule(with_disks(iso))
    assert allowed(outcome) == {"pve1"}
    assert outcome.decision is not None
    assert outcome.decision.storage_bytes == {}


def test_what_is_imported__must_be_on_the_node_too() -> None:
    wanted = disk(storage="data", source="images:import/debian.qcow2")
    found = where(storage("data", "pve1"), storage("data", "pve2"), storage("images", "pve2"))
    assert allowed(found.schedule(with_disks(wanted))) == {"pve2"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"storages": ["fast-.*"]}, "fast-1"),
        ({"types": ["rbd"]}, "ceph"),
        ({"shared": True}, "ceph"),
        ({"shared": False, "types": ["dir"]}, "big"),
    ],
)
def test_storage_class__narrows_the_choice(body: dict[str, t.Any], expected: str) -> None:
    storages = [
        storage("big", "pve1", gib=1000),
        storage("fast-1", "pve1", gib=50, type="zfspool"),
        storage("ceph", "pve1", gib=60, type="rbd", shared=True),
    ]
    decision = where(*storages, wanted=body).schedule(with_disks(disk(storage_class="wanted"))).decision
    assert decision is not None
    assert decision.storages == {"scsi0": expected}


def test_class__may_overcommit_and_keep_a_reserve() -> None:
    data = storage("data", "pve1", gib=10)
    assert where(data, thin={"overcommit": 2}).schedule(with_disks(disk(gib=20, storage_class="thin"))).decision
    assert not where(data, thin={"overcommit": 2}).schedule(with_disks(disk(gib=21, storage_class="thin"))).decision
    for reserve in ("10%", 1):
        assert where(data, kept={"reserved": reserve}).schedule(with_disks(disk(gib=9, storage_class="kept"))).decision
        outcome = where(data, kept={"reserved": reserve}).schedule(with_disks(disk(gib=9.5, storage_class="kept")))
        assert outcome.decision is None


def test_class_that_does_not_exist__is_named_with_those_that_do() -> None:
    error = where(storage("data", "pve1"), fast={}).schedule(with_disks(disk(storage_class="fats"))).error
    assert isinstance(error, InvalidRequest)
    assert error.message == "scsi0: unknown storage_class 'fats'; known classes: fast; did you mean fast?"


@pytest.mark.parametrize(
    "body", [{"reserved": "110%"}, {"storages": ["a["]}, {"overcomit": 2}, {"shared": "perhaps"}], ids=str
)
def test_class_with_a_mistake__is_refused(body: dict[str, t.Any]) -> None:
    with pytest.raises(InvalidPluginConfig, match=r"storage_classes\.fast"):
        where(storage("data", "pve1"), fast=body)


@pytest.mark.parametrize(
    ("images", "told"),
    [
        ({"pve1": 11 * GIB, "pve2": 12 * GIB}, "scsi0: nfs:import/x.raw has 11 GiB and cannot shrink to 10 GiB"),
        ({"pve1": 11 * GIB}, "scsi0: nfs:import/x.raw has 11 GiB and cannot shrink to 10 GiB"),
        # The other node has a smaller one.
        ({"pve1": 11 * GIB, "pve2": 9 * GIB}, None),
        # A file of an image is a little larger than its disk.
        ({"pve1": 10 * GIB + 10 * MIB}, None),
        ({"pve1": None}, None),
        ({}, None),
    ],
    ids=str,
)
def test_image_that_is_larger_than_its_disk_is_to_be__is_refused(
    images: dict[str, int | None], told: str | None
) -> None:
    nodes = [node("pve1"), node("pve2")]
    storages = [storage(name, at) for name in ("data", "nfs") for at in ("pve1", "pve2")]
    volumes = {(at, "nfs:import/x.raw"): size for at, size in images.items()}
    found = scheduler(cluster(nodes, storages=storages, volumes=volumes))
    outcome = found.schedule(with_disks(disk(storage="data", source="nfs:import/x.raw")))
    assert (outcome.error.message if isinstance(outcome.error, InvalidRequest) else None) == told


def test_error__says_so_when_only_space_is_missing() -> None:
    outcome = where(storage("data", "pve1", gib=15, used=10)).schedule(with_disks(disk(storage="data")))
    assert isinstance(outcome.error, NoStorageAvailable)
    assert outcome.resolvable


@pytest.mark.parametrize(
    "fields",
    [{"node": "pve1"}, {"node_regex": "pve1"}, {"node_required": (Expression("node", "In", ("pve1",)),)}],
    ids=str,
)
def test_nodes_that_were_never_meant__do_not_speak_against_a_lack_of_storage(fields: dict[str, t.Any]) -> None:
    found = where(storage("data", "pve1", gib=5), storage("data", "pve2"))
    assert isinstance(found.schedule(vm(disks=(disk(storage="data"),), **fields)).error, NoStorageAvailable)


class Encrypted(FilterPlugin):
    """A storage filter of one's own."""

    name = "Encrypted"
    category = Category.STORAGE

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        return unschedulable("had no encrypted storage", f"{node.name}: none")


def test_category__of_a_plugin_of_ones_own_makes_a_lack_of_storage_as_the_built_in_one_does() -> None:
    found = scheduler(cluster([node("pve1"), node("pve2", online=False)]), own=[Encrypted]).schedule(vm())
    assert isinstance(found.error, NoStorageAvailable)
    assert found.message.endswith(
        "1 node(s) had no encrypted storage (pve1), 1 node(s) were offline (pve2); pve1: none; "
        "without Encrypted, pve1 would fit"
    )
    assert [(v.status and v.status.plugin, v.status and v.status.category) for v in found.verdicts()] == [
        ("Encrypted", Category.STORAGE),
        ("NodeReady", Category.PLACEMENT),
    ]


def test_storage_that_is_not_there__will_not_come_by_waiting() -> None:
    assert not where(storage("other", "pve1")).schedule(with_disks(disk(storage="data"))).resolvable


# --- clones ---


def template(at: str, vmid: int = 900, on: str = "data") -> Template:
    return Template(vmid, at, "debian", volumes=(("scsi0", on, 10 * GIB),))


def clone(*templates: Template, disks: tuple[Disk, ...] = (), **fields: t.Any) -> Request:
    return vm(clone=CloneSource(templates, **fields), disks=disks)


BOTH = [storage("data", "pve1", gib=50), storage("data", "pve2", gib=40)]


def test_template_on_local_storage__is_cloned_on_its_own_node() -> None:
    outcome = where(*BOTH).schedule(clone(template("pve2")))
    assert allowed(outcome) == {"pve2"}
    assert reasons(outcome, "TemplateLocality") == {
        "pve1": "couldn't be cloned to from 'debian' (its scsi0 is on local storage 'data' of pve2)"
    }


def test_template_on_shared_storage__is_cloned_anywhere_that_sees_it() -> None:
    shared = [storage("data", name, gib=50, shared=True) for name in ("pve1", "pve2")]
    found = where(*shared, storage("other", "pve3"))
    assert allowed(found.schedule(clone(template("pve2")))) == {"pve1", "pve2"}


def test_node__takes_its_own_copy_of_the_template() -> None:
    decision = where(*BOTH).schedule(clone(template("pve1", 901), template("pve2", 902))).decision
    assert decision is not None
    assert (decision.node, decision.template and decision.template.vmid) == ("pve1", 901)


@pytest.mark.parametrize(
    ("fields", "disks", "expected"),
    [
        ({"full": True}, (), {("data", "pve1"): 10 * GIB}),
        ({"full": True}, (disk(gib=15),), {("data", "pve1"): 15 * GIB}),
        ({"full": True, "storage": "fast"}, (), {("fast", "pve1"): 10 * GIB}),
        ({"full": False}, (), {}),
        ({"full": False}, (disk(gib=15),), {("data", "pve1"): 5 * GIB}),
        ({"full": True}, (disk("scsi1", 7, "data"),), {("data", "pve1"): 17 * GIB}),
    ],
)
def test_clone__takes_what_is_copied_grown_or_added(
    fields: dict[str, t.Any], disks: tuple[Disk, ...], expected: dict[tuple[str, str], int]
) -> None:
    found = where(storage("data", "pve1"), storage("fast", "pve1"))
    decision = found.schedule(clone(template("pve1"), disks=disks, **fields)).decision
    assert decision is not None
    assert decision.storage_bytes == expected


# --- the score ---


def test_node_whose_storages_would_be_the_freest__scores_most() -> None:
    found = where(storage("data", "pve1", used=40), storage("data", "pve2", used=20))
    outcome = found.schedule(with_disks(disk(storage="data")))
    assert normalized(outcome, "StorageBalance") == {"pve1": 50.0, "pve2": 70.0}


def test_request_without_drives__has_no_such_score() -> None:
    assert normalized(where(storage("data", "pve1")).schedule(vm()), "StorageBalance") == {}
