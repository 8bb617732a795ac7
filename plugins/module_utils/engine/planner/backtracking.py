# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Places small batches by trying every order and every node, where rules between the VMs mislead the other searches.

A VM may fit only after another one that it wants to be near, or only as long as a node has none of another kind. So the
next VM is any of those that are left, on any node that the filters let pass, and a step that leads nowhere is taken
back.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import CollectionError
from ...model import Request
from ..scheduling_cycle import Scheduler
from ..verdicts import Outcome

MOST = 12
"""The largest batch that is tried: of larger ones, the tries reach only a small part."""

TRIES = 6_000
"""How often a VM is tried on a node, which takes some tenths of a second."""


class Backtracking:
    """Looks for places of all requests. Those found are assumed in the cluster of the scheduler."""

    def __init__(self, scheduler: Scheduler, requests: Sequence[Request], now: float, tries: int = TRIES) -> None:
        self._scheduler = scheduler
        self._requests = requests
        self._now = now
        # Without rules between the VMs, no order matters that the planner does not try.
        ruled = any(request.affinity or request.topology_spread or request.ha for request in requests)
        self._tries = tries if ruled and len(requests) <= MOST else 0
        self._dead: set[frozenset[tuple[int, str]]] = set()

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes in the order of the requests; none if not all were placed."""
        found: dict[int, Outcome] = {}
        if not self._place_rest(found):
            return []
        for turn, number in enumerate(found, 1):
            found[number].turn = turn
        return [found[number] for number in sorted(found)]

    def _place_rest(self, found: dict[int, Outcome]) -> bool:
        """Place all requests that are not in found, and add their outcomes to it. If that fails, found is as before."""
        if len(found) == len(self._requests):
            return True
        places = frozenset((number, o.decision.node) for number, o in found.items() if o.decision is not None)
        if places in self._dead:
            return False
        for number, request in enumerate(self._requests):
            if number not in found and self._place(number, request, found):
                return True
        self._dead.add(places)
        return False

    def _place(self, number: int, request: Request, found: dict[int, Outcome]) -> bool:
        """Place one request so that the rest find places as well."""
        if self._tries <= 0:
            return False
        scheduler, now = self._scheduler, self._now
        self._tries -= len(scheduler.cluster.nodes)
        try:
            scores = scheduler.scores(request, now)
            vmid = scheduler.pick_vmid(request)
        except CollectionError:
            return False
        for node in sorted(scores, key=lambda name: (-scores[name], name)):
            outcome = scheduler.schedule(request, now, (node, vmid))
            if outcome.decision is None:
                continue
            found[number] = outcome
            if self._place_rest(found):
                return True
            del found[number]
            scheduler.undo(outcome.decision)
        return False
