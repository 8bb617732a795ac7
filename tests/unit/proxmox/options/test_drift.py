# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drift: the configs are as real clusters answered them; what differs only in spelling is no drift."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.lifecycle import on_present_volumes
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.drift import (
    ChangeSet,
    clone_adjustments,
    compare,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.request import vm_request
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.table import to_api

# GET /nodes/pve1/qemu/ID/config of Proxmox VE 8.4: created with
# memory=64 scsi0=vmdata:1 scsihw=virtio-scsi-pci net0=virtio,bridge=vmbr0 agent=1 tags=core
RUNNER: dict[str, t.Any] = {
    "protection": 0,
    "agent": "1",
    "memory": "64",
    "smbios1": "uuid=709b69d8-c35c-4e51-a9e7-d308759b68a0",
    "name": "runner",
    "net0": "virtio=BC:24:11:68:E1:F0,bridge=vmbr0",
    "vmgenid": "aedea4fa-1348-474f-a2db-0fe13f8f09a9",
    "scsi0": "vmdata:120/vm-120-disk-0.raw,size=1G",
    "boot": "order=scsi0;net0",
    "meta": "creation-qemu=7.2.22,ctime=1795248261",
    "digest": "9b075bb377709058378c1b2367e089ce4cc8e2e9",
    "scsihw": "virtio-scsi-pci",
    "tags": "core",
}
# The same after PUT description="hello\nworld" onboot=1 and tags=Core;lab;lab
CHANGED: dict[str, t.Any] = {
    "onboot": 1,
    "memory": "512",
    "cores": 3,
    "description": "hello\nworld",
    "ostype": "l26",
    "tags": "core;lab",
    "net0": "virtio=BC:24:11:DD:20:1A,bridge=vmbr0",
    "scsi0": "vmdata:101/vm-101-disk-0.qcow2,size=4G",
    "name": "web01",
}


def drift(params: dict[str, t.Any], config: dict[str, t.Any], **keywords: t.Any) -> ChangeSet:
    return compare(to_api(params), config, **keywords)


def test_vm_compared_with_what_created_it__shows_no_drift() -> None:
    params = {
        "memory": 64,
        "scsi": {"scsi0": "vmdata:1"},
        "scsihw": "virtio-scsi-pci",
        "net": {"net0": "virtio,bridge=vmbr0"},
        "agent": "1",
        "tags": ["core"],
    }
    assert not drift(params, RUNNER)


@pytest.mark.parametrize(
    ("params", "config"),
    [
        ({"protection": False, "onboot": False, "kvm": True, "acpi": True, "tablet": True}, RUNNER),
        ({"agent": "enabled=yes,type=virtio"}, RUNNER),
        ({"agent": "0"}, {}),
        ({"boot": "order=scsi0;net0"}, RUNNER),
        ({"cores": 1, "sockets": 1, "memory": 512, "cpulimit": 0, "shares": 1000, "migrate_downtime": 0.1}, {}),
        ({"memory": 512}, {"memory": "current=512"}),
        ({"bios": "seabios", "scsihw": "lsi", "ostype": "other", "vga": "std", "cpu": "kvm64", "machine": "pc"}, {}),
        ({"hotplug": "usb,disk,network"}, {}),
        ({"hotplug": "1"}, {"hotplug": "network,disk,usb"}),
        ({"machine": "q35"}, {"machine": "pc-q35-9.2+pve1"}),
        ({"smbios": "family=QQ=="}, {"smbios1": "family=QQ==,uuid=709b69d8-c35c-4e51-a9e7-d308759b68a0"}),
        ({"description": "hello\nworld\n"}, CHANGED),
        ({"description": "hello\nworld \n\t\n"}, CHANGED),
        ({"cpuunits": 20000}, {"cpuunits": 10000}),
        ({"args": "-no-reboot\n", "ciuser": " joe "}, {"args": "-no-reboot", "ciuser": "joe"}),
        ({"description": ""}, RUNNER),
        ({"tags": ["Lab", "core", "lab"]}, CHANGED),
        ({"tags": []}, {"tags": " "}),
        ({"startup": "1,up=30"}, {"startup": "up=30,order=1"}),
        ({"nameservers": ["1.1.1.1", "8.8.8.8"]}, {"nameserver": "1.1.1.1 8.8.8.8"}),
        ({"sshkeys": "ssh-ed25519 AAAA me\n"}, {"sshkeys": "ssh-ed25519%20AAAA%20me%0A"}),
        ({"cipassword": "secret"}, {"cipassword": "**********"}),
        ({"template": False}, {}),
        ({"net": {"net0": "model=virtio,bridge=vmbr0,firewall=0"}}, RUNNER),
        ({"net": {"net0": "virtio=bc:24:11:68:e1:f0,bridge=vmbr0"}}, RUNNER),
    ],
)
def test_another_spelling_of_the_same__is_no_drift(params: dict[str, t.Any], config: dict[str, t.Any]) -> None:
    assert drift(params, config).changes == {}


@pytest.mark.parametrize(
    ("params", "config", "parameters"),
    [
        ({"memory": 128, "cores": 2}, RUNNER, {"memory": 128, "cores": 2}),
        ({"protection": True}, RUNNER, {"protection": 1}),
        ({"tags": ["web"]}, RUNNER, {"tags": "web"}),
        ({"agent": "1,fstrim_cloned_disks=1"}, RUNNER, {"agent": "1,fstrim_cloned_disks=1"}),
        ({"net": {"net0": "virtio,bridge=vmbr1"}}, RUNNER, {"net0": "virtio=BC:24:11:68:E1:F0,bridge=vmbr1"}),
        (
            {"net": {"net0": "virtio,bridge=vmbr0,host-tunnel=0"}},
            RUNNER,
            {"net0": "virtio=BC:24:11:68:E1:F0,bridge=vmbr0,host-tunnel=0"},
        ),
        ({"net": {"net0": "e1000,bridge=vmbr0"}}, RUNNER, {"net0": "e1000=BC:24:11:68:E1:F0,bridge=vmbr0"}),
        (
            {"net": {"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0"}},
            RUNNER,
            {"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0"},
        ),
        ({"net": {"net1": "virtio"}}, RUNNER, {"net1": "virtio"}),
        (
            {"net": {"net0": "virtio,bridge=vmbr0"}},
            {"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=7"},
            {"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0"},
        ),
        ({"smbios": "family=QQ=="}, RUNNER, {"smbios1": "family=QQ==,uuid=709b69d8-c35c-4e51-a9e7-d308759b68a0"}),
        ({"machine": "q35"}, {"machine": "pc-i440fx-9.2"}, {"machine": "q35"}),
        ({"watchdog": "i6300esb"}, RUNNER, {"watchdog": "i6300esb"}),
        ({"cipassword": "secret"}, RUNNER, {"cipassword": "secret"}),
        ({"scsi": {"scsi0": "vmdata:1,ssd=1"}}, RUNNER, {"scsi0": "vmdata:120/vm-120-disk-0.raw,size=1G,ssd=1"}),
        ({"scsi": {"scsi1": "vmdata:8"}}, RUNNER, {"scsi1": "vmdata:8"}),
        ({"ide": {"ide2": "none,media=cdrom"}}, RUNNER, {"ide2": "none,media=cdrom"}),
    ],
)
def test_drift__is_what_has_to_be_sent(
    params: dict[str, t.Any], config: dict[str, t.Any], parameters: dict[str, t.Any]
) -> None:
    found = drift(params, config)
    assert found.parameters == parameters
    assert set(found.changes) == set(parameters)
    assert (found.delete, found.resizes, found.unappliable) == ((), {}, {})


def test_option_that_is_emptied__is_deleted() -> None:
    found = drift({"tags": [], "description": "", "args": ""}, CHANGED)
    assert set(found.delete) == {"tags", "description"}
    assert found.parameters == {}
    assert found.before == {"tags": "core;lab", "description": "hello\nworld"}
    assert found.after == {}


def test_what_becomes_zero__is_shown_in_a_diff() -> None:
    config = {**RUNNER, "onboot": 1, "balloon": 64, "protection": 0}
    found = drift({"onboot": False, "balloon": 0, "protection": True}, config)
    assert found.before == {"onboot": 1, "balloon": 64, "protection": 0}
    assert found.after == {"onboot": 0, "balloon": 0, "protection": 1}


def test_changes__are_data_with_old_and_new_and_without_secrets() -> None:
    found = drift({"memory": 128, "cores": 2, "cipassword": "s3cret", "sshkeys": "ssh-rsa AAAA b"}, RUNNER)
    assert found.changes["memory"] == {"old": 64, "new": 128}
    assert found.changes["cores"] == {"old": None, "new": 2}
    assert found.changes["sshkeys"] == {"old": None, "new": "ssh-rsa AAAA b"}
    assert found.before == {"memory": 64}
    assert "s3cret" not in str(found.changes)
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    ("given_drive", "current"),
    [
        (":1", "vmdata:120/vm-120-disk-0.raw,size=1G"),
        ({"size": "1024M", "storage_class": "fast"}, "vmdata:120/vm-120-disk-0.raw,size=1G"),
        ("vmdata:1,format=raw", "vmdata:120/vm-120-disk-0.raw,size=1G"),
        ("vmdata:1", "vmdata:9000/base-9000-disk-0.qcow2/120/vm-120-disk-0.qcow2,size=1G"),
        ("vmdata:0,import-from=local:import/x.raw", "vmdata:vm-120-disk-0,size=1724M"),
        ({"storage": "vmdata", "size": "102M"}, "vmdata:vm-120-disk-0,size=104M"),
        ("vmdata:1,backup=1,discard=ignore", "vmdata:vm-120-disk-0,size=1G"),
        ("vmdata:vm-120-disk-0", "vmdata:vm-120-disk-0,size=1G"),
        ("local:iso/a.iso,media=cdrom", "local:iso/a.iso,media=cdrom,size=300M"),
        ("vmdata:cloudinit", "vmdata:vm-120-cloudinit,media=cdrom,size=4M"),
        ("vmdata:cloudinit", "vmdata:120/vm-120-cloudinit.qcow2,media=cdrom"),
        (":cloudinit", "vmdata:vm-120-cloudinit,media=cdrom"),
    ],
)
def test_drive_that_only_reads_differently__is_no_drift(given_drive: t.Any, current: str) -> None:
    assert not drift({"scsi": {"scsi0": given_drive}}, {"scsi0": current})


