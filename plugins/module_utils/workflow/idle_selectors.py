# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules that select no VM, not even the one that has them: usually because of a typing error."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from ..engine.selectors import selects, selects_request
from ..model import Guest, Request, Selector

_GLOB = re.compile(r"(?<![.\])}\\])\*")
"""A star that repeats a letter, as in C(web-*)."""


class IdleSelectors:
    """Looks for selectors that select none of these guests and requests. Each selector is tried once."""

    def __init__(self, guests: Collection[Guest], requests: Sequence[Request]) -> None:
        self._guests, self._requests = guests, requests
        self._tried: dict[Selector, bool] = {}

    def cautions(self, request: Request) -> Iterator[str]:
        """The warnings about the rules of a request."""
        rules = [("affinity", each.selector) for each in request.affinity]
        rules += [("topology_spread", each.selector) for each in request.topology_spread]
        for option, selector in dict.fromkeys(rules):
            if self._selects_none(selector):
                yield f"{option} selects no VM: {_text(selector)}{_hint(selector)}"

    def _selects_none(self, selector: Selector) -> bool:
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
    return f"; name is a regular expression, in which any text is .*: {_GLOB.sub('.*', selector.name)}"
