# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which rules of the law are in force, and what decisions break."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest
from law.in_force import broken_by, rules_in_force
from law.law import RULES
from support.small_cluster import guest, node, profile, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import NodeInfo
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import (
    CycleState,
    Draft,
    ReservePlugin,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import Status
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    Decision,
    Request,
    Selector,
    Snapshot,
)


class OwnStorages(ReservePlugin):
    """Chooses storages itself."""

    name = "OwnStorages"
    enabled = True

    def reserve(self, state: CycleState, request: Request, node: NodeInfo, draft: Draft) -> Status | None:
        draft.storages["scsi0"] = "elsewhere"
        return None


def broken(snapshot: Snapshot, *decisions: Decision, config: t.Any = None, starting: tuple[int, ...] = ()) -> list[str]:
    return broken_by(snapshot, decisions, lambda _request: profile(config), starting)


def test_rules_in_force__are_all_that_the_law_knows_unless_the_config_says_otherwise() -> None:
    assert rules_in_force(profile()).rules >= RULES
    off = {name: {"enable": False} for name in ("MemoryOvercommit", "VMAffinity", "DeviceClaims")}
    assert RULES - rules_in_force(profile({"filters": off})).rules == set(off)


def test_rules_in_force__have_the_limits_of_the_config() -> None:
    config = {
        "filters": {
            "CPUOvercommit": {"config": {"ratio": 6, "reserved": 2, "pools": {"test": 8}}},
            "MemoryOvercommit": {"config": {"reserved": 1024, "tags": {"db": 0.5}, "include_stopped": True}},
            "GuestLimit": {"config": {"max_guests": 9, "tags": {"db": 1}}},
            "VolumeBinding": {"config": {"storage_classes": {"fast": {"types": ["zfspool"]}}}},
        }
    }
    found = rules_in_force(profile(config))
    assert (found.cpu.ratio, found.cpu.reserved, found.cpu.pools, found.cpu.include_stopped) == (
        6,
        2,
        {"test": 8},
        False,
    )
    assert (found.memory.reserved, found.memory.tags, found.memory.include_stopped) == (GIB, {"db": 0.5}, True)
    assert (found.max_guests, found.max_tagged) == (9, {"db": 1})
    assert found.storage_classes["fast"].types == {"zfspool"}


@pytest.mark.parametrize("plugin", ["VolumeBinding", "DeviceClaims"])
def test_rules_in_force__leave_out_what_is_checked_and_not_reserved(plugin: str) -> None:
    assert plugin not in rules_in_force(profile({"reserves": {plugin: {"enable": False}}})).rules


def test_rules_in_force__leave_out_what_a_plugin_of_ones_own_reserves() -> None:
    assert RULES - rules_in_force(profile(own=[OwnStorages])).rules == {"VolumeBinding", "DeviceClaims"}


def test_broken_by__names_the_broken_rules() -> None:
    snapshot = Snapshot((node("pve1"),), (guest(100, "pve1", gib=31),))
    large = Decision(vm(gib=2), "pve1", 200)
    assert broken(snapshot, large) == ['VM "new" (200) on pve1: too much memory of pve1 is taken']
    assert not broken(snapshot, Decision(vm(gib=1), "pve1", 200))
    assert not broken(snapshot, large, config={"filters": {"MemoryOvercommit": {"enable": False}}})


def test_broken_by__counts_guests_that_the_run_starts() -> None:
    snapshot = Snapshot((node("pve1"),), (guest(100, "pve1", gib=31, status="stopped"),))
    assert not broken(snapshot, Decision(vm(gib=2), "pve1", 200))
    assert broken(snapshot, Decision(vm(gib=2), "pve1", 200), starting=(100,))


def test_broken_by__takes_the_decisions_in_their_turn() -> None:
    snapshot, web = Snapshot((node("pve1"), node("pve2"))), Selector(name="web")
    alone = Decision(vm("web"), "pve1", 201, turn=1)
    follower = Decision(vm("app", affinity=(AffinityTerm(True, web),)), "pve1", 200, turn=2)
    assert not broken(snapshot, follower, alone)
    assert "not with the VMs that it must be with" in broken(snapshot, replace(follower, turn=0), alone)[0]