def test_limit_in_bytes__is_sent_in_mib_and_then_no_drift() -> None:
    wanted = {"scsi": {"scsi0": "vmdata:1,bps_rd=10485760,bps_wr=1000000"}}
    sent = drift(wanted, RUNNER).parameters["scsi0"]
    assert sent == "vmdata:120/vm-120-disk-0.raw,mbps_rd=10,mbps_wr=0.95367431640625,size=1G"
    assert not drift(wanted, {"scsi0": sent})


def test_larger_disk__is_resized() -> None:
    found = drift({"scsi": {"scsi0": "vmdata:8"}}, RUNNER)
    assert found.resizes == {"scsi0": 8 * GIB}
    assert found.parameters == {}
    assert found.after == {"scsi0": "vmdata:120/vm-120-disk-0.raw,size=8G"}


def test_drive__keeps_the_properties_that_are_not_asked_for() -> None:
    config = {"scsi0": "vmdata:vm-120-disk-0,backup=0,cache=writeback,discard=on,iothread=1,size=1G,ssd=1"}
    grown = drift({"scsi": {"scsi0": {"size": 3}}}, config)
    assert (grown.parameters, grown.resizes) == ({}, {"scsi0": 3 * GIB})
    changed = drift({"scsi": {"scsi0": {"size": 1, "ssd": False}}}, config)
    assert changed.parameters == {
        "scsi0": "vmdata:vm-120-disk-0,backup=0,cache=writeback,discard=on,iothread=1,size=1G,ssd=0"
    }
    medium = drift({"ide": {"ide2": "local:iso/b.iso,media=cdrom"}}, {"ide2": "local:iso/a.iso,media=cdrom,serial=x"})
    assert medium.parameters == {"ide2": "local:iso/b.iso,media=cdrom,serial=x"}


