# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which plugins a profile of a name has, and how the user's plugin config is laid over it."""

from __future__ import annotations

import random
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_cluster import cluster, guest, node, profile, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.allocatable import CPULimit, MemoryLimit
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch_cycle import schedule_all
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import NodeInfo
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import (
    CycleState,
    FilterPlugin,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import Status
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import NAMED, build_profiles
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidPluginConfig
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Request


def weights(name: str, config: t.Any = None) -> dict[str, float]:
    return build_profiles(builtin_registry(), config)[name].weights


def config_of(name: str, plugin: str, config: t.Any) -> t.Any:
    plugins = build_profiles(builtin_registry(), config)[name].plugins
    return next(p.config for p in plugins if p.name == plugin)


def chosen(by: str) -> str:
    """Of an idle node, a small one in use, and one with many tiny guests."""
    state = cluster(
        [node("idle", cores=16, gib=64), node("packed", cores=8, gib=32), node("tiny", cores=64, gib=512)],
        [guest(100, "packed", cores=16, gib=16)] + [guest(200 + n, "tiny", cores=0.1, gib=0.1) for n in range(9)],
    )
    outcome = Scheduler(state, build_profiles(builtin_registry())).schedule(vm(cores=8, gib=8, profile=by))
    assert outcome.decision is not None
    return outcome.decision.node


def test_named_profiles__do_what_their_names_say() -> None:
    assert set(build_profiles(builtin_registry())) == {"balanced", "pack", "spread", "proxmox"} == set(NAMED)
    assert chosen("balanced") == "tiny"
    assert chosen("pack") == "packed"
    assert chosen("spread") == "idle"


def test_pack__fills_the_fullest_node_although_another_one_would_be_more_balanced() -> None:
    nodes = [node("full", cores=10, gib=100), node("balanced", cores=10, gib=100)]
    state = cluster(nodes, [guest(100, "full", cores=32, gib=40), guest(101, "balanced", cores=20, gib=50)])

    outcome = Scheduler(state, build_profiles(builtin_registry())).schedule(vm(cores=4, gib=10, profile="pack"))

    assert outcome.decision is not None
    assert outcome.decision.node == "full"


def test_proxmox_profile__scores_as_the_ha_manager_does_and_by_nothing_else_that_measures_load() -> None:
    scores = weights("proxmox")
    assert "ProxmoxStatic" in scores
    assert not {"LeastAllocated", "StorageBalance", "BalancedAllocation", "FewestGuests"} & set(scores)


def test_plugin_config__is_laid_over_every_profile() -> None:
    config = {"filters": {"MemoryOvercommit": {"config": {"ratio": 1.5}}}, "scores": {"Random": {"weight": 0.5}}}
    for name in NAMED:
        assert config_of(name, "MemoryOvercommit", config)["ratio"] == 1.5
        assert weights(name, config)["Random"] == 0.5


def test_what_the_plugin_config_leaves_out__stays_as_the_named_profile_has_it() -> None:
    config = {"scores": {"LeastAllocated": {"config": {"cpu_weight": 2}}, "FewestGuests": {"config": {}}}}
    assert "LeastAllocated" not in weights("pack", config)
    assert "LeastAllocated" in weights("balanced", config)
    assert weights("spread", config)["FewestGuests"] == 3
    assert "LeastAllocated" in weights("pack", {"scores": {"LeastAllocated": {"enable": True}}})


def test_profile_of_ones_own__is_laid_over_the_one_that_it_extends() -> None:
    config = {
        "scores": {"LeastAllocated": {"config": {"cpu_weight": 2}}},
        "profiles": {
            "mine": {"scores": {"LeastAllocated": {"weight": 7, "config": {"memory_weight": 3}}}},
            "tight": {"extends": "pack", "scores": {"Random": {"enable": True}}},
        },
    }
    assert weights("mine", config)["LeastAllocated"] == 7
    settings = config_of("mine", "LeastAllocated", config)
    assert (settings["cpu_weight"], settings["memory_weight"]) == (2, 3)
    assert {"MostAllocated", "Random"} <= set(weights("tight", config))
    assert "LeastAllocated" not in weights("tight", config)
    assert weights("balanced", config)["LeastAllocated"] == 1


def test_profile_of_a_known__name_changes_that_one_only() -> None:
    config = {"profiles": {"pack": {"scores": {"MostAllocated": {"weight": 5}}}}}
    assert weights("pack", config)["MostAllocated"] == 5
    assert "LeastAllocated" not in weights("pack", config)
    assert "MostAllocated" not in weights("balanced", config)


def test_build_profiles__above__is_laid_over_every_profile_in_the_end() -> None:
    config = {
        "filters": {"FailoverHeadroom": {"enable": False, "config": {"memory_ratio": 2}}},
        "profiles": {"own": {}},
    }
    profiles = build_profiles(builtin_registry(), config, {"filters": {"FailoverHeadroom": {"enable": True}}})
    for name in (*NAMED, "own"):
        headroom = [plugin for plugin in profiles[name].sections["filters"] if plugin.name == "FailoverHeadroom"]
        assert [plugin.config["memory_ratio"] for plugin in headroom] == [2]


def test_dict_setting__is_replaced_as_a_whole() -> None:
    config = {
        "filters": {"MemoryOvercommit": {"config": {"pools": {"a": 1, "b": 2}}}},
        "profiles": {"mine": {"filters": {"MemoryOvercommit": {"config": {"pools": {"c": 3}}}}}},
    }
    assert config_of("mine", "MemoryOvercommit", config)["pools"] == {"c": 3}


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ([], "plugin_config: expected a mapping"),
        ({"profiles": ["a"]}, "plugin_config.profiles: expected a mapping"),
        ({"profiles": {"mine": "pack"}}, "profiles.mine: expected a mapping"),
        ({"profiles": {"mine": {"extends": "fastest"}}}, "profiles.mine.extends: unknown profile 'fastest'"),
        ({"profiles": {"mine": {"points": {}}}}, "unknown section 'points'"),
        ({"scores": {"LeastAllocated": True}}, "scores.LeastAllocated: expected a mapping"),
        ({"scores": ["Random"]}, "scores: expected a mapping"),
        # What scores are told as well is wrong where the user wrote it.
        (
            {"filters": {"CPUOvercommit": {"config": {"ratio": "x"}}}},
            r"filters\.CPUOvercommit\.config\.ratio: expected a number",
        ),
        (
            {"filters": {"VolumeBinding": {"config": {"storage_classes": {"fast": {"typs": []}}}}}},
            r"storage_classes\.fast: unknown key 'typs'",
        ),
    ],
)
def test_what_is_wrong__is_named(config: t.Any, told: str) -> None:
    with pytest.raises(InvalidPluginConfig, match=told):
        build_profiles(builtin_registry(), config)


