# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What refusals and failed tasks mean, by the texts that real clusters gave."""

from __future__ import annotations

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.outcomes import (
    allocations,
    is_busy,
    is_tag_refusal,
    is_vmid_taken,
)


@pytest.mark.parametrize(
    ("name", "vmid"),
    [
        ("race-create-same-vmid-two-nodes-1", 411),
        ("race-clone-same-newid-0", 420),
    ],
)
def test_every_loser_of_a_race__knows_that_the_vmid_is_taken(recording, name, vmid):
    results = recording("8.4", name)["results"]
    losers = [result for result in results if result.get("exitstatus") != "OK"]

    assert len(losers) == len(results) - 1
    for loser in losers:
        text = loser.get("exitstatus") or loser["reason"]
        assert is_vmid_taken(text, vmid), text
        assert not is_vmid_taken(text, vmid + 1), text


@pytest.mark.parametrize(
    ("name", "vmid"),
    [("err-create-vmid-used-by-lxc", 200), ("err-clone-newid-used-lxc", 200), ("err-clone-newid-used", 111)],
)
def test_vmid_of_a_container_or_a_vm__is_taken(recording, name, vmid):
    recorded = recording("8.4", name)
    text = recorded["task_status"]["exitstatus"] if recorded["status"] == 200 else recorded["body"]["message"]

    assert is_vmid_taken(text, vmid)


@pytest.mark.parametrize(
    "text",
    [
        "unable to create VM 100 - storage 'x' does not exist",
        "can't lock file '/var/lock/qemu-server/lock-9000.conf' - got timeout",
        "VM 1001 already exists",
    ],
)
def test_other_failures__do_not_mean_that_the_vmid_is_taken(text):
    assert not is_vmid_taken(text, 100)


@pytest.mark.parametrize(
    "name",
    ["err-create-op-tags", "err-tags-create-vms-user-registered", "err-tags-create-allowed-tag-user-allow-list"],
)
def test_tags_that_may_not_be_set_by_a_create__are_told_from_other_refusals(recording, name):
    assert is_tag_refusal(recording("9.2", name)["task_status"]["exitstatus"])
    assert not is_tag_refusal("403 Permission check failed (/storage/local, Datastore.AllocateSpace)")


def test_lock_that_was_not_to_be_had_in_time__is_worth_another_try():
    assert is_busy("can't lock file '/var/lock/qemu-server/lock-9000.conf' - got timeout")
    assert is_busy("cfs-lock 'storage-ceph' error: got lock request timeout")
    assert is_busy("got no worker upid - start worker failed")
    assert not is_busy("unable to create VM 100 - storage 'x' is disabled")
    assert not is_busy("VM quit/powerdown failed - got timeout"), "the guest does not react"
    assert not is_busy("create failed: cfs-lock 'file-user_cfg' error: no quorum!"), "that lasts longer than a lock"


@pytest.mark.parametrize(
    ("value", "allocates"),
    [
        ("local-lvm:32", True),
        ("local-lvm:0.5,ssd=1", True),
        ("local-lvm:cloudinit", True),
        ("local-lvm:0,import-from=local:import/a.qcow2", True),
        ("local-lvm:vm-100-disk-0,size=32G", False),
        ("local:iso/a.iso,media=cdrom", False),
        ("virtio,bridge=vmbr0", False),
        (4, False),
    ],
)
def test_changes_that_make_a_volume__are_told_from_those_that_can_be_sent_twice(value, allocates):
    assert bool(allocations({"scsi0": value})) is allocates
