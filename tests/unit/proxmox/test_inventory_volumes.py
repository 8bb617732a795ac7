# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where ISO images and what is imported are, and how large: by as few calls as tell it, and no guesses."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import PermissionDenied
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Node, Snapshot, Storage
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.named_volumes import read_volumes
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.snapshot import (
    Needs,
    complete_snapshot,
)

NODES = (Node("pve1"), Node("pve2"), Node("down", online=False))
FILES = frozenset({"iso", "import"})
STORAGES = (
    *(Storage("local", name, content=FILES) for name in ("pve1", "pve2", "down")),
    *(Storage("nfs", name, "nfs", shared=True, content=FILES) for name in ("pve1", "pve2", "down")),
    *(Storage("data", name, "lvmthin", content=frozenset({"images"})) for name in ("pve1", "pve2")),
)


class Lists:
    """Answers with the lists that are given by node and storage; notes what was asked."""

    def __init__(self, lists: Mapping[str, list[dict[str, t.Any]] | None]) -> None:
        self.calls: list[str] = []
        self._lists = lists

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        _empty, _nodes, node, _storage, storage, _content = path.split("/")
        sent = [f"{key}={value}" for key, value in more.items() if value is not None]
        self.calls.append(" ".join([node, storage, *sent]))
        rows = self._lists.get(f"{node} {storage}", [])
        if rows is None:
            raise PermissionDenied("Permission check failed")
        return rows

    def server_time(self) -> float | None:
        return None


def row(volume: str, gib: float = 1) -> dict[str, t.Any]:
    return {"volid": volume, "size": int(gib * GIB), "content": "iso", "format": "iso"}


def test_image_on_local_storage__is_looked_for_on_every_node_that_is_online() -> None:
    lists = Lists({"pve2 local": [row("local:iso/debian.iso", 0.5)]})
    found = read_volumes(lists, NODES, STORAGES, ["local:iso/debian.iso"])
    assert found == {("pve1", "local:iso/debian.iso"): None, ("pve2", "local:iso/debian.iso"): GIB // 2}
    assert sorted(lists.calls) == ["pve1 local content=iso", "pve2 local content=iso"]


def test_one_node__tells_what_is_on_shared_storage() -> None:
    lists = Lists({"pve1 nfs": [row("nfs:import/a.qcow2", 2), row("nfs:import/b.qcow2", 3)]})
    volumes = ["nfs:import/a.qcow2", "nfs:import/b.qcow2", "nfs:import/c.qcow2"]
    found = read_volumes(lists, NODES, STORAGES, volumes)
    assert lists.calls == ["pve1 nfs content=import"]
    assert {size: node for (node, _volume), size in found.items()} == {2 * GIB: "pve2", 3 * GIB: "pve2", None: "pve2"}
    assert len(found) == 6


def test_disk__has_only_its_vms_images_listed_and_one_that_is_not_may_be_hidden() -> None:
    lists = Lists({"pve1 data": [row("data:vm-100-disk-0", 32)]})
    found = read_volumes(lists, NODES, STORAGES, ["data:vm-100-disk-0"])
    assert found == {("pve1", "data:vm-100-disk-0"): 32 * GIB}
    assert sorted(lists.calls) == ["pve1 data content=images vmid=100", "pve2 data content=images vmid=100"]


def test_disk_in_an_archive__is_there_when_the_archive_is() -> None:
    lists = Lists({"pve1 local": [row("local:import/vm.ova")]})
    inside = "local:import/vm.ova/disk-1.vmdk"
    assert read_volumes(lists, NODES, STORAGES, [inside]) == {("pve2", inside): None}


@pytest.mark.parametrize(
    "volume", ["/srv/images/debian.qcow2", "local:snippets/x.yml", "data:iso/debian.iso", "elsewhere:iso/debian.iso"]
)
def test_unlisted_volume__is_unknown(volume: str) -> None:
    lists = Lists({})
    assert read_volumes(lists, NODES, STORAGES, [volume]) == {}
    assert lists.calls == []


def test_what_may_not_be_listed__is_not_known() -> None:
    found = read_volumes(Lists({"pve1 local": None}), NODES, STORAGES, ["local:iso/debian.iso"])
    assert found == {("pve2", "local:iso/debian.iso"): None}


def test_storage_that_is_not_active__is_not_asked() -> None:
    storages = (Storage("local", "pve1", content=FILES, active=False), Storage("local", "pve2", content=FILES))
    lists = Lists({})
    read_volumes(lists, NODES, storages, ["local:iso/debian.iso"])
    assert lists.calls == ["pve2 local content=iso"]


def test_snapshot__has_the_volumes_that_are_needed_and_costs_nothing_without() -> None:
    lists = Lists({"pve1 local": [row("local:iso/debian.iso")]})
    snapshot = Snapshot(nodes=NODES, storages=STORAGES)
    assert complete_snapshot(lists, snapshot, Needs()).volumes == {}
    assert lists.calls == []
    found = complete_snapshot(lists, snapshot, Needs(volumes=frozenset({"local:iso/debian.iso"})))
    assert found.volumes[("pve1", "local:iso/debian.iso")] == GIB
