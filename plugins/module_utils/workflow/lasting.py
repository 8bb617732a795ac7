# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lasting rules: the VM gets a tag for each of them, which every later run reads as a rule."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..engine.node_selection import NODE_KEY
from ..engine.selectors import selects_request
from ..engine.standing_rules import AFFINITY, ANTI_AFFINITY, PIN
from ..errors import InvalidRequest
from ..model import AffinityTerm, Request, Selector
from ..proxmox.options.values import boolean, invalid

_NOT_IN_TAGS = re.compile(r"[^a-z0-9]+")


def lasting_tags(body: Mapping[str, t.Any], request: Request, where: str) -> frozenset[str]:
    """Return the tags for the lasting rules of body, whose rules are those of the request.

    where is the prefix of option names in messages. Raises InvalidRequest for a rule that no tag can express.
    """
    affinity = (
        _affinity_tag(f"{where}affinity[{number}]", term, request)
        for number, term in enumerate(request.affinity)
        if _lasts(body["affinity"][number])
    )
    return frozenset((*affinity, *_pins(body, f"{where}node_affinity.required")))


def with_tags(request: Request, tags: frozenset[str]) -> Request:
    """Return the request with these tags added to its own."""
    every = frozenset({*request.tags, *tags})
    return replace(request, tags=every, options={**request.options, "tags": ";".join(sorted(every))})


def _lasts(rule: Mapping[str, t.Any]) -> bool:
    return boolean(rule.get("lasting")) is True


def _affinity_tag(where: str, term: AffinityTerm, request: Request) -> str:
    """Return the tag that stores a lasting rule between VMs. Raises InvalidRequest for a rule that no tag can express.
    """
    if not term.required or term.topology_key != NODE_KEY:
        raise invalid(f"{where}.lasting", True, "a rule that is required and has the topology_key node")
    if not selects_request(term.selector, request):
        raise InvalidRequest(
            f"{where}.lasting: the rule does not select the VM itself, expected one that selects all VMs that get"
            " its tag"
        )
    name = _name_of(term.selector)
    if not name:
        raise InvalidRequest(f"{where}.lasting: the rule cannot be written as a tag; select the VMs by tags or group")
    return (AFFINITY if term.together else ANTI_AFFINITY) + name


def _name_of(selector: Selector) -> str:
    """Return the name of a rule in its tag: the values by which it selects VMs."""
    values = (selector.name, *sorted(selector.tags), selector.pool, selector.group)
    words = (_NOT_IN_TAGS.sub("-", value.lower()).strip("-") for value in values if value)
    return "_".join(filter(None, words))


def _pins(body: Mapping[str, t.Any], where: str) -> Iterator[str]:
    """Yield the tags that store a lasting rule about nodes. Raises InvalidRequest for a rule that no tag can express.
    """
    given = (body.get("node_affinity") or {}).get("required") or ()
    lasting = [(number, rule) for number, rule in enumerate(given) if _lasts(rule)]
    for number, rule in lasting:
        if rule["key"] != NODE_KEY or rule["operator"] != "In":
            raise invalid(f"{where}[{number}].lasting", True, "an expression with the key node and the operator In")
        if len(lasting) > 1:
            raise InvalidRequest(f"{where}[{number}].lasting: is set twice, expected all nodes in one expression")
        yield from (f"{PIN}{str(node).lower()}" for node in rule["values"])
