# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guests that may stay on a node that is drained, as the user names them."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ...engine.patterns.names import compile_option_pattern
from ...errors import InvalidRequest
from ...model import Guest
from ..options.common import Spec

RUNNING, PAUSED, STOPPED = "running", "paused", "stopped"

STAYS: Spec = {
    "vmid": {"type": "list", "elements": "int"},
    "name": {"type": "str"},
    "tags": {"type": "list", "elements": "str", "aliases": ["tag"]},
    "status": {"type": "str", "choices": [RUNNING, PAUSED, STOPPED]},
    "type": {"type": "str", "choices": ["qemu", "lxc"]},
}


@dataclass(frozen=True, slots=True)
class Exemption:
    """Guests that stay: those for which everything holds that is given. name is a pattern."""

    vmids: frozenset[int] = frozenset()
    name: str | None = None
    tags: frozenset[str] = frozenset()
    status: str | None = None
    kind: str | None = None

    def covers(self, guest: Guest) -> bool:
        """Whether the guest may stay."""
        return (
            (not self.vmids or guest.vmid in self.vmids)
            and self.kind in (None, guest.kind)
            and self.status in (None, _status_of(guest))
            and self.tags <= {tag.lower() for tag in guest.tags}
            and (self.name is None or compile_option_pattern("name", self.name).matches(guest.name or ""))
        )


def exemptions(params: Mapping[str, t.Any]) -> tuple[Exemption, ...]:
    """Return what C(stays) says. Raises InvalidRequest, which names the option."""
    return tuple(exemption_of(f"stays[{number}]", body) for number, body in enumerate(params["stays"]))


def exemption_of(where: str, body: Mapping[str, t.Any]) -> Exemption:
    """Return the guests that a mapping selects. Raises InvalidRequest, which names it as where."""
    given = {key: value for key, value in body.items() if value}
    if not given.keys() & STAYS.keys():
        raise InvalidRequest(
            f"{where}: is empty and would concern all guests, expected one or more of {', '.join(STAYS)}"
        )
    if "name" in given:
        compile_option_pattern(f"{where}.name", given["name"])
    tags = frozenset(str(tag).lower() for tag in given.get("tags", ()))
    return Exemption(frozenset(given.get("vmid", ())), given.get("name"), tags, given.get("status"), given.get("type"))


def _status_of(guest: Guest) -> str:
    if not guest.running:
        return STOPPED
    return PAUSED if guest.status == PAUSED else RUNNING
