# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `clone` means in a cluster: which guests, with which volumes, and what of a clone is refused at once."""

from __future__ import annotations

import typing as t

import pytest
from support.small_cluster import cluster, guest, node

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    AmbiguousName,
    CollectionError,
    InvalidRequest,
    TemplateNotFound,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    MIB,
    CloneSource,
    Guest,
    Request,
    Template,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.failures import NotRecorded
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.recorded import RecordedReader
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.unfinished import Unfinished
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import build_entries
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.templates import Templates

OPTIONS = [
    *("name", "vmid", "pool", "state", "update", "cores", "memory", "scsi", "ide", "efidisk0"),
    *("clone", "full", "storage", "format", "snapname"),
]
CONFIG: dict[str, t.Any] = {
    "cores": 2,
    "sockets": 2,
    "memory": "3072",
    "bios": "ovmf",
    "template": 1,
    "efidisk0": "ceph:base-900-disk-1,efitype=4m,size=4M",
    "ide0": "none,media=cdrom",
    "ide2": "local:iso/debian.iso,media=cdrom,size=600M",
    "ide3": "ceph:vm-900-cloudinit,media=cdrom",
    "scsi0": "ceph:base-900-disk-0,size=10G",
    "scsi1": "/dev/disk/by-id/usb-stick,size=1G",
    "unused0": "ceph:vm-900-disk-7",
    "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0",
}

PLAIN = {key: value for key, value in CONFIG.items() if key != "template"}


def golden(vmid: int = 900, at: str = "pve1", **fields: t.Any) -> Guest:
    return guest(vmid, at, **{"name": "golden", "status": "stopped", "template": True, **fields})


def resolve(
    *guests: Guest,
    configs: dict[str, dict[str, t.Any]] | None = None,
    answers: dict[str, t.Any] | None = None,
    offline: str = "",
    **options: t.Any,
) -> Request:
    """What a task with these options asks for; the guests are the cluster's, of which all have CONFIG if none is given.

    configs are by path below the node: 900/config; answers by their whole path.
    """
    recorded: dict[str, t.Any] = {"/cluster/resources": []}
    recorded |= {
        f"/nodes/{each.node}/qemu/{each.vmid}/config": CONFIG if each.template else PLAIN for each in guests
    }
    recorded |= {f"/nodes/pve1/qemu/{path}": config for path, config in (configs or {}).items()}
    recorded |= answers or {}
    nodes = [node(name, online=name != offline) for name in sorted({each.node for each in guests} | {"pve1"})]
    (entry,) = build_entries({"name": "new", "clone": "golden", **options}, OPTIONS, 0.0)
    return Templates(RecordedReader(recorded)).resolve(entry, cluster(nodes, guests))


def refused(*guests: Guest, **given: t.Any) -> CollectionError:
    with pytest.raises(CollectionError) as error:
        resolve(*guests, **given)
    return error.value


def source(*guests: Guest, **given: t.Any) -> CloneSource:
    found = resolve(*guests, **given).clone
    assert found is not None
    return found


def test_clone__has_its_templates_volumes_and_sizes() -> None:
    request = resolve(golden())
    assert (request.cores, request.memory) == (4, 3 * GIB)
    assert request.clone == CloneSource(
        (
            Template(
                900,
                "pve1",
                "golden",
                volumes=(("efidisk0", "ceph", 4 * MIB), ("ide3", "ceph", 4 * MIB), ("scsi0", "ceph", 10 * GIB)),
                copied=frozenset({"ide3"}),
                media=(("ide2", "local"),),
            ),
        )
    )


def test_requested_sizes__go_before_the_templates() -> None:
    request = resolve(golden(), cores=1, memory=1024)
    assert (request.cores, request.memory) == (2, GIB)  # the template has two sockets


def test_several_copies__count_by_the_largest() -> None:
    request = resolve(golden(), golden(901, "pve2"), configs={"900/config": {**CONFIG, "cores": 8, "memory": "512"}})
    assert (request.cores, request.memory) == (16, 3 * GIB)
    assert request.clone is not None
    assert [each.node for each in request.clone.templates] == ["pve1", "pve2"]


def test_template_by_vmid__is_that_guest_whatever_others_are_called() -> None:
    found = source(golden(), golden(901, "pve2"), clone="901")
    assert [each.vmid for each in found.templates] == [901]


def test_guest_that_is_no_template__can_be_cloned_in_full() -> None:
    plain = golden(template=False, status="running")
    assert source(plain, clone="golden").full
    assert source(plain, clone="golden", full=True).full


def test_clone__takes_cpu_options_that_are_not_given_from_the_template() -> None:
    assert (resolve(golden()).cores, resolve(golden()).cores_max) == (4, 4)
    assert (resolve(golden(), cores=8).cores, resolve(golden(), cores=8).cores_max) == (16, 16)


