# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the placement scenarios of this folder's YAML files through the engine.

A file is a list of scenarios. Each has a C(name), the behaviour that it pins, and

- C(nodes), C(guests), C(storages), C(devices), C(ha_rules): the cluster. Their fields are those of the model; memory is
  in GiB, sizes of storages are in GiB, a guest runs unless it says otherwise, and a storage is on all nodes unless it
  names some.
- C(templates): for each VMID its config, as Proxmox VE returns it.
- C(options): options of qemu_schedule for the whole run.
- C(vms): the requests, in the words of qemu_schedule.
- C(expect): for each VM what its decision must say. C(node) (or a list of which any will do), C(vmid), C(storages),
  C(devices) (the ids), C(template) (the VMID), C(rejected) (for each node a part of the reason), C(by) (for each node
  the plugin that rejected it), C(best) and C(worst) (for each score plugin a node that it gives most, or least); or
  C(error) with C(message), a part of it. Without an C(error) a VM must be placed.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from law.in_force import rules_in_force
from law.law import broken

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.demand import MEASURED, Demand
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch_cycle import schedule_all
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import (
    FilterPlugin,
    ScorePlugin,
    VMIDPlugin,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.verdicts import NodeVerdict, Outcome
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    Device,
    Guest,
    HARule,
    Node,
    Snapshot,
    Storage,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.recorded import RecordedReader
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import ONE_VM_OPTIONS
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import build_entries
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.plugin_config import profiles_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.rules import facts_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.templates import Templates

Scenario = Mapping[str, t.Any]

FOLDER = Path(__file__).resolve().parent
FILES = sorted(FOLDER.glob("*.yml"))
KEYS = {"name", "nodes", "guests", "storages", "devices", "ha_rules", "templates", "options", "vms", "expect"}
CHECKS = {
    "node", "vmid", "storages", "devices", "template", "rejected", "by", "best", "worst", "error", "message",
}  # fmt: skip


def scenarios() -> Iterator[Scenario]:
    for file in FILES:
        for scenario in yaml.safe_load(file.read_text(encoding="utf-8")):
            assert set(scenario) <= KEYS, scenario["name"]
            yield scenario


SCENARIOS = list(scenarios())


def snapshot_of(scenario: Scenario) -> Snapshot:
    names = list(scenario["nodes"])
    nodes = [_node(name, body or {}) for name, body in scenario["nodes"].items()]
    facts = facts_of(scenario.get("options", {}).get("nodes"))(nodes)
    return Snapshot(
        nodes=tuple(replace(node, **facts.get(node.name, {})) for node in nodes),
        guests=tuple(_guest(body) for body in scenario.get("guests", ())),
        storages=tuple(
            storage
            for name, body in scenario.get("storages", {}).items()
            for storage in _storages(name, names, body or {})
        ),
        devices=tuple(Device(**{"driver": "pci", **body}) for body in scenario.get("devices", ())),
        ha_rules=tuple(
            HARule(name, **{**body, "vmids": frozenset(body.get("vmids", ()))})
            for name, body in scenario.get("ha_rules", {}).items()
        ),
    )


def _node(name: str, body: Scenario) -> Node:
    sets = {key: frozenset(body[key]) for key in ("bridges", "cpu_models", "cpu_flags") if key in body}
    sizes = {key: int(body[key] * GIB) for key in ("memory_used",) if key in body}
    sizes["memory"] = int(body.get("memory", 64) * GIB)
    has = dict.fromkeys(body.get("lacks", {}).items(), False)
    demand = {resource: Demand(MEASURED, (value,)) for resource, value in body.get("uses", {}).items()}
    plain = {key: value for key, value in body.items() if key not in ("lacks", "uses")}
    return Node(name, **{"cores": 16, **plain, **sets, **sizes, "has": has, "demand": demand})


def _guest(body: Scenario) -> Guest:
    tags = frozenset(body.get("tags", ()))
    name = body.get("name", f"guest-{body['vmid']}")
    return Guest(**{
        "status": "running", "cores": 1, **body, "name": name, "tags": tags, "memory": int(body.get("memory", 1) * GIB)
    })  # fmt: skip


def _storages(name: str, nodes: list[str], body: Scenario) -> Iterator[Storage]:
    fields = {key: value for key, value in body.items() if key not in ("nodes", "total", "used", "content")}
    for node in body.get("nodes", nodes):
        total, used = (
            int((value[node] if isinstance(value, dict) else value) * GIB)
            for value in (body.get("total", 100), body.get("used", 0))
        )
        content = frozenset(body.get("content", ("images",)))
        yield Storage(name, node, **{"type": "lvmthin", **fields, "total": total, "used": used, "content": content})


def run(scenario: Scenario) -> tuple[list[Outcome], list[str]]:
    """What becomes of the requests, and the state that comes of it, for the law."""
    options = scenario.get("options", {})
    answers = {"/cluster/resources": []}
    snapshot = snapshot_of(scenario)
    for vmid, config in scenario.get("templates", {}).items():
        node = next(guest.node for guest in snapshot.guests if guest.vmid == vmid)
        answers[f"/nodes/{node}/qemu/{vmid}/config"] = config
    entries = build_entries({**options, "vms": scenario["vms"]}, ONE_VM_OPTIONS, 0.0)
    profiles, default = profiles_of(options)
    state = ClusterState(snapshot)
    templates = Templates(RecordedReader(answers), {})
    requests = [templates.resolve(entry, state) for entry in entries]
    outcomes = schedule_all(Scheduler(state, profiles, default), requests, 0.0)
    in_force = {name: rules_in_force(profile) for name, profile in profiles.items()}
    decisions = [outcome.decision for outcome in outcomes if outcome.decision is not None]
    decisions.sort(key=lambda decision: decision.turn)
    decided = ((decision, in_force[decision.request.profile or default]) for decision in decisions)
    return outcomes, broken(snapshot, decided)


def check(outcome: Outcome, expected: Scenario) -> None:
    assert set(expected) <= CHECKS
    verdicts = {verdict.node: verdict for verdict in outcome.verdicts()}
    if "error" in expected:
        assert outcome.error is not None, outcome.message
        assert outcome.error.code == expected["error"], outcome.message
        assert expected.get("message", "") in outcome.message
    else:
        decision = outcome.decision
        assert decision is not None, outcome.message
        nodes = expected.get("node", decision.node)
        assert decision.node in (nodes if isinstance(nodes, list) else [nodes]), outcome.message
        assert decision.vmid == expected.get("vmid", decision.vmid)
        assert dict(decision.storages) == expected.get("storages", dict(decision.storages))
        devices = [device.device for device in decision.devices]
        assert devices == expected.get("devices", devices)
        if "template" in expected:
            assert decision.template is not None
            assert decision.template.vmid == expected["template"]
    for node, reason in expected.get("rejected", {}).items():
        assert reason in (verdicts[node].reason or ""), verdicts[node]
    for node, plugin in expected.get("by", {}).items():
        assert verdicts[node].rejected_by == plugin, verdicts[node]
    feasible = [verdict for verdict in verdicts.values() if verdict.status is None]
    for extreme, pick in (("best", max), ("worst", min)):
        for plugin, node in expected.get(extreme, {}).items():
            scores = {verdict.node: _score(verdict, plugin) for verdict in feasible}
            assert scores[node] == pick(scores.values()), scores
            assert len(set(scores.values())) > 1, scores


def _score(verdict: NodeVerdict, plugin: str) -> float:
    return verdict.scores[plugin].normalized


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario["name"] for scenario in SCENARIOS])
def test_scenario__decides_as_written(scenario: Scenario) -> None:
    made, reasons = run(scenario)
    outcomes = {outcome.request.name: outcome for outcome in made}
    assert reasons == []
    assert set(scenario["expect"]) <= set(outcomes)
    for name, expected in scenario["expect"].items():
        check(outcomes[name], expected)


def test_every_plugin_that_decides_on_nodes_or_vmids__has_a_scenario() -> None:
    told = "\n".join(file.read_text(encoding="utf-8") for file in FILES)
    kinds = (FilterPlugin, ScorePlugin, VMIDPlugin)
    named = [name for name, plugin in builtin_registry().plugins.items() if issubclass(plugin, kinds)]
    missing = [name for name in named if name not in told]
    assert missing == []
