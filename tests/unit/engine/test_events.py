# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which differences between two snapshots may help a VM that found no place."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest
from support.small_cluster import guest, node

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.events import events_between
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import Event
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Device, HARule, Snapshot, Storage

BEFORE = Snapshot(
    nodes=(node("pve1"), node("pve2")),
    guests=(guest(100, "pve1"), guest(101, "pve2")),
    storages=(Storage("local", "pve1", total=100, used=50), Storage("local", "pve2", active=False)),
    devices=(Device("pci", "gpu", "pve1", "0000:01:00.0", capacity=4, in_use=2),),
    ha_rules=(HARule("apart", "resource-affinity", vmids=frozenset({100})),),
)


def with_first(field: str, **changes: t.Any) -> Snapshot:
    first, *others = getattr(BEFORE, field)
    return replace(BEFORE, **{field: (replace(first, **changes), *others)})


@pytest.mark.parametrize(
    ("after", "events"),
    [
        (with_first("nodes", online=False), {Event.NODE}),
        (with_first("nodes", maintenance=True), {Event.NODE}),
        (with_first("nodes", memory=1), {Event.NODE}),
        (replace(BEFORE, nodes=(*BEFORE.nodes, node("pve3"))), {Event.NODE}),
        (replace(BEFORE, guests=BEFORE.guests[1:]), {Event.GUEST}),
        (with_first("guests", status="stopped"), {Event.GUEST}),
        (with_first("guests", node="pve2"), {Event.GUEST}),
        (replace(BEFORE, vmids_unseen=frozenset({500})), {Event.GUEST}),
        (with_first("storages", used=49), {Event.STORAGE}),
        (with_first("storages", total=101), {Event.STORAGE}),
        (with_first("storages", content=frozenset({"images", "iso"})), {Event.STORAGE}),
        (replace(BEFORE, storages=tuple(replace(s, active=True) for s in BEFORE.storages)), {Event.STORAGE}),
        (replace(BEFORE, storages=(*BEFORE.storages, Storage("ceph", "pve1"))), {Event.STORAGE}),
        (with_first("devices", in_use=1), {Event.DEVICE}),
        (with_first("devices", capacity=8), {Event.DEVICE}),
        (replace(BEFORE, guests=(), storages=(Storage("new", "pve1"),)), {Event.GUEST, Event.STORAGE}),
    ],
)
def test_what_may_help__is_an_event(after: Snapshot, events: set[Event]) -> None:
    assert events_between(BEFORE, after) == events


@pytest.mark.parametrize(
    "after",
    [
        BEFORE,
        with_first("nodes", cpu_used=0.9, memory_used=7, pressure=0.5),
        with_first("storages", used=60),
        with_first("storages", active=False),
        replace(BEFORE, nodes=BEFORE.nodes[::-1], guests=BEFORE.guests[::-1], storages=BEFORE.storages[::-1]),
    ],
)
def test_what_always_moves_or_cannot_help__is_none(after: Snapshot) -> None:
    assert events_between(BEFORE, after) == frozenset()


def test_changed_ha_rule__counts_as_a_change_of_the_nodes() -> None:
    assert events_between(BEFORE, with_first("ha_rules", disabled=True)) == {Event.NODE}
