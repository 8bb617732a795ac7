# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a count with N+1 says of the guests that no room would help."""

from __future__ import annotations

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Storage
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.capacity import counted_by_n_plus_one

LOCAL = Storage("zfs", "pve1", "zfspool")
SHARED = Storage("ceph", "pve1", "rbd", shared=True)
IMAGES = Storage("nas", "pve1", "nfs", shared=True, content=frozenset({"iso"}))


@pytest.mark.parametrize(
    ("storages", "told"), [((LOCAL, IMAGES), True), ((LOCAL, SHARED), False), ((SHARED,), False), ((), False)]
)
def test_n_plus_one__says_when_no_guest_of_a_lost_node_can_start_elsewhere(
    storages: tuple[Storage, ...], told: bool
) -> None:
    assert ("no storage for disks is shared" in counted_by_n_plus_one(storages)) is told
