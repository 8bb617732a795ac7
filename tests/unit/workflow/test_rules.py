# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Placement rules as a user writes them: what they become, and how each mistake is told."""

from __future__ import annotations

import typing as t

import pytest
import yaml

from ansible_collections.qemu_scheduler.proxmox.plugins.doc_fragments.placement import ModuleDocFragment
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    AffinityTerm,
    Expression,
    GangRef,
    HAIntent,
    Request,
    Selector,
    SpreadConstraint,
    Toleration,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import (
    DEFAULTS,
    PLACEMENT_OPTIONS,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.rules import (
    RULE_OPTIONS,
    parse_priority_classes,
    parse_rules,
)

EVERYTHING = """
affinity:
  - {type: anti-affinity, name: 'web-.*', required: true, topology_key: node}
  - {type: with, tags: [db, blue], pool: prod, required: false, weight: 40, topology_key: rack}
  - {type: with, group: front}
topology_spread:
  - {topology_key: rack, max_skew: 2, when_unsatisfiable: schedule_anyway, name: 'web-.*'}
  - {topology_key: room, tags: [web]}
node_affinity:
  required: [{key: rack, operator: In, values: [a, 2]}]
  preferred: [{key: disk, operator: Exists, weight: 10}, {key: cpus, operator: Gt, values: [8]}]
tolerations: [{key: gpu, value: yes}, {operator: Exists, effect: NoSchedule}]
ha: {rule: keep-apart, state: started}
group: {name: front, min_available: 2}
priority: 7
scheduling_gates: [change-4711]
profile: pack
"""


def test_rules__become_fields_of_the_request() -> None:
    fields = parse_rules(yaml.safe_load(EVERYTHING))
    assert fields == {
        "affinity": (
            AffinityTerm(False, Selector(name="web-.*"), True, "node"),
            AffinityTerm(True, Selector(tags=frozenset({"db", "blue"}), pool="prod"), False, "rack", 40),
            AffinityTerm(True, Selector(group="front"), True, "node"),
        ),
        "topology_spread": (
            SpreadConstraint("rack", Selector(name="web-.*"), 2, hard=False),
            SpreadConstraint("room", Selector(tags=frozenset({"web"})), 1, hard=True),
        ),
        "node_required": (Expression("rack", "In", ("a", "2")),),
        "node_preferred": (Expression("disk", "Exists", weight=10), Expression("cpus", "Gt", ("8",), 1)),
        "tolerations": (Toleration("gpu", "Equal", "True"), Toleration("", "Exists", "", "NoSchedule")),
        "ha": HAIntent(rule="keep-apart", state="started"),
        "gang": GangRef("front", 2),
        "priority": 7,
        "scheduling_gates": ("change-4711",),
        "profile": "pack",
    }
    assert Request("web-1", **fields).priority == 7


def test_what_is_not_given__is_left_out() -> None:
    assert parse_rules({}) == {}
    assert parse_rules(dict.fromkeys(RULE_OPTIONS)) == {}


def test_suboptions_that_ansible_filled_with_none__are_not_given() -> None:
    spec = RULE_OPTIONS
    body = {**dict.fromkeys(spec["affinity"]["options"]), "type": "anti-affinity", "name": "web-.*"}
    assert parse_rules({"affinity": [body]})["affinity"] == (AffinityTerm(False, Selector(name="web-.*")),)
    ha = {**dict.fromkeys(spec["ha"]["options"]), "group": "g12"}
    assert parse_rules({"ha": ha})["ha"] == HAIntent(group="g12")


def web(**fields: t.Any) -> list[dict[str, t.Any]]:
    return [{"name": "web-.*", **fields}]


def expression(where: str = "required", **fields: t.Any) -> dict[str, t.Any]:
    return {where: [{"key": "rack", **fields}]}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"affinity": {"type": "affinity"}}, "affinity: {'type': 'affinity'} is not valid, expected a list"),
        ({"affinity": ["web"]}, "affinity[0]: 'web' is not valid, expected a mapping"),
        ({"affinity": web()}, "affinity[0].type: is missing, expected one of affinity, anti-affinity, with, apart"),
        (
            {"affinity": web(type="near")},
            "affinity[0].type: 'near' is not valid, expected one of affinity, anti-affinity, with, apart",
        ),
        (
            {"affinity": [*web(type="affinity"), {"type": "anti-affinity"}]},
            "affinity[1]: selects no VMs, expected at least one of name, tags, pool, group",
        ),
        (
            {"affinity": web(type="affinity", topology="rack")},
            "affinity[0]: unknown key 'topology'; known keys: "
            "group, lasting, name, pool, required, tags, topology_key, type, weight",
        ),
        (
            {"affinity": web(type="affinity", required=False, weight=101)},
            "affinity[0].weight: 101 is not valid, expected a whole number from 1 to 100",
        ),
        (
            {"affinity": web(type="affinity", weight=5)},
            "affinity[0].weight: 5 is not valid, expected a weight only together with required: false",
        ),
        (
            {"affinity": web(type="affinity", required="perhaps")},
            "affinity[0].required: 'perhaps' is not valid, expected true or false",
        ),
        (
            {"affinity": [{"type": "affinity", "name": "a["}]},
            "affinity[0].name: invalid regular expression 'a[': a class is not closed by ']'",
        ),
        (
            {"topology_spread": [{"topology_key": "rack", "name": "(?=a)a"}]},
            "topology_spread[0].name: invalid regular expression '(?=a)a': look-ahead is not supported",
        ),
        ({"affinity": [{"type": "affinity", "tags": "web"}]}, "affinity[0].tags: 'web' is not valid, expected a list"),
        ({"affinity": [{"type": "affinity", "tags": [""]}]}, "affinity[0].tags[0]: '' is not valid, expected a text"),
        ({"affinity": [{"type": "affinity", "pool": ["a"]}]}, "affinity[0].pool: ['a'] is not valid, expected a text"),
        (
            {"topology_spread": web()},
            "topology_spread[0].topology_key: is missing, expected the key of a node label, or node",
        ),
        (
            {"topology_spread": web(topology_key="rack", max_skew=0)},
            "topology_spread[0].max_skew: 0 is not valid, expected a whole number of at least 1",
        ),
        (
            {"topology_spread": web(topology_key="rack", when_unsatisfiable="DoNotSchedule")},
            "topology_spread[0].when_unsatisfiable: 'DoNotSchedule' is not valid, "
            "expected one of do_not_schedule, schedule_anyway",
        ),
        ({"topology_spread": [{"topology_key": "rack"}]}, "topology_spread[0]: selects no VMs"),
        (
            {"node_affinity": {"require": []}},
            "node_affinity: unknown key 'require'; known keys: preferred, required",
        ),
        (
            {"node_affinity": expression(operator="in", values=["a"])},
            "node_affinity.required[0].operator: 'in' is not valid, "
            "expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt",
        ),
        (
            {"node_affinity": expression(operator="In")},
            "node_affinity.required[0].values: is missing, expected one value or more for operator In",
        ),
        (
            {"node_affinity": expression(operator="Exists", values=["a"])},
            "node_affinity.required[0].values: ['a'] is not valid, expected no values for operator Exists",
        ),
        (
            {"node_affinity": expression(operator="Gt", values=["a"])},
            "node_affinity.required[0].values: ['a'] is not valid, expected one whole number for operator Gt",
        ),
        (
            {"node_affinity": expression(operator="Lt", values=["1" * 19])},
            "node_affinity.required[0].values: ['1111111111111111111'] is not valid, "
            "expected one whole number for operator Lt",
        ),
        (
            {"node_affinity": expression(operator="Exists", weight=5)},
            "node_affinity.required[0]: unknown key 'weight'; known keys: key, lasting, operator, values",
        ),
        (
            {"node_affinity": {"preferred": [{"operator": "Exists"}]}},
            "node_affinity.preferred[0].key: is missing, expected the key of a node label, or node",
        ),
        ({"tolerations": [{"value": "yes"}]}, "tolerations[0].key: is missing, expected a taint's key"),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            "tolerations[0].value: 'b' is not valid, expected no value for operator Exists",
        ),
        (
            {"tolerations": [{"key": "a", "effect": "NoExecute"}]},
            "tolerations[0].effect: 'NoExecute' is not valid, expected one of NoSchedule, PreferNoSchedule",
        ),
        ({"ha": {"rule": "a", "group": "b"}}, "ha: has both rule 'a' and group 'b', expected one of them"),
        (
            {"ha": {"state": "on"}},
            "ha.state: 'on' is not valid, expected one of started, stopped, disabled, ignored",
        ),
        ({"group": {"min_available": 2}}, "group.name: is missing, expected a text"),
        (
            {"group": {"name": "g", "min_available": 0}},
            "group.min_available: 0 is not valid, expected a whole number of at least 1",
        ),
        ({"group": "front"}, "group: 'front' is not valid, expected a mapping"),
        (
            {"priority": "hihg"},
            "priority: 'hihg' is not valid, expected a whole number or the name of a priority class (high, low; did "
            "you mean high?)",
        ),
        ({"priority": 10**10}, "priority: 10000000000 is not valid, expected a whole number from"),
        ({"scheduling_gates": "a"}, "scheduling_gates: 'a' is not valid, expected a list"),
        ({"profile": ["pack"]}, "profile: ['pack'] is not valid, expected a text"),
    ],
    ids=str,
)
def test_mistake__names_option_value_and_what_was_expected(params: dict[str, t.Any], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_rules(params, priority_classes={"high": 100, "low": -5})
    assert caught.value.message.startswith(message)


def test_prefix__tells_which_vm_is_meant() -> None:
    with pytest.raises(InvalidRequest, match=r"^vms\[3\]\.affinity\[0\]\.type: is missing"):
        parse_rules({"affinity": web()}, prefix="vms[3].")


@pytest.mark.parametrize(
    ("value", "expected"), [("high", 100), ("low", -5), (3, 3), ("3", 3), ("-3", -3), (0, 0)], ids=str
)
def test_priority__is_a_number_or_a_class(value: t.Any, expected: int) -> None:
    assert parse_rules({"priority": value}, priority_classes={"high": 100, "low": -5}) == {"priority": expected}


def test_priority_classes__are_whole_numbers() -> None:
    assert parse_priority_classes(None) == {}
    assert parse_priority_classes({"high": "100", "low": -5}) == {"high": 100, "low": -5}
    with pytest.raises(InvalidRequest, match=r"^priority_classes\.high: 'x' is not valid, expected a whole number"):
        parse_priority_classes({"high": "x"})
    with pytest.raises(InvalidRequest, match=r"^priority_classes: "):
        parse_priority_classes(["high"])


def test_every_option__is_documented_as_it_is_declared() -> None:
    documented = yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["options"]
    assert set(documented) == {*RULE_OPTIONS, *PLACEMENT_OPTIONS}
    spec = RULE_OPTIONS
    assert_documented({**spec, "priority": {**spec["priority"], "default": DEFAULTS["priority"]}}, documented)


def assert_documented(spec: dict[str, dict[str, t.Any]], documented: dict[str, t.Any]) -> None:
    for name, declared in spec.items():
        for key in ("type", "elements", "choices", "required", "default"):
            assert declared.get(key) == documented[name].get(key), (name, key)
        assert documented[name]["description"]
        assert set(declared.get("options", {})) == set(documented[name].get("suboptions", {}))
        assert_documented(declared.get("options", {}), documented[name].get("suboptions", {}))


@pytest.mark.parametrize(("older", "term"), [("with", "affinity"), ("apart", "anti-affinity")])
def test_affinity__older_names_of_its_types_mean_the_same(older: str, term: str) -> None:
    assert parse_rules({"affinity": web(type=older)}) == parse_rules({"affinity": web(type=term)})