def test_larger_disk_with_other_properties__is_set_in_its_size_and_then_resized() -> None:
    found = drift({"scsi": {"scsi0": "vmdata:8,ssd=1"}}, RUNNER)
    assert found.parameters == {"scsi0": "vmdata:120/vm-120-disk-0.raw,size=1G,ssd=1"}
    assert found.resizes == {"scsi0": 8 * GIB}


@pytest.mark.parametrize(
    ("given_drive", "current", "reason"),
    [
        ("vmdata:1", "vmdata:vm-120-disk-0,size=8G", "cannot shrink to 1G"),
        ("vmdata:vm-9-disk-0", "vmdata:vm-120-disk-0,size=8G", "not replaced by vmdata:vm-9-disk-0"),
        ("vmdata:8", "none,media=cdrom", "a CD-ROM or cloud-init drive exists"),
        ("none,media=cdrom", "vmdata:vm-120-disk-0,size=8G", "a disk exists"),
        ("vmdata:cloudinit", "vmdata:vm-120-disk-0,size=8G", "a disk exists"),
        ("none,media=cdrom", "vmdata:vm-120-cloudinit,media=cdrom", "the cloud-init drive exists"),
    ],
)
def test_what_would_lose_data__is_reported_and_never_sent(given_drive: t.Any, current: str | None, reason: str) -> None:
    config = {} if current is None else {"scsi0": current}
    found = drift({"scsi": {"scsi0": given_drive}}, config)
    assert reason in found.unappliable["scsi0"]
    assert "scsi0" in found.changes
    assert (found.parameters, found.resizes, found.delete) == ({}, {}, ())