def test_plugin_that_only_looks_first__is_switched_off_in_its_own_section() -> None:
    delayed = vm(context={"delay": "9"})
    for config, placed in (({}, False), ({"pre_filters": {"Delay": {"enable": False}}}, True)):
        engine = Scheduler(cluster([node("pve1")]), build_profiles(builtin_registry(), config))
        assert (engine.schedule(delayed).decision is not None) is placed


def test_filter__is_switched_off_with_what_it_does_first() -> None:
    config = {"filters": {"NodeRegex": {"enable": False}}}
    engine = Scheduler(cluster([node("pve1")]), build_profiles(builtin_registry(), config))
    assert engine.schedule(vm(node_regex="(")).decision is not None
    with pytest.raises(InvalidPluginConfig, match=r"pre_filters: unknown plugin 'NodeRegex'; known plugins .*Delay"):
        build_profiles(builtin_registry(), {"pre_filters": {"NodeRegex": {"enable": False}}})


@settings(max_examples=40)
@given(
    sizes=st.lists(st.tuples(st.integers(2, 16), st.integers(8, 64)), min_size=1, max_size=6),
    guests=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 8), st.integers(1, 16)), max_size=12),
    wanted=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 16)), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_order_of_the_snapshot__changes_nothing_in_any_profile_and_no_node_is_overfilled(
    sizes: list[tuple[int, int]],
    guests: list[tuple[int, int, int]],
    wanted: list[tuple[int, int]],
    order: random.Random,
) -> None:
    nodes = [node(f"n{index}", cores, gib) for index, (cores, gib) in enumerate(sizes)]
    running = [guest(100 + n, f"n{where % len(sizes)}", c, gib) for n, (where, c, gib) in enumerate(guests)]
    profiles = build_profiles(builtin_registry(), {"filters": {"FailoverHeadroom": {"enable": bool(len(sizes) % 2)}}})
    requests = [vm(str(n), cores, gib) for n, (cores, gib) in enumerate(wanted)]
    mixed_nodes, mixed_guests = order.sample(nodes, len(nodes)), order.sample(running, len(running))
    for name in profiles:
        state = cluster(nodes, running)
        outcomes = schedule_all(Scheduler(state, profiles, name), requests)
        again = schedule_all(Scheduler(cluster(mixed_nodes, mixed_guests), profiles, name), requests)
        assert [o.decision for o in again] == [o.decision for o in outcomes]
        assert [o.message for o in again] == [o.message for o in outcomes]
        for outcome in outcomes:
            if outcome.decision is not None:
                info = state.by_name.get(outcome.decision.node)
                assert info is not None
                assert info.memory <= info.node.memory
                assert info.cores <= 4 * info.node.cores


