# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cluster as data, from answers recorded on real clusters."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Guest, Snapshot, Storage
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.recorded import RecordedReader
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.rows import guest_of_row
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.snapshot import (
    Needs,
    identity,
    read_snapshot,
)

RESOURCES = "/cluster/resources"
GIB = 1024**3


def read(recorded: dict[str, t.Any], needs: Needs | None = None, **answers: t.Any) -> Snapshot:
    return read_snapshot(RecordedReader({RESOURCES: recorded["body"], **answers}), needs)


def guest(snapshot: Snapshot, vmid: int) -> Guest:
    return next(guest for guest in snapshot.guests if guest.vmid == vmid)


def test_one_answer__gives_nodes_guests_and_storages(recording):
    snapshot = read(recording("9.2", "cluster-resources-full-mix"))

    assert {node.name: (node.online, node.cores, node.memory) for node in snapshot.nodes} == dict.fromkeys(
        ("pve1", "pve2", "pve3"), (True, 2, 25276510208)
    )
    web = guest(snapshot, 101)
    assert (web.name, web.node, web.kind, web.status, web.pool) == ("web01", "pve1", "qemu", "stopped", "lab")
    assert (web.cores, web.memory, web.tags, web.running) == (2, 512 * 1024**2, frozenset({"core", "lab"}), False)
    assert guest(snapshot, 120).running
    assert guest(snapshot, 200).kind == "lxc"
    assert [vm.vmid for vm in snapshot.guests if vm.template] == [9000]
    assert len(snapshot.guests) == 14


def test_storages__are_listed_per_node_with_what_they_may_hold(recording):
    snapshot = read(recording("9.2", "cluster-resources-full-mix"))

    assert (
        Storage(
            "shared", "pve3", "dir", True, frozenset({"iso", "images", "snippets"}), True, 270553174016, 27957370880
        )
        in snapshot.storages
    )


@pytest.mark.parametrize("version", ["8.4", "9.2"])
def test_rows_of_types_not_known__are_ignored(recording, version):
    recorded = recording(version, "cluster-resources-full-mix")
    recorded["body"]["data"].append({"type": "quantum", "id": "quantum/1"})

    assert read(recorded) == read(recording(version, "cluster-resources-full-mix"))


def test_node_in_maintenance__is_online_and_marked(recording):
    snapshot = read(recording("9.2", "maintenance-cluster-resources"))

    assert {node.name: (node.online, node.maintenance) for node in snapshot.nodes} == {
        "pve1": (True, False),
        "pve2": (True, False),
        "pve3": (True, True),
    }
    assert guest(snapshot, 120).ha_managed
    assert not guest(snapshot, 102).ha_managed


def test_dead_node__is_offline_and_its_guests_are_kept_without_names(recording):
    snapshot = read(recording("8.4", "nodedown-cluster-resources-after-5min"))

    assert {node.name for node in snapshot.nodes if not node.online} == {"pve2", "pve3"}
    lost = guest(snapshot, 101)
    assert (lost.name, lost.status, lost.memory, lost.tags) == (None, "unknown", 0, frozenset({"core", "lab"}))
    assert {storage.active for storage in snapshot.storages if storage.node == "pve2"} == {False}


def test_user_without_rights__sees_nodes_without_figures(recording):
    snapshot = read(recording("8.4", "cluster-resources-as-nobody_pve_tok"))

    assert {(node.online, node.cores, node.memory) for node in snapshot.nodes} == {(True, 0, 0)}
    assert snapshot.guests == ()


def test_new_guest__has_no_name_and_no_placeholder_for_one(recording):
    recorded = recording("9.2", "cluster-resources-shortly-after-create")
    recorded["body"]["data"].append(
        {"type": "qemu", "vmid": 621, "node": "pve1", "name": "VM 621", "maxmem": 512, "maxcpu": 1, "status": "stopped"}
    )
    snapshot = read(recorded)

    assert guest(snapshot, 620).name is None
    assert guest(snapshot, 621).name is None


def next_id(options: t.Any = None, nextid: t.Any = None) -> Snapshot:
    answers = {RESOURCES: [], "/cluster/options": options, "/cluster/nextid": nextid}
    return read_snapshot(
        RecordedReader({path: answer for path, answer in answers.items() if answer is not None}), Needs(next_id=True)
    )


def test_upper_bound_of_next_id__is_the_first_id_not_given(recording):
    assert next_id({"mac_prefix": "x", "next-id": {"lower": "5000", "upper": "5003"}}).next_id == (5000, 5002)


def test_missing_setting__has_the_defaults_of_proxmox(recording):
    assert next_id(recording("8.4", "cluster-options-default")["body"]).next_id == (100, 999_999)


def test_lower_bound_below_the_lowest_vmid__is_raised_to_it():
    assert next_id({"mac_prefix": "x", "next-id": {"lower": "50"}}).next_id == (100, 999_999)


def test_who_may_not_see_the_bounds__starts_at_the_id_that_proxmox_suggests(recording):
    filtered = recording("9.2", "cluster-options-as-op3-list")["body"]

    assert next_id(filtered, {"data": "5000"}).next_id[0] == 5000


def test_bounds__are_not_read_unless_needed():
    assert read_snapshot(RecordedReader({RESOURCES: []}), Needs()).next_id == (100, 999_999)


AUTHORITY = "/nodes/localhost/certificates/info"


@pytest.mark.parametrize("version", ["8.4", "9.2"])
def test_identity__is_the_authority_that_a_token_without_privileges_may_read(recording, version):
    at_once = recording(version, "certificates-info-localhost-as-nobody_pve_tok")["body"]
    on_another_node = recording(version, "certificates-info-as-nobody_pve_tok")["body"]
    found = {identity(RecordedReader({RESOURCES: [], AUTHORITY: body})) for body in (at_once, on_another_node)}

    assert found == {
        {"8.4": "ca:d42b8e79fa2deaa012b79f7a761e6a4a", "9.2": "ca:859d6702e36d241b9d64ab1c2cb4722b"}[version]
    }


def lone(fingerprint: str, subject: str = "/CN=Proxmox Virtual Environment/OU=1/O=PVE Cluster Manager CA"):
    row = {"filename": "pve-root-ca.pem", "fingerprint": fingerprint, "subject": subject}
    return RecordedReader({RESOURCES: [{"type": "node", "node": "pve"}], AUTHORITY: [row]})


def test_identity__tells_lone_nodes_of_one_name_apart():
    assert identity(lone("AA:BB")) != identity(lone("AA:CC"))


def test_identity__does_not_rely_on_an_authority_that_is_not_the_clusters_own():
    assert identity(lone("AA:BB", "/O=Example Inc/CN=Example Root")) == "pve"


def test_identity__is_the_names_of_all_nodes_in_a_recording_without_the_authority(recording):
    reader = RecordedReader({RESOURCES: recording("8.4", "cluster-resources-as-nobody_pve_tok")["body"]})

    assert identity(reader) == "pve1,pve2,pve3"


def test_vm_that_has_just_been_migrated__is_running():
    row = {"vmid": 101, "name": "web-1", "node": "pve1", "type": "qemu", "status": "postmigrate"}
    assert guest_of_row(row).status == "running"


def test_tags_of_guests__are_read_as_proxmox_8_stores_them():
    row = {"vmid": 101, "name": "web-1", "node": "pve1", "type": "qemu", "status": "running", "tags": "b, A;b"}
    assert guest_of_row(row).tags == {"b", "A"}