@pytest.mark.parametrize(
    ("given_drive", "current", "move", "shown"),
    [
        ("other:8", "vmdata:vm-120-disk-0,size=8G", "other", "other:8"),
        ("other:cloudinit", "vmdata:vm-120-cloudinit,media=cdrom", "other", "other:cloudinit"),
        ({"storage": "other"}, "vmdata:vm-120-disk-0,size=8G", "other", "other"),
        ({"storage_class": "fast", "size": 8}, "vmdata:vm-120-disk-0,size=8G", None, "(storage class fast):8"),
    ],
)
def test_disk_on_another_storage__is_moved(given_drive: t.Any, current: str, move: str | None, shown: str) -> None:
    asked = vm_request({"name": "runner", "clone": "any", "scsi": {"scsi0": given_drive}}).options
    found = compare(asked, {"scsi0": current}, displaced={"scsi0"})
    assert found.changes["scsi0"] == {"old": current, "new": shown}
    assert (found.moves, found.unplaced) == (({"scsi0": move}, ()) if move else ({}, ("scsi0",)))
    assert (found.parameters, found.resizes, found.unappliable) == ({}, {}, {})


def test_disk_that_moves__grows_and_changes_as_well() -> None:
    asked = vm_request({"name": "runner", "scsi": {"scsi0": {"storage": "other", "size": 9, "ssd": True}}}).options
    found = compare(asked, {"scsi0": "vmdata:vm-120-disk-0,size=8G"})
    assert (found.moves, found.resizes) == ({"scsi0": "other"}, {"scsi0": 9 * GIB})
    # Its volume is another one after the move.
    sent = on_present_volumes(found.parameters, found.moves, {"scsi0": "other:vm-120-disk-3,size=8G"})
    assert sent == {"scsi0": "other:vm-120-disk-3,size=8G,ssd=1"}


