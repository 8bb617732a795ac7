# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which VMs a rule is about: selectors, asked about guests and about requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..model import Guest, Request, Selector
from .patterns.names import checked_pattern


def selects(selector: Selector, guest: Guest) -> bool:
    """Whether every part of selector that is given holds for guest. Templates are never selected."""
    return not guest.template and _holds(selector, guest.name, guest.tags, guest.pool, guest.group)


def selects_request(selector: Selector, request: Request) -> bool:
    """The same for the VM that a request will become."""
    return _holds(selector, request.name, request.tags, request.pool, request.gang.name if request.gang else None)


def selected_by(request: Request) -> Callable[[Selector], bool]:
    """What selects_request says of this request, as a function of the selector alone."""
    return lambda selector: selects_request(selector, request)


def _holds(selector: Selector, name: str | None, tags: Iterable[str], pool: str | None, group: str | None) -> bool:
    if selector.pool is not None and selector.pool != pool:
        return False
    if selector.group is not None and selector.group != group:
        return False
    # Proxmox keeps tags as they were written by a create, and lower-cases them when a config is changed.
    if selector.tags and not {tag.lower() for tag in selector.tags} <= {tag.lower() for tag in tags}:
        return False
    return selector.name is None or (name is not None and checked_pattern("name", selector.name).matches(name))
