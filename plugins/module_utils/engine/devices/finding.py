# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Meeting all claims of a request from one node's devices, or none: the search, as a pure function."""

from __future__ import annotations

import itertools
import typing as t
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...model import DeviceAllocation, DeviceClaim, Request
from ..cache import NodeInfo
from ..framework.interface import CycleState
from ..framework.status import Status, unresolvable, unschedulable
from .claims import Alternative, alternatives, equivalence_classes, offers, shortfall
from .constraints import Matcher
from .hardware import OPTIONS
from .supply import Supply

REASON = "couldn't satisfy device claim '{}'"
TOGETHER = "couldn't satisfy device claim '{}' beside the others"
NO_OPTION = "had no free config option for device claim '{}'"
GAVE_UP = "had too many ways to satisfy the device claims"

MOST_OFFERS = 10_000
"""How many combinations of offers are looked at per node before the node is given up."""


@dataclass(slots=True)
class Met:
    """How the claims are met on a node, and what the node then has left."""

    allocations: tuple[DeviceAllocation, ...]
    supply: Supply


def find_devices(request: Request, node: NodeInfo, matcher: Matcher) -> Met | Status:
    """Give every claim of the request its devices on node, or say what is in the way. Raises InvalidRequest."""
    supply = Supply(node.devices)
    options = options_left(request)
    search = _OfferSearch(supply, [alternatives(claim, supply, matcher) for claim in request.devices], options)
    found = search.run()
    if found is None:
        return _explain_unmet(request.devices, search)
    return Met(tuple(_allocations(request, node.name, supply, found, options)), supply)


def devices_on(state: CycleState, request: Request, node: NodeInfo, matcher: Matcher) -> Met | Status:
    """Return the same, found once per node and cycle for all plugins that ask. It must not be changed."""
    return state.once((find_devices, node.index), find_devices, request, node, matcher)


def options_left(request: Request) -> dict[str, list[str]]:
    """Return for each driver the config options that the request does not set itself."""
    return {
        driver: [option for index in range(number) if (option := f"{prefix}{index}") not in request.options]
        for driver, (prefix, number) in OPTIONS.items()
    }


@dataclass(slots=True)
class _OfferSearch:
    """A walk through the claims in order, each taking its offers one after the other until all others can be met.

    Attributes:
        supply: holds what was taken once run has found something, and is as before when it has not.
        claims: for each claim its alternatives on this node.
        options: for each driver the config options that are free.
        looked: how many offers were looked at.
    """

    supply: Supply
    claims: Sequence[Sequence[Alternative]]
    options: Mapping[str, Sequence[str]]
    looked: int = 0
    alike: list[Hashable] = field(default_factory=list)

    def run(self) -> list[tuple[Alternative, list[int]]] | None:
        """Return for each claim the alternative that is met and the positions of its devices; None when not all can be
        met.
        """
        everything = [alternative for claim in self.claims for alternative in claim]
        self.alike = equivalence_classes(self.supply, everything)
        return self._from(0, {driver: len(options) for driver, options in self.options.items()})

    def take_first(self, claim: int) -> list[int] | None:
        """Take the first offer for one claim from what is left, without counting config options."""
        for _alternative, offer in itertools.islice(self._offers(claim), MOST_OFFERS):
            if self._take(offer):
                return offer
        return None

    def give_back(self, offer: Sequence[int]) -> None:
        """Undo a take."""
        for position in offer:
            self.supply.give_back(position)

    def _from(self, claim: int, room: Mapping[str, int]) -> list[tuple[Alternative, list[int]]] | None:
        """Meet the claims from this one on. Returns None if that is impossible. room is how many devices of each driver
        a VM still may have.
        """
        if claim == len(self.claims):
            return []
        for alternative, offer in self._offers(claim):
            self.looked += 1
            if self.looked > MOST_OFFERS:
                return None
            left = dict(room)
            for position in offer:
                left[self.supply.devices[position].driver] -= 1
            if min(left.values()) < 0 or not self._take(offer):
                continue
            rest = self._from(claim + 1, left)
            if rest is not None:
                return [(alternative, offer), *rest]
            self.give_back(offer)
        return None

    def _take(self, offer: Sequence[int]) -> bool:
        """Take all devices of an offer or none: some of them may be one piece of hardware under two mappings."""
        for number, position in enumerate(offer):
            if not self.supply.free(position):
                self.give_back(offer[:number])
                return False
            self.supply.take(position)
        return True

    def _offers(self, claim: int) -> Iterator[tuple[Alternative, list[int]]]:
        for alternative in self.claims[claim]:
            for offer in offers(alternative, self.supply, self.alike):
                yield alternative, offer


def _explain_unmet(claims: Sequence[DeviceClaim], search: _OfferSearch) -> Status:
    """Explain by the first claim that cannot be met: on its own, or once those before it have their first offers."""
    if search.looked > MOST_OFFERS:
        return unschedulable(GAVE_UP, f"more than {MOST_OFFERS}")
    for index, claim in enumerate(claims):
        offer = search.take_first(index)
        if offer is None:
            able = any(_would_suffice(alternative, search.supply) for alternative in search.claims[index])
            return (unschedulable if able else unresolvable)(REASON.format(claim.name), _detail(search, index))
        search.give_back(offer)
    for index, claim in enumerate(claims):
        if search.take_first(index) is None:
            return unschedulable(TOGETHER.format(claim.name), _detail(search, index))
    return unresolvable(NO_OPTION.format(claims[-1].name))


def _would_suffice(alternative: Alternative, supply: Supply) -> bool:
    """Whether the node would have enough devices that will do, were nothing in use."""
    totals: Counter[Hashable] = Counter()
    for position, (_pool, values) in alternative.kinds.items():
        totals[values] += supply.devices[position].capacity
    return max(totals.values(), default=0) >= alternative.wanted.count


def _detail(search: _OfferSearch, index: int) -> str:
    found = search.claims[index]
    texts = [shortfall(alternative, search.supply) for alternative in found]
    if len(texts) == 1:
        return texts[0]
    return "; or ".join(f"{_label(each.wanted)}: {text}" for each, text in zip(found, texts, strict=True))


def _label(wanted: DeviceClaim) -> str:
    if wanted.device_class is not None:
        return f"class {wanted.device_class}"
    return f"mapping {wanted.mapping}" if wanted.mapping is not None else wanted.name


def _allocations(
    request: Request,
    node: str,
    supply: Supply,
    found: Iterable[tuple[Alternative, list[int]]],
    options: Mapping[str, Sequence[str]],
) -> Iterator[DeviceAllocation]:
    """Yield each device of the solution with the option that attaches it. options are those that are free."""
    left = {driver: iter(each) for driver, each in options.items()}
    for claim, (alternative, positions) in zip(request.devices, found, strict=True):
        for position in positions:
            device = supply.devices[position]
            yield DeviceAllocation(
                claim=claim.name,
                driver=device.driver,
                device=device.id,
                node=node,
                mapping=device.mapping,
                option=next(left[device.driver], ""),
                value=config_value(device.mapping, device.mdev, {**claim.options, **alternative.wanted.options}),
            )


def config_value(mapping: str, mdev: str | None, properties: Mapping[str, t.Any]) -> str:
    """Return the property string of the config option that attaches a device."""
    pairs = [("mapping", mapping), *([("mdev", mdev)] if mdev else []), *sorted(properties.items())]
    return ",".join(f"{key}={int(value) if isinstance(value, bool) else value}" for key, value in pairs)
