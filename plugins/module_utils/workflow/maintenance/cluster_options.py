# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a cluster_power task."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ...model import Guest
from ...proxmox.api.session import connection_argument_spec
from ...proxmox.options.values import check_range
from ..moves.staying import STAYS, Exemption, exemption_of
from ..options.common import Spec
from .power import Running

OFF, ON = "off", "on"


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What a task says.

    order: guests in the order in which they start. nodes: whether nodes are shut down and woken as well. accept: names
    of known problems. seconds, force: how long a guest may take to shut down, and whether it is stopped then. parallel:
    how many guests are shut down or started at a time. wait: seconds in which nodes have to go off, or to come back.
    timeout: seconds for everything else. allow_hidden: whether guests may be hidden from the user.
    """

    order: tuple[Exemption, ...]
    nodes: bool
    accept: frozenset[str]
    seconds: int | None
    force: bool
    parallel: int
    wait: float
    timeout: float
    allow_hidden: bool

    @classmethod
    def of(cls, params: Mapping[str, t.Any]) -> ClusterOptions:
        """Return the options of a task. Raises InvalidRequest."""
        seconds = params["shutdown"].get("timeout")
        if seconds is not None:
            check_range("shutdown.timeout", seconds, 1)
        for option in ("parallel", "timeout"):
            check_range(option, params[option], 1)
        check_range("wait", params["wait"], 0)
        return cls(
            order=tuple(exemption_of(f"order[{number}]", body) for number, body in enumerate(params["order"])),
            nodes=params["nodes"],
            accept=frozenset(params["accept"]),
            seconds=seconds,
            force=bool(params["shutdown"].get("force")),
            parallel=params["parallel"],
            wait=float(params["wait"]),
            timeout=float(params["timeout"]),
            allow_hidden=params["allow_hidden"],
        )

    def rank_of(self, guest: Running) -> tuple[int, float]:
        """Return when a guest starts: by the first entry of order that selects it, then by its option startup."""
        tags = frozenset(tag for tag in str(guest.config.get("tags") or "").split(";") if tag)
        status = "running" if guest.running else "stopped"
        shown = Guest(guest.vmid, guest.name, guest.node, kind=guest.kind, status=status, tags=tags)
        entry = next((number for number, each in enumerate(self.order) if each.covers(shown)), len(self.order))
        return entry, guest.order

    def accepts(self, name: str) -> bool:
        return bool({name, name.partition(":")[0]} & self.accept)


def cluster_argument_spec() -> Spec:
    """Return the options of the module."""
    return {
        **connection_argument_spec(),
        "state": {"type": "str", "choices": [OFF, ON], "required": True},
        "order": {"type": "list", "elements": "dict", "options": dict(STAYS), "default": []},
        "nodes": {"type": "bool", "default": True},
        "accept": {"type": "list", "elements": "str", "default": []},
        "shutdown": {
            "type": "dict",
            "default": {},
            "options": {"timeout": {"type": "int"}, "force": {"type": "bool", "default": False}},
        },
        "parallel": {"type": "int", "default": 8},
        "wait": {"type": "int", "default": 900},
        "timeout": {"type": "int", "default": 600},
        "allow_hidden": {"type": "bool", "default": False},
    }
