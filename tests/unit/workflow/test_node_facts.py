# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the user says of the nodes: which node it reaches, and how each mistake is told."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import MIB, Node, Taint
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.rules import facts_of

NODES = [Node("pve1"), Node("pve2"), Node("pve10")]


def test_facts__become_fields_of_the_node() -> None:
    facts = {
        "labels": {"rack": "a", "row": 7, "spare": True},
        "taints": [{"key": "gpu", "value": "yes", "effect": "PreferNoSchedule"}, {"key": "old"}],
        "reserved": {"memory": 8192, "cores": 2},
        "overcommit": {"cpu": 6, "memory": "1.2"},
    }
    fields = facts_of({"pve1": facts})(NODES)
    assert fields == {
        "pve1": {
            "labels": {"rack": "a", "row": "7", "spare": "True"},
            "taints": (Taint("gpu", "yes", "PreferNoSchedule"), Taint("old", "", "NoSchedule")),
            "reserved_memory": 8192 * MIB,
            "reserved_cores": 2.0,
            "cpu_ratio": 6.0,
            "memory_ratio": 1.2,
        }
    }
    assert replace(Node("pve1"), **fields["pve1"]).labels["row"] == "7"


def test_pattern__reaches_every_node_that_it_matches_in_full() -> None:
    assert set(facts_of({"pve[12]": {"labels": {"rack": "a"}}})(NODES)) == {"pve1", "pve2"}
    assert set(facts_of({"pve1": {"labels": {"rack": "a"}}})(NODES)) == {"pve1"}


def test_what_is_not_given__is_left_to_the_filters() -> None:
    assert facts_of({"pve1": {"reserved": {"cores": 1}, "overcommit": {}}})(NODES) == {"pve1": {"reserved_cores": 1.0}}
    assert facts_of({"pve1": None})(NODES) == {"pve1": {}}
    assert facts_of(None)(NODES) == {}


def test_several_entries_about_one_node__add_up_and_its_own_name_wins() -> None:
    nodes = {
        "pve1": {"labels": {"rack": "own"}, "overcommit": {"cpu": 1}},
        "pve.*": {"labels": {"rack": "a", "room": "x"}, "taints": [{"key": "t"}], "overcommit": {"cpu": 2}},
        "pve[12]": {"labels": {"room": "y"}, "taints": [{"key": "t"}, {"key": "u"}], "overcommit": {"cpu": 3}},
    }
    found = facts_of(nodes)(NODES)
    assert found["pve1"] == {
        "labels": {"rack": "own", "room": "y"},
        "taints": (Taint("t"), Taint("u")),
        "cpu_ratio": 1.0,
    }
    assert found["pve2"]["labels"] == {"rack": "a", "room": "y"}
    assert found["pve2"]["cpu_ratio"] == 3.0
    assert found["pve10"]["cpu_ratio"] == 2.0


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "nodes: [] is not valid, expected a mapping of node names or patterns"),
        ({"pve[3-9]": {}}, "nodes: 'pve[3-9]' matches no node; the cluster's nodes: pve1, pve10, pve2"),
        ({"(?=p)pve1": {}}, "nodes.(?=p)pve1: invalid regular expression '(?=p)pve1': look-ahead is not supported"),
        ({"pve[": {}}, "nodes.pve[: invalid regular expression 'pve[': a class is not closed by ']' (at character 4)"),
        ({"pve1": ["a"]}, "nodes.pve1: ['a'] is not valid, expected a mapping"),
        (
            {"pve1": {"label": {}}},
            "nodes.pve1: unknown key 'label'; known keys: labels, overcommit, reserved, taints",
        ),
        ({"pve1": {"labels": "a"}}, "nodes.pve1.labels: 'a' is not valid, expected a mapping of keys to texts"),
        ({"pve1": {"labels": {"rack": []}}}, "nodes.pve1.labels.rack: [] is not valid, expected a text"),
        ({"pve1": {"labels": {"node": "x"}}}, "nodes.pve1.labels.node: 'x' is not valid, expected another key"),
        ({"pve1": {"taints": [{"value": "x"}]}}, "nodes.pve1.taints[0].key: is missing, expected the taint's key"),
        (
            {"pve1": {"taints": [{"key": "x", "effect": "NoExecute"}]}},
            "nodes.pve1.taints[0].effect: 'NoExecute' is not valid, expected one of NoSchedule, PreferNoSchedule",
        ),
        (
            {"pve1": {"reserved": {"memory": -1}}},
            "nodes.pve1.reserved.memory: -1 is not valid, expected a number of at least 0",
        ),
        (
            {"pve1": {"reserved": {"cpu": 1}}},
            "nodes.pve1.reserved: unknown key 'cpu'; known keys: cores, memory",
        ),
        (
            {"pve1": {"overcommit": {"cpu": "a lot"}}},
            "nodes.pve1.overcommit.cpu: 'a lot' is not valid, expected a number of at least 0",
        ),
    ],
    ids=str,
)
def test_mistake__names_option_value_and_what_was_expected(nodes: t.Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        facts_of(nodes)(NODES)
    assert caught.value.message.startswith(message)
