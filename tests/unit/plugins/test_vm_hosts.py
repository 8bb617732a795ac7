# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of VMs, whose owners may have chosen their names."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.vm_hosts import vm_hosts


def vm(name: str | None, vmid: int = 100, *, host: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    host = {"name": None, "groups": [], "vars": {}, **(host or {})}
    return {"name": name, "vmid": vmid, "node": "pve1", "tags": [], "address": None, "host": host, **more}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web-1", "web-1"),
        ("taken", "taken_100"),
        ("again", "again"),
        ("prod", "prod_100"),
        ("{{ x }}", "___x____100"),
        ("a\n", "a__100"),
        ("", "vm_100"),
        (None, "vm_100"),
    ],
)
def test_name__means_this_vm_and_nothing_else(name: str | None, expected: str) -> None:
    hostvars = {"taken": {"proxmox_vmid": 7}, "again": {"proxmox_vmid": 100}}
    assert [host["name"] for host in vm_hosts([vm(name)], hostvars, {"prod": []})] == [expected]


def test_name__of_two_vms_is_the_name_of_neither() -> None:
    assert [host["name"] for host in vm_hosts([vm("twin", 1), vm("twin", 2)], {}, {})] == ["twin_1", "twin_2"]


def test_entry__gives_its_host_a_name_groups_and_variables() -> None:
    given = {"name": "app", "groups": ["apps"], "vars": {"http_port": 80, "proxmox_vmid": 9}}
    [host] = vm_hosts([vm("other", host=given, tags=["9-x y"], address="192.0.2.1")], {"app": {}}, {}, ["all-vms"])
    place = {"name": "app", "groups": ["all_vms", "apps", "_9_x_y"]}
    known = {"http_port": 80, "proxmox_vmid": 100, "proxmox_node": "pve1", "ansible_host": "192.0.2.1"}
    assert host == {**place, "label": "app", "vars": known, "args": {**known, **place}}


def test_address__of_the_entry_comes_before_that_of_the_agent() -> None:
    [host] = vm_hosts([vm("a", host={"vars": {"ansible_host": "a.example"}}, address="192.0.2.1")], {}, {})
    assert host["vars"]["ansible_host"] == "a.example"


def test_tags__are_no_groups_if_that_is_not_wanted() -> None:
    [host] = vm_hosts([vm("a", tags=["web"])], {}, {}, tags_to_groups=False)
    assert host["groups"] == []
