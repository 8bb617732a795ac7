# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests named like hosts and groups of others: the inventory gets new hosts, and nothing else in it changes."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster

from .conftest import Ansible

STATIC = """
[prod]
db-prod ansible_host=192.0.2.5 ansible_password=hunter2
web1.example.com ansible_password=hunter2

[prod:vars]
ansible_user=admin

[sites:children]
prod
"""

NAMES = [
    "all", "ungrouped", "prod", "sites", "db-prod", "web1.example.com", "localhost", "localhost.localdomain", "vars",
    "ip6-localhost", "127.0.0.1.", socket.gethostname(), f"{socket.gethostname()}.example.com",
    "hostvars", "omit", "groups", "tags", "ansible-host", "127.0.0.1", "127.1", "2130706433", "0x7f.1", "web", "twin",
    "twin", "plain",
]  # fmt: skip

CLUSTER = {
    "nodes": [{"name": "pve1", "cores": 64, "memory": 65536}],
    "pools": ["tenant"],
    "guests": [
        {
            "vmid": 100 + number, "name": name, "node": "pve1", "memory": 512, "pool": "tenant",
            # Each tag is a group with these keyed_groups: of others, of itself as a parent, and in a circle.
            "tags": ["web", "prod", "tagged", "all", "tenant", "plain_119", "twin_100"],
            "config": {"ipconfig0": "ip=203.0.113.66/24", "ipconfig1": "ip=127.0.0.1/8"},
        }
        for number, name in enumerate(NAMES)
    ],
}  # fmt: skip

SOURCE: dict[str, Any] = {
    "addresses": ["static"],
    "keyed_groups": [
        {"key": "proxmox_tags", "separator": "", "parent_group": "tagged"},
        {"key": "[proxmox_pool, 'tagged']", "separator": "", "parent_group": "web"},
    ],
    "compose": {"ansible_user": "'guest'"},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SimulatedCluster]:
    with SimulatedCluster.start(CLUSTER, time_scale=0.02) as running:
        yield running


def members(listed: dict[str, Any], group: str) -> set[str]:
    """The hosts of a group and of its children."""
    found = listed.get(group, {})
    return set(found.get("hosts", ())).union(*(members(listed, child) for child in found.get("children", ())))


def test_guests__are_hosts_of_their_own_and_change_no_other(cluster: SimulatedCluster, ansible: Ansible) -> None:
    env = cluster.environment()
    before = json.loads(ansible("ansible-inventory", "--list", env=env, sources={"a_hosts": STATIC}).stdout)
    done = ansible("ansible-inventory", "--list", env=env, sources={"a_hosts": STATIC, "b.yml": SOURCE})
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    theirs = before["_meta"]["hostvars"]
    ours = {name: each for name, each in listed["_meta"]["hostvars"].items() if name not in theirs}
    assert {name: listed["_meta"]["hostvars"][name] for name in theirs} == theirs
    wanted = {100 + number: name if name == "plain" else f"{name}_{100 + number}" for number, name in enumerate(NAMES)}
    assert {each["proxmox_vmid"]: name for name, each in ours.items()} == wanted
    for group in before:
        if group not in ("_meta", "ungrouped"):
            assert members(listed, group) & theirs.keys() == members(before, group) & theirs.keys(), group
    assert not {group for group in listed if members(listed, group) & theirs.keys()} - before.keys()
    assert {each["ansible_host"] for each in ours.values()} == {"203.0.113.66"}, "loopback is the controller's own"
    told = " ".join(done.stderr.split())
    assert "get their VMID as a suffix: 0x7f.1, 127.0.0.1, 127.0.0.1., 127.1, 2130706433, all, ansible-host" in told
    assert "the group prod is not made a child of tagged, because it has hosts of other sources" in told


def test_guests__have_their_vmid_in_all_names_if_the_user_says_so(cluster: SimulatedCluster, ansible: Ansible) -> None:
    # Later sources may name hosts and groups that are not known yet.
    options = {**SOURCE, "vmid_suffix": "always"}
    done = ansible("ansible-inventory", "--list", env=cluster.environment(), sources={"b.yml": options, "c": STATIC})
    variables = json.loads(done.stdout)["_meta"]["hostvars"]
    assert all(name.endswith(f"_{each['proxmox_vmid']}") for name, each in variables.items() if "proxmox_vmid" in each)
    assert variables["db-prod"]["ansible_host"] == "192.0.2.5"
    assert "proxmox_vmid" not in variables["db-prod"]
    assert "as a suffix" not in done.stderr


def test_guests__are_all_there_though_groups_are_named_like_their_hosts(
    cluster: SimulatedCluster, ansible: Ansible
) -> None:
    options = {"keyed_groups": [{"key": "inventory_hostname", "separator": ""}], "groups": {"localhost": "true"}}
    done = ansible("ansible-inventory", "--list", env=cluster.environment(), sources={"b.yml": options})
    variables = json.loads(done.stdout)["_meta"]["hostvars"]
    assert sorted(each["proxmox_vmid"] for each in variables.values()) == [100 + number for number in range(len(NAMES))]
    assert "there is no group all_100, because a host has this name" in " ".join(done.stderr.split())


def test_guests__are_one_host_in_sources_about_one_cluster(cluster: SimulatedCluster, ansible: Ansible) -> None:
    sources = {"a.yml": {"filters": ["proxmox_name == 'plain'"]}, "b.yml": {"compose": {"again": "true"}}}
    done = ansible("ansible-inventory", "--list", env=cluster.environment(), sources=sources)
    variables = json.loads(done.stdout)["_meta"]["hostvars"]
    assert len(variables) == len(NAMES)
    assert variables["plain"]["again"] is True


def test_guests__of_another_cluster_take_no_host_over(cluster: SimulatedCluster, ansible: Ansible) -> None:
    guest = {"vmid": 100, "name": "plain", "node": "pve1", "memory": 512}
    with SimulatedCluster.start({**CLUSTER, "guests": [guest]}, time_scale=0.02) as other:
        there = {"api_host": other.host, "api_port": other.port, "ca_path": other.ca_path}
        there |= {"api_token_secret": other.token_secret, "api_token_id": other.token_id, "api_user": other.token_user}
        sources = {"a.yml": {}, "b.yml": {**there, "compose": {"ansible_user": "'other'"}}}
        done = ansible("ansible-inventory", "--list", env=cluster.environment(), sources=sources)
    variables = json.loads(done.stdout)["_meta"]["hostvars"]
    assert variables["plain"]["proxmox_vmid"] == 100 + NAMES.index("plain")
    assert "ansible_user" not in variables["plain"]
    assert variables["plain_100"]["ansible_user"] in ("other", {"__ansible_unsafe": "other"})
