# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Descriptions: mistakes are named, recordings are understood, the short form is repeatable."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_cluster.build import build
from simulated_cluster.client import CLUSTERS
from simulated_cluster.description import DescriptionError, load
from simulated_cluster.property_strings import GIB, MIB
from support.recordings import recording
from support.versions import VERSIONS

NODE = {"name": "pve1", "cores": 4, "memory": 8192}
STORAGE = {"name": "st", "type": "dir", "size": 10}


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({}, "a cluster needs at least one node"),
        ({"nodes": [NODE], "storage": []}, r"unknown key\(s\) storage; known: .*storages"),
        ({"nodes": [NODE, NODE]}, "node pve1 is described twice"),
        ({"nodes": [{"name": "a", "cores": 0, "memory": 1}]}, "node a: cores must be a positive whole number, not 0"),
        ({"nodes": [{"name": "a", "memory": 1}]}, "node a: cores is missing"),
        ({"nodes": [NODE], "version": "7.4"}, "version must be one of 9.2, 8.4"),
        ({"nodes": [NODE], "storages": [{**STORAGE, "nodes": ["x"]}]}, "storage st: there is no node 'x'"),
        ({"nodes": [NODE], "guests": [{"vmid": 99, "node": "pve1"}]}, "guest 99: vmid must be between 100"),
        ({"nodes": [NODE], "guests": [{"vmid": 100, "node": "x"}]}, "guest 100: there is no node 'x'"),
        ({"nodes": [NODE], "guests": [{"vmid": 100, "node": "pve1", "pool": "p"}]}, "there is no pool 'p'"),
        ({"nodes": [NODE], "guests": [{"vmid": 100, "node": "pve1", "disks": {"scsi0": "x:1"}}]}, "no storage 'x'"),
        ({"nodes": [NODE], "timing": {"clone": 1}}, r"timing: unknown key\(s\) clone"),
        ({"nodes": [NODE], "images": {"x": {}}}, "images: there is no storage 'x'"),
        ({"nodes": [NODE], "guests": {"vmid": 100}}, "guests: expected a list, got dict"),
        ({"nodes": [NODE], "tokens": [{"id": "a@pve!b"}]}, "token a@pve!b: there is no user 'a@pve'"),
        ({"nodes": [NODE], "roles": {"R": ["VM.Nope"]}}, r"role R: unknown privilege\(s\) VM.Nope"),
    ],
)
def test_mistake__is_named_where_it_stands(description: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        build(load(description))


@pytest.mark.parametrize("path", sorted(CLUSTERS.glob("*.yml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("version", VERSIONS)
def test_shipped_clusters__are_sound_in_either_version(path: Any, version: str) -> None:
    cluster = build(load(path), version=version)
    for guest in cluster.guests.values():
        for drive in guest.drives().values():
            volume = cluster.volumes.find(drive["file"], guest.node)
            assert volume is not None
            assert cluster.storages[volume.storage].usable(guest.node)


def test_storage_sizes__differ_per_node_and_shared_ones_count_once() -> None:
    cluster = build(load({
        "nodes": [NODE, {**NODE, "name": "pve2"}, {**NODE, "name": "pve3"}],
        "storages": [
            {"name": "own", "type": "lvmthin", "size": {"pve1": 10, "pve2": 20}, "used": {"pve2": 5}},
            {"name": "all", "type": "rbd", "size": 100},
        ],
        "guests": [
            {"vmid": 100, "node": "pve1", "disks": {"scsi0": "own:4", "scsi1": "all:8"}},
            {"vmid": 101, "node": "pve2", "disks": {"scsi0": "own:4", "scsi1": "all:8"}},
        ],
    }))
    own, shared = cluster.storages["own"], cluster.storages["all"]
    assert (own.total("pve1"), own.used("pve1")) == (10 * GIB, 4 * GIB)
    assert (own.total("pve2"), own.used("pve2")) == (20 * GIB, 9 * GIB)
    assert not own.usable("pve3")
    assert {shared.used(node) for node in cluster.nodes} == {16 * GIB}


def test_short_form__gives_the_same_cluster_for_the_same_seed() -> None:
    wish = {"nodes": 5, "guests_per_node": 4, "seed": 7}
    assert load({"generate": wish}) == load({"generate": wish})
    assert load({"generate": wish}) != load({"generate": {**wish, "seed": 8}})
    assert len(build(load({"generate": wish})).guests) == 20


def test_recorded_answers__become_the_cluster_that_gave_them() -> None:
    answers = {
        "/version": recording("8.4", "version")["body"],
        "/cluster/resources": recording("8.4", "cluster-resources-full-mix")["body"],
        "/cluster/options": recording("8.4", "cluster-options")["body"],
        "/cluster/mapping/pci": recording("8.4", "mapping-pci")["body"],
        "/nodes/pve1/qemu/120/config": recording("8.4", "qemu-120-config-current")["body"],
    }
    cluster = build(load(answers))
    assert (cluster.version, len(cluster.nodes)) == ("8.4", 3)
    assert cluster.nodes["pve1"].memory == 25276510208 // MIB * MIB
    web = cluster.guests[101]
    assert (web.name, web.maxcpu(2), web.maxmem, web.tags) == ("web01", 2, 512 * MIB, "core;lab")
    assert cluster.access.pool_of(101) == "lab"
    assert cluster.guests[120].config["net0"] == "virtio=BC:24:11:68:E1:F0,bridge=vmbr0"
    assert cluster.volumes.find("vmdata:120/vm-120-disk-0.raw", "pve1") is not None
    assert cluster.options["next-id"] == {"lower": "100", "upper": "999999"}
    assert set(cluster.mappings["pci"]) == {"nic", "vgpu", "multi"}
