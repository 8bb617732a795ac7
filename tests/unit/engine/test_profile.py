# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plugin config: what it turns on and off, and how each mistake is told."""

from __future__ import annotations

import typing as t

import pytest
from support.small_cluster import made, profile

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import (
    FilterPlugin,
    Setting,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import BUILTIN
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import Profile, Registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidPluginConfig


def names(found: Profile, section: str) -> list[str]:
    return [plugin.name for plugin in found.sections[section]]


def test_upstreams_plugins__are_on_by_default_but_two() -> None:
    default = profile()
    assert {"NodeName", "NodeRegex", "NodeReady", "CPUOvercommit", "MemoryOvercommit"} <= set(names(default, "filters"))
    assert "LeastAllocated" in names(default, "scores")
    assert not {"Random", "NodeResource"} & set(names(default, "scores"))
    assert names(default, "vmids") == ["Range", "Regex"]


@pytest.mark.parametrize("body", [None, {}, {"enable": True}, {"enable": "yes"}, {"config": {"seed": 3}}], ids=str)
def test_naming_a_plugin__turns_it_on(body: t.Any) -> None:
    assert "Random" in names(profile({"scores": {"Random": body}}), "scores")


@pytest.mark.parametrize("section", ["filters", "scores"])
def test_plugin__is_turned_off_at_one_point_and_stays_on_at_the_other(section: str) -> None:
    found = profile({section: {"VMAffinity": {"enable": False}}})
    assert ("VMAffinity" in names(found, "filters")) is (section != "filters")
    assert ("VMAffinity" in names(found, "scores")) is (section != "scores")
    assert [p.name for p in found.plugins].count("VMAffinity") == 1


def test_weight__goes_before_the_plugins_own() -> None:
    assert profile().weights["LeastAllocated"] == 1.0
    assert profile({"scores": {"LeastAllocated": {"weight": 2.5}}}).weights["LeastAllocated"] == 2.5


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"filter": {}}, "plugin_config: unknown section 'filter'; known sections: gates, queue, "),
        (
            {"memoryOvercommit": {}},
            "plugin_config: unknown section 'memoryOvercommit'; known sections: gates, queue, pre_filters, "
            "filters, post_filters, scores, vmids, reserves, permits; MemoryOvercommit belongs in filters",
        ),
        ({"filters": {"NodeNmae": {}}}, "filters: unknown plugin 'NodeNmae'; known plugins of this section: "),
        ({"scores": {"NodeName": {}}}, "scores: unknown plugin 'NodeName'; known plugins of this section: "),
        (
            {"scores": {"Random": {"wieght": 1}}},
            "scores.Random: unknown key 'wieght'; known keys: config, enable, weight",
        ),
        (
            {"filters": {"NodeName": {"weight": 1}}},
            "filters.NodeName: unknown key 'weight'; known keys: config, enable",
        ),
        ({"scores": {"Random": {"config": {"sead": 1}}}}, "scores.Random.config: unknown key 'sead'; known keys: seed"),
        (
            {"filters": {"NodeName": {"config": {"x": 1}}}},
            "filters.NodeName.config: unknown key 'x'; known keys: none: it takes no config",
        ),
        ({"scores": {"Random": {"config": {"seed": "x"}}}}, "scores.Random.config.seed: expected a whole number"),
        ({"scores": {"Random": {"weight": -1}}}, "scores.Random.weight: expected at least 0, got -1"),
        ({"scores": {"Random": {"enable": "perhaps"}}}, "scores.Random.enable: expected true or false, got 'perhaps'"),
        ({"scores": {"Random": [1]}}, "scores.Random: expected a mapping with enable and config, got [1]"),
        ({"scores": ["Random"]}, "scores: expected a mapping of plugins, got ['Random']"),
        (["scores"], "plugin_config: expected a mapping of sections, got ['scores']"),
        (
            {"filters": {"CPUOvercommit": {"config": {"ratio": -1}}}},
            "filters.CPUOvercommit.config.ratio: expected at least 0, got -1",
        ),
        (
            {"filters": {"GuestLimit": {"config": {"max_guests": True}}}},
            "filters.GuestLimit.config.max_guests: expected a whole number, got True",
        ),
    ],
    ids=str,
)
def test_mistake__is_named_with_what_is_known_there(config: t.Any, message: str) -> None:
    with pytest.raises(InvalidPluginConfig) as caught:
        profile(config)
    assert caught.value.message.startswith(message)


def test_unknown_plugin__lists_those_that_there_are() -> None:
    with pytest.raises(InvalidPluginConfig, match=r"CPUOvercommit, .*MemoryOvercommit, .*NodeName, .*NodeReady"):
        profile({"filters": {"X": {}}})


def test_empty_section__changes_nothing() -> None:
    assert names(profile({"filters": None}), "filters") == names(profile(), "filters")


def test_numbers__may_come_as_text() -> None:
    """Templates make text of everything."""
    (cpu,) = [p for p in profile(_cpu("2.5")).sections["filters"] if p.name == "CPUOvercommit"]
    assert cpu.config["ratio"] == 2.5


def _cpu(ratio: t.Any) -> dict[str, t.Any]:
    return {"filters": {"CPUOvercommit": {"config": {"ratio": ratio, "include_stopped": "no"}}}}


@pytest.mark.parametrize("value", [float("nan"), "nan", float("inf"), 10**400, "1e400", -(10**400)])
def test_numbers__that_are_none_or_beyond_all_bounds_are_refused(value: t.Any) -> None:
    for config, place in (
        ({"filters": {"MemoryOvercommit": {"config": {"ratio": value}}}}, "filters.MemoryOvercommit.config.ratio"),
        ({"scores": {"LeastAllocated": {"weight": value}}}, "scores.LeastAllocated.weight"),
    ):
        with pytest.raises(InvalidPluginConfig, match=place):
            profile(config)


def test_one_plugin_at_two_points__has_one_config() -> None:
    class Both(BUILTIN_BY_NAME["VMAffinity"]):  # type: ignore[misc, valid-type]
        name = "Both"
        settings = {"a": Setting("int", 1, ""), "b": Setting("int", 1, "")}

    config = {"filters": {"Both": {"config": {"a": 2}}}, "scores": {"Both": {"config": {"b": 3}}}}
    (both,) = [p for p in profile(config, [Both]).sections["filters"] if p.name == "Both"]
    assert both.config == {"a": 2, "b": 3}
    config["scores"]["Both"]["config"]["a"] = 4
    with pytest.raises(InvalidPluginConfig, match="contradicts the value given in another section"):
        profile(config, [Both])


BUILTIN_BY_NAME = {plugin.name: plugin for plugin in BUILTIN}


def test_name__is_taken_once() -> None:
    registry = Registry(BUILTIN)
    with pytest.raises(InvalidPluginConfig, match=r"plugin name 'NodeName' \(mine.py\) is taken already"):
        registry.register(BUILTIN_BY_NAME["NodeName"], "mine.py")


def test_class_without_its_methods__is_refused() -> None:
    class Half(FilterPlugin):
        name = "Half"

    with pytest.raises(InvalidPluginConfig, match=r"plugin Half \(built in\) lacks the method\(s\) filter"):
        Registry([Half])


@pytest.mark.parametrize("plugin", BUILTIN, ids=lambda plugin: plugin.name)
def test_every_built_in__is_documented_and_made_of_its_defaults(plugin: type[t.Any]) -> None:
    assert plugin.__doc__
    assert all(setting.help for setting in plugin.settings.values())
    assert made(plugin).name == plugin.name