def test_policy__is_what_the_filters_were_told_and_the_same_for_all_plugins_of_a_profile() -> None:
    config = {
        "filters": {
            "CPUOvercommit": {"config": {"ratio": 8, "reserved": 1, "pools": {"lab": 9}}},
            "MemoryOvercommit": {"enable": False, "config": {"ratio": 1.5}},
        },
        "profiles": {"tight": {"filters": {"CPUOvercommit": {"config": {"ratio": 2}}}}},
    }
    profiles = build_profiles(builtin_registry(), config)
    policy = profiles["balanced"].policy
    assert all(plugin.policy is policy for plugin in profiles["balanced"].plugins)
    assert policy.cpu == CPULimit(8.0, 1.0, {"lab": 9.0})
    assert policy.memory.ratio == 1.5
    assert {"cpu", "memory"} & policy.enforced == {"cpu"}
    assert profiles["tight"].policy.cpu == CPULimit(2.0, 1.0, {"lab": 9.0})


class Fourfold(FilterPlugin):
    """Sets a policy of its own."""

    name = "Fourfold"
    sets: t.ClassVar[dict[str, t.Any]] = {"memory": MemoryLimit(4.0)}

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        return None


def test_policy__can_be_set_by_a_plugin_of_ones_own() -> None:
    config = {"filters": {"MemoryOvercommit": {"enable": False}}}
    own = profile(config, [Fourfold])
    assert own.policy.memory == MemoryLimit(4.0)
    assert "memory" in own.policy.enforced


def test_policy__that_does_not_exist_is_refused_with_the_plugins_name() -> None:
    class Misspelt(Fourfold):
        name = "Misspelt"
        sets: t.ClassVar[dict[str, t.Any]] = {"memroy": MemoryLimit(4.0)}

    with pytest.raises(
        InvalidPluginConfig, match="plugin Misspelt sets the policy 'memroy', which does not exist; known: cpu, mem"
    ):
        profile({}, [Misspelt])


def test_setting_of_a_filter__switches_no_score_on() -> None:
    config = {"filters": {"CPUOvercommit": {"config": {"ratio": 8}}}}
    names = {plugin.name for plugin in build_profiles(builtin_registry(), config)["balanced"].sections["scores"]}
    assert names == {plugin.name for plugin in build_profiles(builtin_registry())["balanced"].sections["scores"]}
