# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stopping and deleting VMs does to how full their nodes are."""

from __future__ import annotations

import pytest
from support.small_cluster import cluster, guest, node, profile

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.report import (
    keep_before,
    note_after,
    note_change,
    usage_before,
)

RUNNING = guest(100, "pve1", cores=2, gib=3)
STOPPED = guest(101, "pve1", cores=4, gib=5, status="stopped")


@pytest.mark.parametrize(
    ("guest", "actions", "cores", "gib"),
    [
        (RUNNING, [], 2, 3),
        (RUNNING, ["update"], 2, 3),
        (RUNNING, ["start"], 2, 3),
        (RUNNING, ["stop"], 0, 0),
        (RUNNING, ["delete"], 0, 0),
        (RUNNING, ["stop", "delete"], 0, 0),
        (STOPPED, [], 2, 3),
        (STOPPED, ["delete"], 2, 3),
    ],
)
def test_note_change__counts_what_becomes_of_a_vm(guest, actions: list[str], cores: int, gib: int) -> None:
    state = cluster([node("pve1"), node("pve2")], [RUNNING, STOPPED])
    usage = [usage_before(info, profile()) for info in state.nodes]
    note_after(usage, state)
    note_change(usage, guest, actions)
    assert [(each.node, each.cores_before, each.memory_before) for each in usage] == [
        ("pve1", 2, 3 * GIB),
        ("pve2", 0, 0),
    ]
    assert [(each.cores_after, each.memory_after) for each in usage] == [(cores, gib * GIB), (0, 0)]


def test_guests__are_those_from_before_the_run() -> None:
    template = guest(103, "pve1", template=True)
    first = [usage_before(info, profile()) for info in cluster([node("pve1")], [RUNNING, template]).nodes]
    latest = [usage_before(info, profile()) for info in cluster([node("pve1")], [RUNNING, STOPPED, template]).nodes]
    (kept,) = keep_before(first, latest)
    assert [each["vmid"] for each in kept.as_result(with_guests=True)["guests"]] == [100]
    assert "guests" not in kept.as_result()
