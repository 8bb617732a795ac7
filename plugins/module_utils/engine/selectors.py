# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selectors, which say which VMs a rule concerns: matching of guests and of requests."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..model import Guest, Request, Selector
from .patterns.names import compile_option_pattern, literal_start

Handle = tuple[str, str]
"""A property that every VM has which a selector selects: its kind and its value."""

_LITERAL = re.compile(r"[A-Za-z0-9_-]+")
"""Patterns that match only their own text."""


def selects(selector: Selector, guest: Guest) -> bool:
    """Whether every given part of selector matches guest. Templates are never selected."""
    return not guest.template and _holds(selector, guest.name, guest.tags, guest.pool, guest.group)


def may_select(selector: Selector, name: str | None) -> bool:
    """Whether the pattern of names, if there is one, may match a name. Faster than matching it."""
    return selector.name is None or (name is not None and name.startswith(literal_start(selector.name)))


def selects_request(selector: Selector, request: Request) -> bool:
    """Return the same for the VM that a request will become."""
    return _holds(selector, request.name, request.tags, request.pool, request.gang.name if request.gang else None)


def _holds(selector: Selector, name: str | None, tags: Iterable[str], pool: str | None, group: str | None) -> bool:
    """Whether the selector selects a guest with this name and these tags, pool and group."""
    if selector.pool is not None and selector.pool != pool:
        return False
    if selector.group is not None and selector.group != group:
        return False
    # Proxmox keeps tags as they were written by a create, and lower-cases them when a config is changed.
    if selector.tags and not {tag.lower() for tag in selector.tags} <= {tag.lower() for tag in tags}:
        return False
    return selector.name is None or (name is not None and compile_option_pattern("name", selector.name).matches(name))


def attracts(request: Request, other: Request) -> bool:
    """Whether placing another VM may satisfy the request's own rules: the request must be placed with it, or be spread
    evenly with it.
    """
    together = [term.selector for term in request.affinity if term.required and term.together]
    spread = [constraint.selector for constraint in request.topology_spread if constraint.hard]
    return any(selects_request(selector, other) for selector in (*together, *spread))


def handle_of(selector: Selector) -> Handle | None:
    """Return a property that all selected VMs have; None if the selector has none that can be looked up."""
    if selector.tags:
        return "tag", min(tag.lower() for tag in selector.tags)
    if selector.group is not None:
        return "group", selector.group
    if selector.name is not None and _LITERAL.fullmatch(selector.name):
        return "name", selector.name
    return None if selector.pool is None else ("pool", selector.pool)


def handles(name: str | None, tags: Iterable[str], pool: str | None, group: str | None) -> list[Handle]:
    """Return all handles that a VM may be found by."""
    known = (("name", name), ("pool", pool), ("group", group))
    return [*(("tag", tag.lower()) for tag in tags), *((what, value) for what, value in known if value is not None)]


def handles_of_request(request: Request) -> list[Handle]:
    """Return the same of the VM that a request will become."""
    return handles(request.name, request.tags, request.pool, request.gang.name if request.gang else None)