def test_clone__starts_with_the_vcpus_of_the_template_and_can_have_more() -> None:
    found = resolve(golden(), configs={"900/config": {**CONFIG, "vcpus": 1}})
    assert (found.cores, found.cores_max) == (1, 4)


def test_linked_clone_of_what_is_no_template__is_refused() -> None:
    plain = {key: value for key, value in CONFIG.items() if key != "template"}
    error = refused(golden(template=False), configs={"900/config": plain}, full=False)
    assert isinstance(error, InvalidRequest)
    assert error.message == (
        "full: VM 900 (golden) is not a template, and Proxmox makes linked clones of templates and of snapshots only, "
        'for VM "new"'
    )


def test_a_linked_clone__of_a_template_that_the_list_does_not_show_as_one_yet() -> None:
    assert CONFIG["template"]
    request = resolve(golden(template=False), answers={"/nodes/pve1/qemu/900/config": CONFIG}, full=False)
    assert request.clone is not None
    assert not request.clone.full


def test_snapshot__is_cloned_as_it_was() -> None:
    then = {**CONFIG, "cores": 1, "sockets": 1, "scsi0": "data:vm-900-disk-0,size=5G"}
    given = {"configs": {"900/config?snapshot=clean": then}, "snapname": "clean"}
    plain = golden(template=False, status="running")
    for full in (True, False):
        request = resolve(plain, full=full, **given)
        assert request.cores == 1
        assert request.clone is not None
        assert ("scsi0", "data", 5 * GIB) in request.clone.templates[0].volumes


def test_snapshot_that_is_not_there__is_not_taken_for_the_present() -> None:
    assert isinstance(refused(golden(), snapname="nope"), NotRecorded)


def test_tpm_state_of_a_running_guest__is_not_copied() -> None:
    with_tpm = {"900/config": {**CONFIG, "tpmstate0": "ceph:vm-900-disk-2,size=4M,version=v2.0"}}
    error = refused(golden(template=False, status="running"), configs=with_tpm)
    assert isinstance(error, InvalidRequest)
    assert "TPM" in error.message
    assert resolve(golden(template=False), configs=with_tpm).clone is not None


# --- which guests ---


def test_source_that_is_half_made__is_not_cloned() -> None:
    marked = {"900/config": {**CONFIG, "description": Unfinished("Debian").marked_description}}
    error = refused(golden(), configs=marked)
    assert error.message.startswith("clone: VM 900 (golden) is not finished")


def test_clone__is_to_have_its_templates_description() -> None:
    (template,) = source(golden(), configs={"900/config": {**CONFIG, "description": "Debian\n\n13\n"}}).templates
    assert template.description == "Debian\n\n13"


def test_copies_that_became_templates_a_moment_ago__count() -> None:
    late = golden(901, "pve2", template=False)
    found = source(golden(), late, answers={"/nodes/pve2/qemu/901/config": CONFIG})
    assert [each.vmid for each in found.templates] == [900, 901]


def test_copies_on_nodes_that_are_offline__are_passed_over() -> None:
    found = source(golden(), golden(901, "pve2"), offline="pve2")
    assert [each.vmid for each in found.templates] == [900]


def test_copies_that_are_all_offline__are_reported() -> None:
    error = refused(golden(901, "pve2"), offline="pve2")
    assert isinstance(error, TemplateNotFound)
    assert error.message == 'clone: VM 901 (golden) is on pve2, which is offline, for VM "new"'


@pytest.mark.parametrize("clone", ["other", "4711"])
def test_what_is_not_there__cannot_be_cloned(clone: str) -> None:
    assert isinstance(refused(golden(), clone=clone), TemplateNotFound)


@pytest.mark.parametrize(
    "guests",
    [
        (golden(), golden(901)),
        (golden(template=False), golden(901, "pve2", template=False)),
        (golden(), golden(901, "pve2", pool="tenant")),
        (golden(pool="ops"), golden(901, "pve2", pool="tenant")),
        # Who creates VMs outside of all pools may do so in every pool: this is no trap of a tenant, a template may be.
        (golden(template=False), golden(901, "pve2", pool="tenant")),
    ],
)
def test_several_of_one_name__must_be_templates_of_one_pool_on_different_nodes(guests: tuple[Guest, ...]) -> None:
    error = refused(*guests)
    assert isinstance(error, AmbiguousName)
    assert all(f"{each.vmid} on {each.node}" in error.message for each in guests)
    assert "Choose with clone: {name, pool}, {name, node} or {vmid}" in error.message


OFFICIAL, FOREIGN = golden(pool="ops"), golden(901, "pve2", pool="tenant")


