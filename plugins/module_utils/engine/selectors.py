# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which VMs a rule is about: selectors, asked about guests and about requests."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..model import Guest, Request, Selector
from .patterns.names import checked_pattern

Handle = tuple[str, str]
"""One property of a VM by which those that a selector may select are found: what it is, and its value."""

_LITERAL = re.compile(r"[A-Za-z0-9_-]+")
"""Patterns that match their own text and nothing else."""


def selects(selector: Selector, guest: Guest) -> bool:
    """Whether every part of selector that is given holds for guest. Templates are never selected."""
    return not guest.template and _holds(selector, guest.name, guest.tags, guest.pool, guest.group)


def selects_request(selector: Selector, request: Request) -> bool:
    """The same for the VM that a request will become."""
    return _holds(selector, request.name, request.tags, request.pool, request.gang.name if request.gang else None)


def _holds(selector: Selector, name: str | None, tags: Iterable[str], pool: str | None, group: str | None) -> bool:
    if selector.pool is not None and selector.pool != pool:
        return False
    if selector.group is not None and selector.group != group:
        return False
    # Proxmox keeps tags as they were written by a create, and lower-cases them when a config is changed.
    if selector.tags and not {tag.lower() for tag in selector.tags} <= {tag.lower() for tag in tags}:
        return False
    return selector.name is None or (name is not None and checked_pattern("name", selector.name).matches(name))


def attracts(request: Request, other: Request) -> bool:
    """Whether the request's own rules are about another VM in a way that it may help to have placed that one: it must
    be with it, or is to be spread evenly with it.
    """
    together = [term.selector for term in request.affinity if term.required and term.together]
    spread = [constraint.selector for constraint in request.topology_spread if constraint.hard]
    return any(selects_request(selector, other) for selector in (*together, *spread))


def handle_of(selector: Selector) -> Handle | None:
    """A property that everything has which the selector selects; None when there is none to look up."""
    if selector.tags:
        return "tag", min(tag.lower() for tag in selector.tags)
    if selector.group is not None:
        return "group", selector.group
    if selector.name is not None and _LITERAL.fullmatch(selector.name):
        return "name", selector.name
    return None if selector.pool is None else ("pool", selector.pool)


def handles(name: str | None, tags: Iterable[str], pool: str | None, group: str | None) -> list[Handle]:
    """Every property of a VM that a handle may be."""
    known = (("name", name), ("pool", pool), ("group", group))
    return [*(("tag", tag.lower()) for tag in tags), *((what, value) for what, value in known if value is not None)]


def handles_of_request(request: Request) -> list[Handle]:
    """The same of the VM that a request will become."""
    return handles(request.name, request.tags, request.pool, request.gang.name if request.gang else None)
