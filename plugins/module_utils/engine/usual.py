# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes use with the guests that the run has decided or moved, and what a new VM will use. Pure."""

from __future__ import annotations

import functools
import re
import typing as t
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from ..demand import CPU, LIKE, MEMORY, Demand
from ..model import Guest, Request, demand_of
from .cache import NodeInfo, of_sums

MOST_ALIKE = 5
"""Of the guests like a new VM, so many are read at most."""


def usual_load(node: NodeInfo, resource: str) -> float | None:
    """Return how much of a resource the node uses: what was read of it, and the guests that this does not include.
    None if it was not read.
    """
    rest = node.node.demand.get(resource)
    if rest is None:
        return None
    counted = (guest for guest in node.guests if guest.demand or guest.status == "assumed")
    return rest.usual + sum(demand_of(guest, resource).usual for guest in counted)


def usual_loads(nodes: Sequence[NodeInfo]) -> list[tuple[float | None, float | None]]:
    """Return for each node how much CPU and memory it uses."""

    def find(some: Sequence[NodeInfo]) -> list[tuple[float | None, float | None]]:
        return [(usual_load(node, CPU), usual_load(node, MEMORY)) for node in some]

    return of_sums(nodes, usual_loads, find)


RequestOrGuest = t.TypeVar("RequestOrGuest", Request, Guest)


def guests_like(request: Request | Guest, guests: Iterable[Guest]) -> list[Guest]:
    """Return running guests that are likely to use as much as a new VM will: those in its pool with its name but for
    digits, else the clones of its template, else those with its tags, else all of its pool. Guests of other pools
    belong to others, who could give them any name.

    A clone has the tags of its template unless it is given others. That two guests are clones of one template is known
    without a request only of those that the task clones.
    """
    guests = list(guests)
    own = [guest for guest in guests if guest.running and guest.pool == request.pool and guest.kind == "qemu"]
    own.sort(key=lambda guest: guest.vmid)
    siblings, tags = frozenset[int](), request.tags
    if isinstance(request, Request):
        siblings, tags = request.siblings, tags or _inherited_tags(request, guests)
    likenesses: tuple[Callable[[Guest], bool], ...] = (
        lambda guest: _stem(guest.name) == _stem(request.name),
        lambda guest: guest.vmid in siblings,
        lambda guest: bool(tags) and guest.tags == tags,
        lambda guest: bool(request.pool),
    )
    found = ([guest for guest in own if is_like(guest)] for is_like in likenesses)
    return next(filter(None, found), [])[:MOST_ALIKE]


def with_demand(request: RequestOrGuest, guests: Iterable[Guest]) -> RequestOrGuest:
    """Return a new VM, or a guest, with what it will use: as it is known or the user states it, else by the use of
    guests like it, as far as that is known: the mean part of their size.
    """
    alike = guests_like(request, guests)
    found = {resource: demand for resource in (CPU, MEMORY) if (demand := _expect(request, resource, alike))}
    return replace(request, demand={**found, **request.demand}) if found else request


def _expect(request: Request | Guest, resource: str, alike: Iterable[Guest]) -> Demand | None:
    parts = list(_parts(resource, alike))
    size = request.cores if resource == CPU else request.memory
    return Demand(LIKE, (size * sum(parts) / len(parts),)) if parts else None


def _parts(resource: str, guests: Iterable[Guest]) -> Iterator[float]:
    for guest in guests:
        size = guest.cores if resource == CPU else guest.memory
        if resource in guest.demand and size:
            yield min(guest.demand[resource].usual / size, 1.0)


def _inherited_tags(request: Request, guests: Iterable[Guest]) -> frozenset[str]:
    """Return the tags that a clone gets from its template."""
    source = request.clone.templates[0].vmid if request.clone is not None else None
    return next((guest.tags for guest in guests if guest.vmid == source), frozenset())


@functools.lru_cache(maxsize=20_000)
def _stem(name: str | None) -> str:
    return re.sub(r"\d+", "0", name or "")
