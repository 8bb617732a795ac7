# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""HA rules and groups, bridges, CPU types and flags: as recorded on real clusters of both versions."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import PermissionDenied
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import HARule, Node, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.answers import failure_of_answer
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.recorded import (
    RecordedReader,
    Recorder,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.ha_state import read_ha_rules
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.snapshot import (
    Needs,
    complete_snapshot,
    read_snapshot,
)


class Answers:
    """Answers with recordings, by their paths: data where they succeeded, the error that they tell otherwise."""

    def __init__(self, *recordings: dict[str, t.Any]) -> None:
        self.calls: list[str] = []
        self._recordings = {recorded["request"]["path"]: recorded for recorded in recordings}

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        self.calls.append(path)
        recorded = self._recordings[path]
        if recorded["status"] == 200:
            return recorded["body"]["data"]
        raise failure_of_answer("GET", path, recorded["status"], recorded["reason"], json.dumps(recorded["body"]), {})

    def server_time(self) -> float | None:
        return None


def test_rules_of_both_types__are_read_with_one_call(recording):
    reader = Answers(recording("9.2", "ha-rules"))

    rules = {rule.name: rule for rule in read_ha_rules(reader)}

    assert reader.calls == ["/cluster/ha/rules"]
    assert rules["prefer12"] == HARule("prefer12", "node-affinity", frozenset({101, 120}), {"pve1": 0, "pve2": 0})
    assert rules["only2"].strict
    assert rules["together"] == HARule("together", "resource-affinity", frozenset({104, 111}))
    assert not rules["apart"].positive
    assert [rule.name for rule in rules.values() if rule.disabled] == ["off3"]


def test_rule_of_one_guest__holds_for_the_guest_that_joins_it(recording):
    reader = Answers(recording("9.2", "ha-rules-after-purge"))
    apart = next(rule for rule in read_ha_rules(reader) if rule.name == "apart")
    assert (apart.vmids, apart.disabled) == ({105}, False)


def test_rule_with_errors__is_one_that_the_ha_manager_ignores(recording):
    recorded = recording("9.2", "ha-rules")
    recorded["body"]["data"] = [recording("9.2", "ha-rule-one-with-errors")["body"]["data"]]

    assert [rule.disabled for rule in read_ha_rules(Answers(recorded))] == [True]


def test_before_version_9_groups__are_read_with_their_members(recording):
    reader = Answers(
        recording("8.4", "ha-rules-404"), recording("8.4", "ha-groups"), recording("8.4", "ha-resources-just-added")
    )

    assert read_ha_rules(reader) == (
        HARule("g12", "node-affinity", frozenset({120}), {"pve1": 2, "pve2": 1}, strict=True, from_group=True),
    )


def test_node_that_a_group_names_twice__has_its_highest_priority_whatever_the_order(recording):
    def nodes(text: str) -> object:
        recorded = recording("8.4", "ha-groups")
        recorded["body"]["data"][0]["nodes"] = text
        resources = recording("8.4", "ha-resources-just-added")
        return read_ha_rules(Answers(recording("8.4", "ha-rules-404"), recorded, resources))[0].nodes

    assert nodes("pve1:3,pve2:1,pve1") == nodes("pve1,pve1:3,pve2:1") == {"pve1": 3, "pve2": 1}


def test_groups_that_an_upgrade_has_not_moved_yet__are_groups(recording):
    names = ("premigration-ha-rules", "premigration-ha-groups", "premigration-ha-resources")
    rules = {rule.name: rule for rule in read_ha_rules(Answers(*(recording("9.2", name) for name in names)))}

    assert set(rules) == {"g12", "gall"}
    assert all(rule.from_group for rule in rules.values())
    assert rules["g12"].vmids == {102}


def test_groups_that_an_upgrade_has_moved__are_rules(recording):
    rules = read_ha_rules(
        Answers(recording("9.2", "postmigration-ha-rules"), recording("9.2", "postmigration-ha-groups"))
    )

    assert rules
    assert not any(rule.from_group for rule in rules)


def test_cluster_without_rules__has_none(recording):
    empty = {"request": {"path": "/cluster/ha/rules"}, "status": 200, "body": {"data": []}}

    assert read_ha_rules(Answers(empty, recording("9.2", "postmigration-ha-groups"))) == ()
    assert read_ha_rules(RecordedReader({"/cluster/resources": []})) == ()


def test_who_may_not_see_the_rules__is_told(recording):
    refused = recording("9.2", "err-new-perm-bridge-denied-op")
    refused["request"]["path"] = "/cluster/ha/rules"

    with pytest.raises(PermissionDenied):
        read_ha_rules(Answers(refused))


def nodes_with(answers: Mapping[str, t.Any], **needs: bool) -> dict[str, Node]:
    snapshot = Snapshot(nodes=(Node("pve1"), Node("pve2"), Node("pve3", online=False)))
    reader = RecordedReader({"/cluster/resources": [], **answers})
    return {node.name: node for node in complete_snapshot(reader, snapshot, Needs(**needs)).nodes}


def test_bridges__are_read_per_node_and_unknown_where_a_node_did_not_answer(recording):
    interfaces = recording("8.4", "node-network")["body"]["data"]
    bridges = [row for row in interfaces if row["type"] == "bridge"]
    nodes = nodes_with({"/nodes/pve1/network?type=any_bridge": bridges}, bridges=True)

    assert [nodes[name].bridges for name in ("pve1", "pve2", "pve3")] == [{"vmbr0"}, None, None]


def test_cpu_types__are_read_per_node(recording):
    caps = recording("8.4", "node-qemu-cpu-caps")["body"]
    nodes = nodes_with({"/nodes/pve1/capabilities/qemu/cpu": caps}, cpu_types=True)

    assert {"host", "EPYC-Milan-v2"} <= (nodes["pve1"].cpu_models or set())
    assert nodes["pve2"].cpu_models is None


def test_cpu_flags__are_those_that_the_answer_gives_to_the_node(recording):
    flags = {"data": [{"name": "aes", "supported-on": ["pve1"]}, {"name": "arat", "supported-on": []}]}
    nodes = nodes_with({"/cluster/qemu/cpu-flags": flags}, cpu_flags=True)
    recorded = nodes_with(
        {"/cluster/qemu/cpu-flags": recording("9.2", "cluster-qemu-cpu-flags")["body"]}, cpu_flags=True
    )

    assert (nodes["pve1"].cpu_flags, nodes["pve2"].cpu_flags) == ({"aes"}, set())
    assert "cx16" in (recorded["pve2"].cpu_flags or set())


def test_cpu_flags__stay_unknown_where_this_version_does_not_tell():
    assert nodes_with({}, cpu_flags=True)["pve1"].cpu_flags is None


def samples(*pressures: tuple[float, float, float] | None) -> list[dict[str, t.Any]]:
    """A sample a minute, of CPU, I/O and memory, in percent; None is one that is not filled yet."""
    names = ("pressurecpusome", "pressureiosome", "pressurememorysome")
    return [
        {"time": 60 * minute, "cpu": 0.1, **(dict(zip(names, values, strict=True)) if values else {})}
        for minute, values in enumerate(pressures)
    ]


def test_pressure_of_a_node__is_its_worst_over_the_last_five_minutes():
    last_five = [(1, 10, 0), (1, 20, 0), (1, 30, 0), (1, 40, 0), (90, 50, 0)]
    rows = samples((0, 100, 100), *last_five, None, None)
    nodes = nodes_with({"/nodes/pve1/rrddata?cf=AVERAGE&timeframe=hour": rows}, pressure=True)

    assert nodes["pve1"].pressure == pytest.approx(0.30)


def test_pressure__is_unknown_where_proxmox_does_not_tell():
    unfilled = samples(None, None)
    nodes = nodes_with({"/nodes/pve1/rrddata?cf=AVERAGE&timeframe=hour": unfilled}, pressure=True)

    assert [nodes[name].pressure for name in ("pve1", "pve2", "pve3")] == [None, None, None]


def test_nothing__is_read_that_is_not_needed():
    assert complete_snapshot(Answers(), Snapshot(), Needs()) == Snapshot()


@pytest.mark.parametrize(("name", "emptied"), [("maintenance-ha-status", {"pve3"}), ("ha-status-current", set())])
def test_maintenance__is_known_from_the_daemons_of_the_ha_manager(recording, name, emptied):
    rows = [{"type": "node", "node": node, "status": "online", "hastate": "online"} for node in ("pve1", "pve3")]
    answers = {"/cluster/resources": rows, "/cluster/ha/status/current": recording("9.2", name)["body"]}
    snapshot = read_snapshot(RecordedReader(answers), Needs(maintenance=True))

    assert {node.name for node in snapshot.nodes if node.maintenance} == emptied


def test_maintenance__is_not_asked_for_where_ha_is_not_used():
    recorder = Recorder(RecordedReader({"/cluster/resources": [{"type": "node", "node": "a"}]}))
    read_snapshot(recorder, Needs(maintenance=True))

    assert list(recorder.answers) == ["/cluster/resources"]
