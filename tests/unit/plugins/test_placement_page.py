# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What pages about placed VMs are made of."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.placement_page import escape, placement_page
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.pages.placement import spare_without_largest


def node(name: str, memory: int, used: int, **more: Any) -> dict[str, Any]:
    return {
        "node": name,
        "online": True,
        "maintenance": False,
        "storages": [],
        "cores": 8,
        "cores_limit": 32.0,
        "cores_before": 1,
        "cores_after": 2,
        "memory": memory,
        "memory_limit": memory,
        "memory_before": used,
        "memory_after": used,
        **more,
    }


def test_every_text__is_escaped_wherever_it_stands() -> None:
    hostile = "<b title='x'>\"&"
    found = escape({hostile: [hostile, {"a": (hostile, 1, None, True)}]})
    assert found == {
        "&lt;b title=&#x27;x&#x27;&gt;&quot;&amp;": [
            "&lt;b title=&#x27;x&#x27;&gt;&quot;&amp;",
            {"a": ["&lt;b title=&#x27;x&#x27;&gt;&quot;&amp;", 1, None, True]},
        ]
    }


def test_loss_of_the_largest_node__can_be_made_up_for_when_the_others_hold_all() -> None:
    nodes = [node("a", 100, 60), node("b", 100, 40), node("c", 50, 0)]
    assert spare_without_largest(nodes, "memory") == {
        "largest": "b",
        "out": 100,
        "left": 150,
        "part": 0.6,
        "fits": True,
    }
    assert spare_without_largest([node("a", 100, 60), node("b", 50, 0)], "memory")["fits"] is False


def test_node_without_a_limit__counts_with_its_size() -> None:
    assert spare_without_largest([node("a", 100, 0, memory_limit=None), node("b", 50, 0)], "memory")["left"] == 50


def test_no_nodes__spare_nothing() -> None:
    assert spare_without_largest([], "memory") == {"largest": None, "out": 0, "left": 0, "part": 0, "fits": True}


def test_nodes_that_are_down_or_in_maintenance__do_not_count() -> None:
    nodes = [node("a", 1024, 0), node("b", 2048, 0, online=False), node("c", 4096, 0, maintenance=True)]
    page = placement_page({"vms": [], "nodes": nodes})
    assert page["usable"] == 1
    assert page["spare"]["memory"]["largest"] == "a"


def test_shared_storage__is_shown_once() -> None:
    storages = [{"storage": "ceph", "shared": True}, {"storage": "local", "shared": False}]
    nodes = [node(name, 1, 0, storages=storages) for name in ("a", "b")]
    page = placement_page({"vms": [], "nodes": nodes})
    assert [storage["storage"] for storage in page["shared"]] == ["ceph"]


def test_memory__is_in_gib() -> None:
    page = placement_page({"vms": [], "nodes": [node("a", 65536, 1536, memory_limit=None)]})
    shown = page["nodes"][0]
    assert (shown["memory"], shown["memory_before"], shown["memory_limit"]) == (64, 1.5, None)


def test_what_was_given_up__is_noticed() -> None:
    assert placement_page({"vms": []})["freed"] is False
    assert placement_page({"vms": [], "nodes": [node("a", 9, 4)]})["freed"] is False
    assert placement_page({"vms": [], "nodes": [node("a", 9, 4, memory_after=3)]})["freed"] is True


def test_vm_that_was_held_back__is_shown_where_it_would_be() -> None:
    decision = {"node": "a", "vmid": 104, "storages": {"scsi0": "ceph"}, "nodes": []}
    web = {"name": "web", "node": None, "vmid": None, "storages": {}, "actions": [], "not_done": ["create"]}
    page = placement_page({"vms": [{**web, "decision": decision}], "nodes": [node("a", 1, 0)]})
    (vm,) = page["vms"]
    assert (vm["held_back"], vm["node"], vm["vmid"], vm["storages"]) == (True, "a", 104, {"scsi0": "ceph"})
    assert page["nodes"][0]["placed"] == [{"name": "web", "vmid": 104, "anchor": "vm-1"}]


def test_nodes_reason__is_told_of_one() -> None:
    verdict = {"feasible": False, "score": None, "scores": {}, "rejected_by": "NodeReady"}
    verdicts = [
        {**verdict, "node": "a", "reason": "were offline"},
        {**verdict, "node": "b", "reason": "had no room"},
        {**verdict, "node": "c", "feasible": True, "score": 1.0, "rejected_by": None, "reason": None},
    ]
    (vm,) = placement_page({"vms": [{"name": "web", "decision": {"node": "c", "nodes": verdicts}}], "nodes": []})["vms"]
    assert [shown["reason"] for shown in vm["nodes"]] == [None, "was offline", "had no room"]


@pytest.mark.parametrize("wrong", [None, [], {"nodes": []}])
def test_other_data__is_refused(wrong: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="result of qemu_schedule"):
        placement_page(wrong)
