# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drives: what a playbook gives, what the scheduler is asked for, what Proxmox is sent."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, MIB, Disk
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.drives import owner_of, parse_drive
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.values import size_in_gib


@pytest.mark.parametrize(
    ("slot", "given_value", "disk", "sent"),
    [
        ("scsi0", "vmdata:32,ssd=1", Disk("scsi0", 32 * GIB, "vmdata"), "vmdata:32,ssd=1"),
        ("scsi0", ":32", Disk("scsi0", 32 * GIB), "chosen:32"),
        ("scsi0", 32, Disk("scsi0", 32 * GIB), "chosen:32"),
        ("virtio3", "vmdata:0.5,iothread=yes", Disk("virtio3", 512 * MIB, "vmdata"), "vmdata:0.5,iothread=1"),
        ("sata0", {"size": 8}, Disk("sata0", 8 * GIB), "chosen:8"),
        ("scsi0", {"size": "512M", "storage": "vmdata"}, Disk("scsi0", 512 * MIB, "vmdata"), "vmdata:0.5"),
        (
            "scsi0",
            {"size": "1T", "storage_class": "fast", "ssd": True, "discard": "on"},
            Disk("scsi0", 1024 * GIB, storage_class="fast"),
            "chosen:1024,discard=on,ssd=1",
        ),
        (
            "scsi0",
            "vmdata:0,import-from=local:import/debian.qcow2",
            Disk("scsi0", 0, "vmdata", source="local:import/debian.qcow2"),
            "vmdata:0,import-from=local:import/debian.qcow2",
        ),
        (
            "scsi0",
            {"import_from": "local:import/debian.qcow2", "size": 20},
            Disk("scsi0", 20 * GIB, source="local:import/debian.qcow2"),
            "chosen:0,import-from=local:import/debian.qcow2",
        ),
        (
            "ide2",
            "local:iso/debian-13.iso,media=cdrom",
            Disk("ide2", 0, "local", content="iso", volume="local:iso/debian-13.iso"),
            "local:iso/debian-13.iso,media=cdrom",
        ),
        ("ide2", "vmdata:cloudinit", Disk("ide2", 4 * MIB, "vmdata"), "vmdata:cloudinit"),
        ("ide2", ":cloudinit", Disk("ide2", 4 * MIB), "chosen:cloudinit"),
        (
            "ide2",
            {"volume": "cloudinit", "storage_class": "fast"},
            Disk("ide2", 4 * MIB, storage_class="fast"),
            "chosen:cloudinit",
        ),
        (
            "scsi1",
            "vmdata:101/vm-101-disk-0.raw,size=1G",
            Disk("scsi1", 0, "vmdata", volume="vmdata:101/vm-101-disk-0.raw"),
            "vmdata:101/vm-101-disk-0.raw",
        ),
        ("ide2", "none,media=cdrom", None, "none,media=cdrom"),
        ("ide2", "cdrom", None, "cdrom"),
        ("scsi0", "/dev/disk/by-id/wwn-1", None, "/dev/disk/by-id/wwn-1"),
        (
            "efidisk0",
            {"storage": "vmdata", "efitype": "4m", "pre_enrolled_keys": True, "format": "raw"},
            Disk("efidisk0", 4 * MIB, "vmdata"),
            "vmdata:1,efitype=4m,format=raw,pre-enrolled-keys=1",
        ),
        ("efidisk0", {"efitype": "2m"}, Disk("efidisk0", 4 * MIB), "chosen:1,efitype=2m"),
        ("efidisk0", "vmdata:1", Disk("efidisk0", 4 * MIB, "vmdata"), "vmdata:1"),
        ("tpmstate0", {"storage": "vmdata"}, Disk("tpmstate0", 4 * MIB, "vmdata"), "vmdata:1,version=v2.0"),
        ("tpmstate0", {"version": "1.2"}, Disk("tpmstate0", 4 * MIB), "chosen:1,version=v1.2"),
        ("tpmstate0", "vmdata:1,version=v2.0", Disk("tpmstate0", 4 * MIB, "vmdata"), "vmdata:1,version=v2.0"),
    ],
)
def test_drive__is_asked_for_and_sent(slot: str, given_value: t.Any, disk: Disk | None, sent: str) -> None:
    drive = parse_drive(slot, given_value)
    assert drive.to_disk() == disk
    assert drive.to_api(drive.storage or "chosen") == sent


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        ("vmdata:4G", "without a unit, for example vmdata:32"),
        ("vmdata:", "STORAGE:GIB"),
        ("vmdata:0", "a size above 0"),
        ("ssd=1", "STORAGE:GIB"),
        ("", "STORAGE:GIB"),
        ("32 GB", "STORAGE:GIB"),
        ({"storage": "vmdata", "size": 0}, "a size above 0"),
        ({"size": "32GB"}, "a size in GiB"),
        ({"size": -1}, "a size in GiB"),
        ({"size": 32, "sdd": True}, "discard"),
        ({"size": 32, "sdd": True}, "storage_class"),
        ({"size": 32, "storage": "a", "storage_class": "fast"}, "not both"),
        ({"size": 32, "storage": "a:b"}, "the name of a storage"),
        ({"volume": "vmdata:32", "storage": "other"}, "the storage once"),
        ("vmdata:4,size=9G", "one size"),
        ("local:iso/debian-13.iso", "media=cdrom"),
        ("local:debian-13.iso,media=cdrom", "local:iso/debian-13.iso"),
        ("vmdata:vm-1-disk-0,import-from=local:import/x.raw", "for a new volume only"),
        ("vmdata:32,cache=fast", "writeback"),
        ("vmdata:32,bps_rd=1048576,mbps_rd=1", "bps_rd or mbps_rd"),
    ],
)
def test_drive_that_cannot_be__is_refused_with_what_was_expected(given_value: t.Any, expected: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse_drive("scsi0", given_value)
    assert "scsi0" in raised.value.message
    assert expected in raised.value.message


def test_mapping_without_a_size__means_a_drive_that_is_there() -> None:
    drive = parse_drive("scsi0", {"ssd": True})
    assert drive.unsized
    assert drive.to_disk() == Disk("scsi0")
    for sized in ({"size": 1}, {"import_from": "local:import/x.raw"}, {"volume": "vmdata:vm-1-disk-0"}, ":cloudinit"):
        assert not parse_drive("scsi0", sized).unsized
    assert not parse_drive("efidisk0", {}).unsized


def test_property_of_another_bus__is_refused() -> None:
    with pytest.raises(InvalidRequest, match="properties of virtio"):
        parse_drive("virtio0", "vmdata:32,ssd=1")


def test_new_volume_without_a_storage__is_never_sent() -> None:
    with pytest.raises(InvalidRequest, match="scsi0"):
        parse_drive("scsi0", ":32").to_api(None)


@given(st.integers(1, 4 * 1024**3))
def test_size_of_any_kibibytes__is_sent_exactly(kib: int) -> None:
    sent = parse_drive("scsi0", {"size": f"{kib}K"}).to_api("vmdata")
    assert size_in_gib("size", sent.removeprefix("vmdata:")) == kib * 1024


@pytest.mark.parametrize(
    ("volume", "owner"),
    [
        ("lvm:vm-101-disk-0", 101),
        ("lvm:vm-101-cloudinit", 101),
        ("zfs:base-9000-disk-0", 9000),
        ("zfs:base-9000-disk-0/vm-101-disk-0", 101),
        ("zfs:basevol-9000-disk-0/subvol-102-disk-1", 102),
        ("local:101/vm-101-disk-0.qcow2", 101),
        ("local:101/of-vm-7-0.raw", 101),
        ("local:9000/base-9000-disk-0.qcow2/101/vm-101-disk-0.qcow2", 101),
        ("local:iso/vm-101-tools.iso", None),
        ("local:backup/vzdump-qemu-101-2026_01_01-00_00_00.vma.zst", None),
        ("none", None),
        ("/dev/vm-101-disk-0", None),
    ],
)
def test_owner_of_a_volume__is_the_guest_that_it_is_a_disk_of(volume: str, owner: int | None) -> None:
    assert owner_of(volume) == owner
