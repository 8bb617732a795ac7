# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the user should know about new VMs although Proxmox VE will accept them."""

from __future__ import annotations

import re
import typing as t
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ..engine.cache import ClusterState
from ..engine.selectors import selects, selects_request
from ..model import Decision, Guest, Request, Selector
from ..proxmox.options.contradictions import config_with
from ..proxmox.options.drives import Drive, owner_of
from ..proxmox.options.request import cards_in, device_cautions, ha_cautions, option_cautions
from .job import Job, State
from .options.entries import Entry
from .placement import Placement

_GLOB = re.compile(r"(?<![.\])}\\])\*|(?<=-)\?")
"""A star that repeats a letter, as in C(web-*), and a question mark after a dash, as in C(web-?)."""


def note_cautions(
    jobs: Sequence[Job],
    placement: Placement,
    base_of: Callable[[Request, Entry], Mapping[str, t.Any]],
    requests: Sequence[Request],
) -> None:
    """Note in the jobs what their options lead to, and which rules select no VM.

    base_of returns the config that a new VM is made from; requests are those of all VMs that the run does not remove.
    """
    ruled = [job for job in jobs if job.decision and (job.request.affinity or job.request.topology_spread)]
    if ruled:
        idle = IdleSelectors(placement.before.guests, requests)
        for job in ruled:
            job.warn(*idle.cautions(job.entry.request))
    cards = Counter(tuple(map(card.get, _PLACE)) for request in requests for _option, card in cards_in(request.options))
    for job in jobs:
        if job.state is not State.DECIDED or job.decision is None:
            continue
        request = job.decision.request
        for option, card in cards_in(request.options):
            if "macaddr" in card and cards[tuple(map(card.get, _PLACE))] > 1:
                job.warn(_SAME_CARD.format(option, card["macaddr"]))
        for option, value in request.options.items():
            owner = owner_of(value.volume) if isinstance(value, Drive) and value.volume else None
            if owner is not None and any(guest.vmid == owner for guest in placement.before.guests):
                job.warn(f"{option}: {value.volume} is a disk of guest {owner}, which may write to it as well")
        if request.ha is not None:
            job.warn(*ha_cautions(job.decision, placement.seen.snapshot.storages))
        job.warn(*device_cautions(request))
        attached = {device.option: device.value for device in job.decision.devices}
        whole = config_with(base_of(request, job.entry), {**request.options, **attached})
        job.warn(*option_cautions(request.options, whole))


_PLACE = ("macaddr", "bridge", "tag")
"""The properties of a network card that no other card may have as well, taken together."""

_SAME_CARD = "{}: another card in this task has the MAC address {} as well, on the same bridge and VLAN"


def allocation_cautions(decision: Decision, state: ClusterState) -> list[str]:
    """Return what the decision about devices cannot promise."""
    node = state.by_name.get(decision.node)
    if node is None or not decision.devices:
        return []
    from ..engine.devices.constraints import Matcher
    from ..engine.devices.mixed import mixed_mappings

    return mixed_mappings(decision.request, decision.devices, [use.device for use in node.devices], Matcher())


class IdleSelectors:
    """Looks for selectors that select none of these guests and requests. Each selector is tried once."""

    def __init__(self, guests: Collection[Guest], requests: Sequence[Request]) -> None:
        self._guests, self._requests = guests, requests
        self._tried: dict[Selector, bool] = {}

    def cautions(self, request: Request) -> Iterator[str]:
        """Yield the warnings about the rules of a request."""
        rules = [("affinity", each.selector) for each in request.affinity]
        rules += [("topology_spread", each.selector) for each in request.topology_spread]
        for option, selector in dict.fromkeys(rules):
            if self._selects_none(selector):
                yield f"{option} selects no VM: {_text(selector)}{_hint(selector)}"

    def _selects_none(self, selector: Selector) -> bool:
        """Whether a selector selects no guest and no request."""
        if selector not in self._tried:
            self._tried[selector] = not (
                any(selects_request(selector, each) for each in self._requests)
                or any(selects(selector, each) for each in self._guests)
            )
        return self._tried[selector]


def _text(selector: Selector) -> str:
    parts = {"name": selector.name, "tags": ", ".join(sorted(selector.tags)), "pool": selector.pool}
    return ", ".join(f"{key} {value!r}" for key, value in {**parts, "group": selector.group}.items() if value)


def _hint(selector: Selector) -> str:
    if selector.name is None or not _GLOB.search(selector.name):
        return ""
    meant = _GLOB.sub(lambda found: ".*" if found[0] == "*" else ".", selector.name)
    return f"; name is a regular expression, in which .* matches any text: {meant}"