def test_new_disk__without_a_storage_is_to_be_placed_first() -> None:
    asked = vm_request({"name": "runner", "scsi": {"scsi1": ":8", "scsi0": ":1"}, "cores": 2}).options
    found = compare(asked, RUNNER)
    assert (found.unplaced, found.parameters, found.unappliable) == (("scsi1",), {"cores": 2}, {})
    placed = found.with_storages(asked, RUNNER, {"scsi1": "fast"})
    assert (placed.unplaced, placed.parameters) == ((), {"cores": 2, "scsi1": "fast:8"})
    assert placed.changes["scsi1"] == {"old": None, "new": "fast:8"}


def test_new_disk__goes_to_the_storage_that_was_decided() -> None:
    assert drift({"scsi": {"scsi1": ":8"}}, RUNNER, storages={"scsi1": "fast"}).parameters == {"scsi1": "fast:8"}


def test_new_disk_that_is_larger_than_its_image__is_to_grow() -> None:
    drives = {"scsi1": {"storage": "fast", "import_from": "local:import/x.raw", "size": 30}}
    found = drift({"scsi": drives}, RUNNER)
    assert found.parameters == {"scsi1": "fast:0,import-from=local:import/x.raw"}
    assert found.resizes == {"scsi1": 30 * GIB}
    assert found.after == {"scsi1": "fast:0,import-from=local:import/x.raw,size=30G"}
    assert adjust({"scsi": drives}).resizes == {"scsi1": 30 * GIB}
    assert drift({"scsi": {"scsi1": "fast:0,import-from=local:import/x.raw"}}, RUNNER).resizes == {}


def test_medium__can_be_changed() -> None:
    params = {"ide": {"ide2": "local:iso/b.iso,media=cdrom"}}
    found = drift(params, {"ide2": "local:iso/a.iso,media=cdrom,size=300M"})
    assert found.parameters == {"ide2": "local:iso/b.iso,media=cdrom"}


def test_empty_cdrom_drive__can_become_the_cloud_init_drive() -> None:
    found = drift({"ide": {"ide2": "vmdata:cloudinit"}}, {"ide2": "none,media=cdrom"})
    assert found.parameters == {"ide2": "vmdata:cloudinit"}


@pytest.mark.parametrize(
    ("params", "config"),
    [
        (
            {"efidisk0": {"storage": "vmdata", "efitype": "4m", "pre_enrolled_keys": True}},
            {"efidisk0": "vmdata:vm-120-disk-0,efitype=4m,ms-cert=2023,pre-enrolled-keys=1,size=528K"},
        ),
        ({"tpmstate0": {}}, {"tpmstate0": "vmdata:vm-120-disk-1,size=4M,version=v2.0"}),
    ],
)
def test_firmware_drives_as_shown__are_no_drift(params: dict[str, t.Any], config: dict[str, t.Any]) -> None:
    assert not drift(params, config)


def test_properties_of_firmware_drives__cannot_be_changed() -> None:
    found = drift({"tpmstate0": {"version": "1.2"}}, {"tpmstate0": "vmdata:vm-120-disk-1,size=4M,version=v2.0"})
    assert "fixed when it is created" in found.unappliable["tpmstate0"]
    assert found.parameters == {}


@pytest.mark.parametrize("boot", ["order=scsi0;net0;ide2", "order=scsi1"])
def test_boot_order__may_name_what_the_vm_has_or_gets(boot: str) -> None:
    changes = drift({"boot": boot, "scsi": {"scsi1": ":8"}, "ide": {"ide2": "none,media=cdrom"}}, RUNNER)
    assert (changes.parameters["boot"], changes.unappliable) == (boot, {})


@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({"boot": "order=scsi7;scsi0;ide2"}, "ide2, scsi7"),
        ({"boot": "order=net0;serial0", "serial": {"serial0": ""}}, "serial0"),
    ],
)
def test_boot_order_with_a_missing_device__cannot_be_set(params: dict[str, t.Any], names: str) -> None:
    changes = drift(params, {**RUNNER, "serial0": "socket"})
    assert changes.unappliable == {"boot": f"it names {names}, which the VM does not have"}


