# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The causes of failed migrations, from logs that were recorded on a real cluster."""

from __future__ import annotations

import pytest
from support.recordings import recording

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.outcomes import cause_of


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("move-err-offline-local-iso", "can't migrate local disk 'local:iso/local.iso': local cdrom image"),
        ("move-err-usb-raw", "can't migrate VM which uses local devices: usb0, hostpci0"),
        ("move-err-full-online", "No space left on device"),
        ("move-err-target-offline", "Can't connect to destination address using public key"),
        ("move-timeline-err-online-bridge-missing", "bridge 'vmbr1' does not exist"),
        ("move-after-worker-killed-unlocked-next-attempt", "VM 150 already running"),
        ("move-timeline-mirror-stopped-by-delete", "block job (mirror) error: interrupted by signal"),
        (
            "move-err-offline-linked-clone-local",
            "Problem found while scanning volumes - can't migrate 'fast:9001/base-9001-disk-0.qcow2/113/"
            "vm-113-disk-0.qcow2' as it's a clone of 'base-9001-disk-0.qcow2'",
        ),
        (
            "move-ha-err-negative-blocks",
            "resource 'vm:140' on target node 'pve1' in negative affinity with resource 'vm:141'; "
            "resource 'vm:142' on target node 'pve1' in negative affinity with resource 'vm:141'",
        ),
    ],
)
def test_cause_of__is_the_line_that_tells_it(name: str, cause: str) -> None:
    # The log's end is what is read of a failed task.
    assert cause_of([row["t"] for row in recording("9.2", name)["task_log"]][-10:]) == cause


def test_cause_of__a_log_that_tells_nothing() -> None:
    assert cause_of(["2026-11-22 06:12:49 starting VM 150 on remote node 'pve2'"]) == ""
