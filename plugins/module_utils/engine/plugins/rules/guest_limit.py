# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GuestLimit: no more than so many guests per node."""

from __future__ import annotations

import typing as t
from collections.abc import Hashable, Mapping

from ....model import Request
from ...cache import ClusterState, NodeInfo
from ...framework.config import Setting
from ...framework.cycle_state import CycleState
from ...framework.interface import FilterPlugin, PerNode, PreFilterPlugin
from ...framework.status import SKIP, Category, Status, unschedulable

TOO_MANY = "held {} guests, the most allowed"
TOO_MANY_TAGGED = "held {} guests with tag '{}', the most allowed"


class GuestLimit(PerNode, PreFilterPlugin, FilterPlugin):
    """Rejects a node that holds C(max_guests) guests already, or as many guests with one of the request's tags as
    C(tags) allows. No limit by default.

    VMs and containers of any status count, templates do not.
    """

    name = "GuestLimit"
    category = Category.CAPACITY
    settings = {
        "max_guests": Setting("int", None, "guests that a node may hold; not set: any number", minimum=1),
        "tags": Setting("dict", {}, "guests with a tag that a node may hold, by tag"),
    }

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        super().__init__(config)
        limit = Setting("int", 0, "", minimum=1)
        self.max_guests: int | None = config["max_guests"]
        self.tags: dict[str, int] = {
            tag: limit.check(f"{self.name}.config.tags.{tag}", value) for tag, value in config["tags"].items()
        }

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        return frozenset(request.tags & self.tags.keys())

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        limits = state[self.name] = {tag: self.tags[tag] for tag in sorted(request.tags & self.tags.keys())}
        return None if limits or self.max_guests is not None else SKIP

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        limits: dict[str, int] = state[self.name]
        if self.max_guests is not None and guests_with(node) >= self.max_guests:
            return unschedulable(TOO_MANY.format(self.max_guests))
        for tag, limit in limits.items():
            if guests_with(node, tag) >= limit:
                return unschedulable(TOO_MANY_TAGGED.format(limit, tag))
        return None


def guests_with(node: NodeInfo, tag: str | None = None) -> int:
    """The number of guests on the node, without templates; with a tag, only the guests that have it."""
    return sum(1 for guest in node.guests.values() if not guest.template and (tag is None or tag in guest.tags))
