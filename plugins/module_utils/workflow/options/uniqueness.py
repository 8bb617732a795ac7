# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuses lists in which two entries mean the same VM."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Sequence

from ...errors import InvalidRequest

if t.TYPE_CHECKING:
    from .entries import Entry


def check_unique(entries: Sequence[Entry], where: str) -> None:
    """Refuse VMs with the same VMID or name. Raises InvalidRequest."""
    requests = [entry.request for entry in entries]
    names = [request.name for request in requests if not request.per_node]
    copies = [request for request in requests if request.per_node]
    places = [f"{copy.name} on {copy.node or 'each node'}" for copy in copies]
    for option, values in (("vmid", [request.vmid for request in requests]), ("name", names), ("name", places)):
        for value, count in Counter(filter(None, values)).items():
            if count > 1:
                text = f"{option}: {value!r} is set in {count} entries of {where}, expected different values"
                raise InvalidRequest(text)
    both = sorted({copy.name for copy in copies} & set(names))
    if both:
        raise InvalidRequest(f"name: {both[0]!r} is set with per_node and without it in {where}")
    spelled: dict[str, str] = {}
    for name in (entry.request.name for entry in entries if entry.request.name):
        other = spelled.setdefault(name.casefold(), name)
        if other != name:
            raise InvalidRequest(
                f"name: {other!r} and {name!r} in {where} differ only in case, expected different names"
            )
