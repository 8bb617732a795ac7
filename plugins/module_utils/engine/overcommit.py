# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much of a node's CPU or memory may be given out, and which guests count as using it."""

from __future__ import annotations

import typing as t
from collections.abc import Hashable, Mapping

from ..model import Request
from .framework.config import Setting

COMMON_SETTINGS: Mapping[str, Setting] = {
    "include_stopped": Setting("bool", False, "count guests that are stopped as well; templates never count"),
    "pools": Setting("dict", {}, "ratio for the VMs of a pool, by the pool's name, instead of C(ratio)"),
    "tags": Setting("dict", {}, "ratio for the VMs that bear a tag, by tag, instead of C(ratio)"),
}


class Ratios:
    """The ratio in force for a request on a node.

    Of the ratios given for the node, for the request's pool and for its tags the smallest counts; where none is given,
    the default.
    """

    def __init__(self, where: str, config: Mapping[str, t.Any]) -> None:
        ratio = Setting("float", 1.0, "", minimum=0)
        self.default: float = config["ratio"]
        self.pools = {
            pool: ratio.check(f"{where}.config.pools.{pool}", value) for pool, value in config["pools"].items()
        }
        self.tags = {tag: ratio.check(f"{where}.config.tags.{tag}", value) for tag, value in config["tags"].items()}

    def signature(self, request: Request) -> Hashable:
        """The smallest ratio that the request's pool and tags give; None when they give none."""
        given = [self.tags[tag] for tag in request.tags if tag in self.tags]
        if request.pool in self.pools:
            given.append(self.pools[request.pool])
        return min(given, default=None)

    def ratio(self, request: Request, of_node: float | None) -> float:
        if of_node is None and not self.pools and not self.tags:
            return self.default
        of_request = self.signature(request)
        given = [t.cast(float, ratio) for ratio in (of_node, of_request) if ratio is not None]
        return min(given, default=self.default)


def within(wanted: float, capacity: float, ratio: float) -> bool:
    """Whether wanted / capacity is at most ratio.

    The quotient is rounded as the ratio itself was; 1.15 times 100 comes out below 115.
    """
    return capacity > 0 and wanted / capacity <= ratio
