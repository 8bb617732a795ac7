# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ways to meet one claim from a supply, best first, and why there is none.

The devices of one mapping on one node are a pool. Sets of one pool are tried before sets of two, and so on; sets in
list order, and the devices within a set in list order.
"""

from __future__ import annotations

import itertools
import typing as t
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from ...model import DeviceClaim
from .constraints import Matcher, attributes_of
from .supply import PoolKey, Supply

NO_DEVICES = "no available devices"
WRONG_DRIVER = "claim and pool driver do not match"
CONSTRAINTS = "constraints not met"
WRONG_TYPE = "no mdev type '{}'"
NO_ATTRIBUTES = "match_attributes not known"
AVAILABLE = "{} available"
UNEQUAL = "{} available with equal match_attributes"

DeviceKind = tuple[PoolKey, Hashable]
"""A pool, and the values of the claim's match_attributes."""


@dataclass(slots=True)
class Alternative:
    """One way to write a claim: the claim itself, or one of its C(one_of); with the devices of a node that it accepts.

    Attributes:
        wanted: the request.
        kinds: for each device that will do, free or not, its position in the supply and its kind.
        refused: for each pool that was skipped whatever is free in it, the reason.
    """

    wanted: DeviceClaim
    kinds: dict[int, DeviceKind]
    refused: dict[PoolKey, str]


def alternatives(claim: DeviceClaim, supply: Supply, matcher: Matcher) -> list[Alternative]:
    """Return the alternatives of a claim on one node, in order. Raises InvalidRequest as Matcher does."""
    return [_alternative(wanted, claim.name, supply, matcher) for wanted in claim.one_of or (claim,)]


def offers(alternative: Alternative, supply: Supply, alike: Sequence[Hashable]) -> Iterator[list[int]]:
    """Yield the positions of devices that meet the alternative, with a device once per instance taken.

    alike: for each position a value that is equal for devices between which no claim can tell; of offers that differ
    only by such devices the first is enough.
    """
    count = alternative.wanted.count
    groups = _groups(alternative, supply)
    for size in range(1, min(count, max(map(len, groups.values()), default=0)) + 1):
        for pools in groups.values():
            sizes = [len(slots) for slots in pools]
            for chosen in _sets(sizes, size, count):
                slots = [slot for index in chosen for slot in pools[index]]
                yield from _picks(slots, count, alike)


def shortfall(alternative: Alternative, supply: Supply) -> str:
    """Return the reason for each pool that was skipped, and how many devices are missing."""
    wanted = alternative.wanted
    groups = _groups(alternative, supply)
    most = max((sum(map(len, pools)) for pools in groups.values()), default=0)
    parts = []
    for key, positions in supply.pools.items():
        if wanted.mapping is not None and key[0] != wanted.mapping:
            continue
        free = sum(supply.free(position) for position in positions if position in alternative.kinds)
        reason = alternative.refused.get(key) or (NO_DEVICES if not free else AVAILABLE.format(free))
        parts.append(f"{key[0]}: {reason}")
    if not parts:
        parts = [f"{wanted.mapping}: not mapped here" if wanted.mapping else "no device is mapped here"]
    elif len(groups) > 1:
        parts.append(UNEQUAL.format(most))
    missing = max(wanted.count - most, 1)
    return "; ".join([*parts, f"unable to satisfy {missing} of {wanted.count} device requests"])


def _alternative(wanted: DeviceClaim, claim: str, supply: Supply, matcher: Matcher) -> Alternative:
    """Return the devices of the supply that meet one alternative of a claim, and per mapping why none of it does."""
    kinds: dict[int, DeviceKind] = {}
    refused: dict[PoolKey, str] = {}
    for key, positions in supply.pools.items():
        mapping, driver = key
        if wanted.mapping not in (None, mapping):
            continue
        if wanted.driver not in (None, driver):
            refused[key] = WRONG_DRIVER
            continue
        reason = ""
        for position in positions:
            device = supply.devices[position]
            if device.fault:
                reason = device.fault
            elif device.mdev != wanted.mdev:
                reason = reason or (WRONG_TYPE.format(wanted.mdev) if wanted.mdev else "only mdev types")
            elif not all(matcher.meets(device, claim, constraint) for constraint in wanted.constraints):
                reason = CONSTRAINTS
            elif (values := _values(wanted, attributes_of(device))) is None:
                reason = NO_ATTRIBUTES
            else:
                kinds[position] = (key, values)
        if not any(position in kinds for position in positions):
            refused[key] = reason
    return Alternative(wanted, kinds, refused)


def _values(wanted: DeviceClaim, attributes: dict[str, t.Any]) -> Hashable | None:
    """Return the values of match_attributes as text, so that 1 and "1" are equal; None when the device lacks one of
    them.
    """
    if not all(name in attributes for name in wanted.match_attributes):
        return None
    return tuple(str(attributes[name]) for name in wanted.match_attributes)


def _groups(alternative: Alternative, supply: Supply) -> dict[Hashable, list[list[int]]]:
    """Return for each combination of match_attributes' values that may do, the pools' free instances; both in list
    order.
    """
    groups: dict[Hashable, dict[PoolKey, list[int]]] = {}
    for position, (pool, values) in alternative.kinds.items():
        free = min(supply.free(position), alternative.wanted.count)
        if free:
            groups.setdefault(values, {}).setdefault(pool, []).extend([position] * free)
    return {values: list(pools.values()) for values, pools in groups.items()}


def _sets(sizes: Sequence[int], number: int, count: int, start: int = 0) -> Iterator[tuple[int, ...]]:
    """Yield, in order, the sets of that many indices whose sizes sum up to count at least; never look down a path
    without one.
    """
    if number == 0:
        yield ()
        return
    for index in range(start, len(sizes) - number + 1):
        rest = sorted(sizes[index + 1 :], reverse=True)[: number - 1]
        if sizes[index] + sum(rest) >= count:
            for others in _sets(sizes, number - 1, count - sizes[index], index + 1):
                yield (index, *others)


def _picks(slots: Sequence[int], count: int, alike: Sequence[Hashable], start: int = 0) -> Iterator[list[int]]:
    """Yield, in order, the choices of that many slots that differ by more than devices that are alike."""
    if count == 0:
        yield []
        return
    seen: set[Hashable] = set()
    for index in range(start, len(slots) - count + 1):
        if alike[slots[index]] not in seen:
            seen.add(alike[slots[index]])
            for others in _picks(slots, count - 1, alike, index + 1):
                yield [slots[index], *others]


def equivalence_classes(supply: Supply, found: Sequence[Alternative]) -> list[Hashable]:
    """Return for each position a value that is equal for devices between which none of the alternatives can tell."""
    return [
        tuple(itertools.chain([supply.devices[position].mapping], (each.kinds.get(position) for each in found)))
        if supply.stands_alone(position)
        else position
        for position in range(len(supply.devices))
    ]
