# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for any cluster and any claims: nothing is given out beyond its capacity, all or nothing, and the same
again whatever order the snapshot is in.
"""

from __future__ import annotations

import itertools
import random
import typing as t
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch_cycle import schedule_all
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.devices.constraints import Matcher
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.devices.finding import Met, find_devices
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import Profile
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    Decision,
    Device,
    DeviceClaim,
    Node,
    Request,
    Snapshot,
)

NODES = ("pve1", "pve2")
MAPPINGS = ("a", "b")
PCI = ("0000:01:00.0", "0000:01:00.1", "0000:01:00", "0000:02:00.0", "0000:02:00.0;0000:03:00.0", "0000:03:00.0")
USB = ("1-1", "1-2")
TYPES = ("t1", "t2")


@st.composite
def devices(draw: st.DrawFn, node: str) -> list[Device]:
    """Devices of one node, once per mapping and id; the same hardware may be in several mappings."""
    made: dict[tuple[str, str], Device] = {}
    capacity = {type: draw(st.integers(0, 3)) for type in TYPES}
    held = {address: draw(st.integers(0, 1)) for address in (*PCI, *USB)}
    for _number in range(draw(st.integers(0, 6))):
        mapping = draw(st.sampled_from(MAPPINGS))
        kind = draw(st.sampled_from(("pci", "pci", "usb", "mdev")))
        attributes = {"numa_node": draw(st.integers(0, 1)), "size": draw(st.integers(0, 2))}
        if kind == "mdev":
            type = draw(st.sampled_from(TYPES))
            id = f"0000:04:00.0/{type}"
            made[mapping, id] = Device("pci", mapping, node, id, capacity[type], 0, type, attributes)
        else:
            id = draw(st.sampled_from(PCI if kind == "pci" else USB))
            made[mapping, id] = Device(kind, mapping, node, id, 1, held[id], None, attributes)
    return list(made.values())


def wanted(name: str) -> st.SearchStrategy[DeviceClaim]:
    return st.builds(
        DeviceClaim,
        name=st.just(name),
        driver=st.sampled_from((None, "pci", "usb")),
        mapping=st.sampled_from((None, *MAPPINGS)),
        count=st.integers(1, 2),
        constraints=st.sampled_from(((), ("device.size > 0",), ("device.size == 2",))),
        match_attributes=st.sampled_from(((), ("numa_node",))),
        mdev=st.sampled_from((None, None, *TYPES)),
    )


def claim(name: str) -> st.SearchStrategy[DeviceClaim]:
    either = st.lists(wanted(name), min_size=2, max_size=2).map(lambda each: DeviceClaim(name, one_of=tuple(each)))
    return st.one_of(wanted(name), wanted(name), either)


# hypothesis looks into a strategy once: one that is made for each example costs more than what is tested.
NAMED = tuple(claim(f"c{index}") for index in range(3))
CLAIMS = st.one_of(*(st.tuples(*NAMED[:number]) for number in range(4)))
CLUSTERS = st.tuples(*(devices(node) for node in NODES)).map(lambda lists: list(itertools.chain(*lists)))


def snapshot(found: Sequence[Device], nodes: Sequence[str] = NODES) -> Snapshot:
    return Snapshot(nodes=tuple(Node(name, cores=64, memory=2**40) for name in nodes), devices=tuple(found))


def placed(cluster: Snapshot, claims: Sequence[tuple[DeviceClaim, ...]]) -> list[Decision | None]:
    scheduler = Scheduler(ClusterState(cluster), {"balanced": Profile("balanced", builtin_registry())})
    requests = [Request(f"vm{number}", devices=each) for number, each in enumerate(claims)]
    return [outcome.decision for outcome in schedule_all(scheduler, requests)]


def overlapping(one: str, other: str) -> bool:
    """The hardware that two ids mean, spelled out: a card of the examples has two functions."""
    return bool(hardware(one) & hardware(other))


def hardware(id: str) -> set[str]:
    addresses = id.partition("/")[0].split(";")
    return {f"{a}.{n}" for a in addresses if a.startswith("0000") and "." not in a for n in range(2)} | set(addresses)


@settings(max_examples=300, deadline=None)
@given(CLUSTERS, st.lists(CLAIMS, max_size=6))
def test_no_device__is_ever_given_out_beyond_its_capacity(
    found: list[Device], claims: list[tuple[DeviceClaim, ...]]
) -> None:
    decisions = [decision for decision in placed(snapshot(found), claims) if decision is not None]

    for node in NODES:
        given_out = Counter(each.device for d in decisions for each in d.devices if each.node == node)
        known = {device.id: device for device in found if device.node == node}
        for id, count in given_out.items():
            assert count <= known[id].capacity - known[id].in_use
        for one, other in itertools.combinations(given_out, 2):
            assert not overlapping(one, other)


@settings(max_examples=200, deadline=None)
@given(CLUSTERS, st.lists(CLAIMS, max_size=6))
def test_vm__gets_all_that_it_claims_on_its_node_or_is_not_placed(
    found: list[Device], claims: list[tuple[DeviceClaim, ...]]
) -> None:
    for decision, wanted in zip(placed(snapshot(found), claims), claims, strict=True):
        if decision is None:
            continue
        assert {each.node for each in decision.devices} <= {decision.node}
        assert len({each.option for each in decision.devices}) == len(decision.devices)
        for each in wanted:
            got = [given for given in decision.devices if given.claim == each.name]
            assert any(len(got) == alternative.count for alternative in each.one_of or (each,))


@settings(max_examples=150, deadline=None)
@given(CLUSTERS, st.lists(CLAIMS, max_size=5), st.randoms(use_true_random=False))
def test_order_of_a_snapshot__means_nothing(
    found: list[Device], claims: list[tuple[DeviceClaim, ...]], order: random.Random
) -> None:
    shuffled = list(found)
    order.shuffle(shuffled)

    assert placed(snapshot(found), claims) == placed(snapshot(shuffled, NODES[::-1]), claims)


@settings(max_examples=300, deadline=None)
@given(devices("pve1"), CLAIMS)
def test_claims__are_met_exactly_when_some_choice_of_devices_meets_them(
    found: list[Device], claims: tuple[DeviceClaim, ...]
) -> None:
    (node,) = ClusterState(snapshot(found, ("pve1",))).nodes
    met = isinstance(find_devices(Request("vm", devices=claims), node, Matcher()), Met)

    assert met is any(fits(choice, found) for choice in choices(claims, found))


@settings(max_examples=100, deadline=None)
@given(CLUSTERS, st.lists(CLAIMS, min_size=1, max_size=4))
def test_what_is_taken_back__can_be_given_again(found: list[Device], claims: list[tuple[DeviceClaim, ...]]) -> None:
    scheduler = Scheduler(ClusterState(snapshot(found)), {"balanced": Profile("balanced", builtin_registry())})
    requests = [Request(f"vm{number}", devices=each) for number, each in enumerate(claims)]
    first = [outcome.decision for outcome in schedule_all(scheduler, requests)]
    for decision in first:
        if decision is not None:
            scheduler.undo(decision)

    assert [outcome.decision for outcome in schedule_all(scheduler, requests)] == first


# --- the same rules, by trying everything ---


def choices(claims: tuple[DeviceClaim, ...], found: Sequence[Device]) -> Iterator[list[Device]]:
    """Every way to give each claim devices that it accepts, whoever holds them."""
    per_claim = [
        [
            picked
            for each in claim.one_of or (claim,)
            for picked in itertools.combinations_with_replacement([d for d in found if accepts(each, d)], each.count)
            if len({tuple(d.attributes[name] for name in each.match_attributes) for d in picked}) == 1
        ]
        for claim in claims
    ]
    for combination in itertools.product(*per_claim):
        yield [device for picked in combination for device in picked]


def accepts(wanted: DeviceClaim, device: Device) -> bool:
    size: t.Any = device.attributes["size"]
    rules = {"device.size > 0": size > 0, "device.size == 2": size == 2}
    return (
        wanted.driver in (None, device.driver)
        and wanted.mapping in (None, device.mapping)
        and wanted.mdev == device.mdev
        and all(rules[constraint] for constraint in wanted.constraints)
    )


def fits(choice: Sequence[Device], found: Sequence[Device]) -> bool:
    """Whether the devices of a choice can be had at the same time."""
    counts = Counter(device.id for device in choice)
    free = {device.id: device.capacity - device.in_use for device in found}
    return all(count <= free[id] for id, count in counts.items()) and not any(
        overlapping(one, other) for one, other in itertools.combinations(counts, 2)
    )


def test_oracle__knows_what_shares_hardware() -> None:
    assert overlapping("0000:01:00", "0000:01:00.1")
    assert not overlapping("0000:01:00.0", "0000:01:00.1")
    assert fits([replace(Device("usb", "a", "pve1", "1-1"), capacity=1)], [Device("usb", "a", "pve1", "1-1")])