def test_template__cannot_become_a_vm_again() -> None:
    found = drift({"template": False}, {"template": 1})
    assert set(found.unappliable) == {"template"}
    assert found.parameters == {}


def test_property_that_is_not_known_here__is_drift_and_does_not_fail() -> None:
    config = {"net0": "virtio=BC:24:11:68:E1:F0,bridge=vmbr0,brandnew=1"}
    found = drift({"net": {"net0": "virtio,bridge=vmbr0"}}, config)
    assert found.parameters == {"net0": "virtio=BC:24:11:68:E1:F0,bridge=vmbr0"}


# GET .../config of Proxmox VE 8.4 after a full clone; password, cloud-init drive and disk properties are added here.
CLONE: dict[str, t.Any] = {
    "name": "full123",
    "memory": "64",
    "net0": "virtio=BC:24:11:75:62:47,bridge=vmbr0",
    "scsi0": "vmdata:123/vm-123-disk-0.qcow2,discard=on,size=1G,ssd=1",
    "ide2": "vmdata:123/vm-123-cloudinit.qcow2,media=cdrom",
    "cipassword": "**********",
    "boot": "order=scsi0;net0",
}


def adjust(params: dict[str, t.Any], **decided: t.Any) -> ChangeSet:
    request = vm_request({"name": "full123", "clone": "tpl", **params})
    return clone_adjustments(request.options, CLONE, **decided)


def test_clone__gets_what_is_given_and_keeps_its_new_mac_address() -> None:
    params = {"cores": 2, "memory": 2048, "ipconfig": {"ipconfig0": "ip=dhcp"}, "net": {"net0": "virtio,bridge=vmbr1"}}
    assert adjust(params).parameters == {
        "cores": 2,
        "memory": 2048,
        "ipconfig0": "ip=dhcp",
        "net0": "virtio=BC:24:11:75:62:47,bridge=vmbr1",
    }


def test_disk_of_a_clone__grows_and_keeps_the_properties_of_its_template() -> None:
    found = adjust({"scsi": {"scsi0": ":32"}})
    assert (found.parameters, found.resizes) == ({}, {"scsi0": 32 * GIB})
    found = adjust({"scsi": {"scsi0": ":1,iothread=1"}})
    assert found.parameters == {"scsi0": "vmdata:123/vm-123-disk-0.qcow2,discard=on,iothread=1,size=1G,ssd=1"}


def test_disk_of_a_clone__may_be_given_without_a_size() -> None:
    drives = {"scsi": {"scsi0": {"iothread": True}}}
    found = adjust(drives)
    assert found.parameters == {"scsi0": "vmdata:123/vm-123-disk-0.qcow2,discard=on,iothread=1,size=1G,ssd=1"}
    assert not found.resizes
    assert not drift(drives, {**CLONE, **found.parameters})


def test_disk_that_was_removed_from_a_clone__is_not_made_without_a_size() -> None:
    found = drift({"scsi": {"scsi7": {"iothread": True}}}, CLONE)
    assert found.parameters == {}
    assert found.unappliable == {"scsi7": "it does not exist, and no size is given to create it with"}


def test_clone_that_was_adjusted__shows_no_drift_on_the_next_run() -> None:
    assert not drift({"scsi": {"scsi0": ":1"}}, CLONE)


def test_clone_never__keeps_the_password_of_its_template() -> None:
    assert adjust({"cipassword": "secret"}).parameters == {"cipassword": "secret"}


def test_clone__gets_its_devices_and_its_further_disks() -> None:
    found = adjust({"scsi": {"scsi1": ":8"}}, storages={"scsi1": "fast"}, devices={"hostpci0": "mapping=nic"})
    assert found.parameters == {"hostpci0": "mapping=nic", "scsi1": "fast:8"}