@pytest.mark.parametrize(
    ("guests", "options", "chosen"),
    [
        ((OFFICIAL, FOREIGN), {"pool": "ops"}, 900),
        ((OFFICIAL, FOREIGN), {"pool": "other", "clone": {"name": "golden", "pool": "ops"}}, 900),
        ((OFFICIAL, FOREIGN), {"pool": "ops", "clone": {"name": "golden", "pool": "tenant"}}, 901),
        ((OFFICIAL, FOREIGN), {"clone": {"name": "golden", "node": "pve2"}}, 901),
        ((OFFICIAL, FOREIGN), {"clone": {"vmid": 900}}, 900),
        # A VM that is no template stands in nobody's way.
        ((OFFICIAL, golden(901, "pve2", pool="tenant", template=False)), {}, 900),
        ((golden(), golden(901, "pve2", template=False)), {}, 900),
        # A template of a tenant does not replace the VM that the pool says.
        ((golden(pool="ops", template=False), FOREIGN), {"pool": "ops"}, 900),
    ],
)
def test_template__is_the_one_of_the_pool_that_the_task_says(
    guests: tuple[Guest, ...], options: dict[str, t.Any], chosen: int
) -> None:
    assert [each.vmid for each in source(*guests, **options).templates] == [chosen]


def test_source_that_is_elsewhere__is_told() -> None:
    error = refused(OFFICIAL, clone={"name": "golden", "pool": "web", "node": "pve2"})
    assert isinstance(error, TemplateNotFound)
    assert error.message == (
        "clone: no VM 'golden' is in pool web on pve2, for VM \"new\"; there is template 900 on pve1 in pool ops"
    )


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"scsi0": "ceph:base-901-disk-0,size=32G"}, "scsi0 of 32 GiB"),
        ({"scsi5": "ceph:base-901-disk-5,size=1G"}, "scsi5 of 1 GiB"),
        ({"tags": "evil"}, "tags evil"),
        ({"bios": "seabios"}, "bios seabios"),
    ],
)
def test_templates_of_one_name__must_be_copies(changed: dict[str, t.Any], told: str) -> None:
    error = refused(golden(), golden(901, "pve2"), answers={"/nodes/pve2/qemu/901/config": {**CONFIG, **changed}})
    assert isinstance(error, AmbiguousName)
    assert "are not copies of one another" in error.message
    assert f"VM 901 on pve2 has {told}" in error.message


def test_copies__may_be_on_storages_of_other_types() -> None:
    there = {**CONFIG, "scsi0": "zfs:base-901-disk-0,size=10G", "efidisk0": "zfs:base-901-disk-1,size=1M"}
    found = source(golden(), golden(901, "pve2"), answers={"/nodes/pve2/qemu/901/config": there})
    assert [each.vmid for each in found.templates] == [900, 901]


def test_container__is_never_cloned() -> None:
    assert isinstance(refused(golden(kind="lxc")), TemplateNotFound)


# --- drives in the template's slots ---


@pytest.mark.parametrize(
    ("drives", "reason"),
    [
        (
            {"ide": {"ide2": "data:8"}},
            "a CD-ROM or cloud-init drive exists (local:iso/debian.iso) and is not replaced",
        ),
        ({"ide": {"ide0": "data:8"}}, "a CD-ROM or cloud-init drive exists (none) and is not replaced"),
        (
            {"ide": {"ide3": "local:iso/other.iso,media=cdrom"}},
            "the cloud-init drive exists (ceph:vm-900-cloudinit) and is not replaced",
        ),
        (
            {"scsi": {"scsi0": "data:vm-100-disk-0"}},
            "the volume ceph:base-900-disk-0 exists and is not replaced by data:vm-100-disk-0",
        ),
        (
            {"scsi": {"scsi0": {"import_from": "local:import/x.qcow2"}}},
            "this disk exists already, and import-from is for new disks",
        ),
        ({"scsi": {"scsi0": {"size": 9}}}, "it has 10G and cannot shrink to 9G; request at least its size"),
        ({"efidisk0": {"efitype": "2m"}}, "its properties are fixed when it is created"),
        (
            {"scsi": {"scsi2": {"ssd": True}}},
            "it has none, and a new one needs a size above 0 GiB, or import-from",
        ),
    ],
)
def test_drive_that_the_clone_would_not_get__is_refused(drives: dict[str, t.Any], reason: str) -> None:
    error = refused(golden(), **drives)
    assert isinstance(error, InvalidRequest)
    slot = error.details["option"]
    assert error.message == f"{slot}: is not possible in a clone of VM 900 (golden): {reason}"


@pytest.mark.parametrize(
    "drives",
    [
        {"scsi": {"scsi0": {"size": 20}}},
        {"scsi": {"scsi0": {"size": 10}}},
        {"scsi": {"scsi0": {"storage": "data", "ssd": True}}},
        {"scsi": {"scsi2": "data:8"}},
        {"ide": {"ide2": "none,media=cdrom"}},
        {"ide": {"ide2": "local:iso/other.iso,media=cdrom"}},
        {"ide": {"ide3": ":cloudinit"}},
        {"efidisk0": {"efitype": "4m"}},
    ],
)
def test_drives_that_are_new_or_the_templates_own__are_welcome(drives: dict[str, t.Any]) -> None:
    assert resolve(golden(), **drives).clone is not None
