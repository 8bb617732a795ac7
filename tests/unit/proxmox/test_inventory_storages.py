# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can still be written to a storage is what Proxmox tells, not what is not used."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Node, Storage
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.recorded import (
    RecordedReader,
    Recorder,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.snapshot import with_available

NODES = [Node("pve1"), Node("pve2"), Node("pve3", online=False)]
QUERY = "?content=images"


def read(storages: list[Storage], size: int, **answers: t.Any) -> tuple[dict[tuple[str, str], int], list[str]]:
    """The free bytes by node and storage, and the paths that were read."""
    paths = {f"/nodes/{node}/storage{QUERY}": rows for node, rows in answers.items()}
    recorder = Recorder(RecordedReader({"/cluster/resources": [], **paths}))
    found = with_available(recorder, NODES, storages, size)
    return {(each.node, each.name): each.total - each.used for each in found}, sorted(recorder.answers)


def test_available_space__replaces_what_is_not_used(recording):
    rows = recording("9.2", "node-storage-avail-not-total-minus-used")["body"]["data"]
    shared = [Storage("shared", node, "dir", True, total=270553174016, used=31648833536) for node in ("pve1", "pve2")]
    fast = Storage("fast", "pve1", "dir", total=270553174016, used=31648833536)
    free, asked = read([*shared, fast], 100 * GIB, pve1=rows)

    assert free == dict.fromkeys((("pve1", "shared"), ("pve2", "shared"), ("pve1", "fast")), 77295460352)
    assert asked == [f"/nodes/pve1/storage{QUERY}"], "a shared storage is asked about once"


@pytest.mark.parametrize(
    ("storage", "size", "is_asked"),
    [
        (Storage("a", "pve1", "dir", total=1000, used=0), 100, False),
        (Storage("a", "pve1", "dir", total=1000, used=0), 101, True),
        (Storage("a", "pve1", "dir", total=1000, used=760), 1, True),
        (Storage("a", "pve1", "lvmthin", total=1000, used=990), 900, False),
        (Storage("a", "pve1", "dir", content=frozenset({"iso"}), total=1000, used=990), 900, False),
        (Storage("a", "pve1", "dir", active=False, total=1000, used=990), 900, False),
        (Storage("a", "pve3", "dir", total=1000, used=990), 900, False),
    ],
)
def test_available_space__is_read_only_near_the_limit_of_a_file_system(storage, size, is_asked):
    free, asked = read([storage], size, pve1=[{"storage": "a", "avail": 5}])

    assert bool(asked) is is_asked
    assert free["pve1" if storage.node == "pve1" else "pve3", "a"] == (5 if is_asked else storage.total - storage.used)


def test_available_space__that_cannot_be_read_leaves_what_is_not_used():
    storage = Storage("a", "pve1", "dir", total=1000, used=900)

    assert read([storage], 50)[0] == {("pve1", "a"): 100}
    assert read([storage], 50, pve1=[{"storage": "a"}])[0] == {("pve1", "a"): 100}
    assert read([storage], 50, pve1=[{"storage": "a", "avail": 500}])[0] == {("pve1", "a"): 100}
