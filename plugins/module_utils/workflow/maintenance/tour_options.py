# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a maintenance_tour task."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import InvalidRequest
from ...model import Guest
from ...proxmox.node_needs import NEEDS
from ...proxmox.options.values import check_range
from ...tours import SHUT_DOWN, STAY
from ..moves.move_options import MOVING_OPTIONS
from ..moves.staying import STAYS, Exemption, exemption_of
from ..options.common import Spec

PLANNED, BEGUN, ENTERED, PREPARED, LEFT, FINISHED, RELEASED, ENDED, RECORDED = (
    "planned", "begun", "entered", "prepared", "left", "finished", "released", "ended", "recorded",
)  # fmt: skip
STATES = (PLANNED, BEGUN, ENTERED, PREPARED, LEFT, FINISHED, RELEASED, ENDED, RECORDED)
OF_ONE_NODE = (BEGUN, ENTERED, PREPARED, LEFT)

NEEDED = "the task says that it needs maintenance"

GUESTS: Spec = {
    **STAYS,
    "immovable": {"type": "bool", "default": False},
    "action": {"type": "str", "choices": [SHUT_DOWN, STAY], "required": True},
}


@dataclass(frozen=True, slots=True)
class GuestChoice:
    """What becomes of guests that are not moved. immovable: only of those that cannot be moved."""

    guests: Exemption
    action: str
    immovable: bool


@dataclass(frozen=True, slots=True)
class TourOptions:
    """What a task says of a tour.

    keep_order, homes: as in TourGoals. choices: what becomes of guests that are not moved; the first one counts.
    only_if: the tests of which one must show that a node needs maintenance. needed: the nodes that need it as the task
    knows, each with the reason; tests_needs: whether other nodes are left out. accept: names of known problems.
    noout: whether a flag keeps Ceph from replacing copies meanwhile. ha_maintenance: whether each node is in HA
    maintenance meanwhile. agents: whether guest agents that answered before must do so again. backup_window: for how
    many hours from now on no backup job may begin. resume: for how many hours a node that was
    maintained counts as done. parallel_nodes: the most nodes that are maintained at once. seconds, force: how long a
    guest may take to shut down, and whether it is stopped then.
    """

    keep_order: bool
    homes: bool
    choices: tuple[GuestChoice, ...]
    only_if: frozenset[str]
    needed: Mapping[str, Sequence[str]]
    tests_needs: bool
    accept: frozenset[str]
    noout: bool
    ha_maintenance: bool
    agents: bool
    backup_window: float
    resume: float
    parallel_nodes: int
    seconds: int | None
    force: bool

    @classmethod
    def of(cls, params: Mapping[str, t.Any]) -> TourOptions:
        """Return the options of a task. Raises InvalidRequest."""
        check_range("resume", params["resume"], 0)
        check_range("parallel_nodes", params["parallel_nodes"], 1)
        check_range("backup_window", params["backup_window"], 0)
        seconds, force = params["shutdown"].get("timeout"), bool(params["shutdown"].get("force"))
        if seconds is not None:
            check_range("shutdown.timeout", seconds, 1)
        return cls(
            keep_order=params["keep_order"],
            homes=params["homes"],
            choices=tuple(_choice(f"guests[{number}]", body) for number, body in enumerate(params["guests"])),
            only_if=frozenset(params["only_if"]),
            needed={name: _reason(name, value) for name, value in (params["needed"] or {}).items()},
            tests_needs=bool(params["only_if"]) or params["needed"] is not None,
            accept=frozenset(params["accept"]),
            noout=params["ceph_noout"],
            ha_maintenance=params["ha_maintenance"],
            agents=params["agents"],
            backup_window=params["backup_window"],
            resume=params["resume"],
            parallel_nodes=params["parallel_nodes"],
            seconds=seconds,
            force=force,
        )

    def choices_for(self, guests: Iterable[Guest]) -> tuple[dict[int, str], dict[int, str]]:
        """Return by VMID what becomes of guests that are not moved, and what becomes of those that cannot be moved."""
        stays: dict[int, str] = {}
        if_stuck: dict[int, str] = {}
        for guest in guests:
            choice = next((choice for choice in self.choices if choice.guests.covers(guest)), None)
            if choice is not None:
                (if_stuck if choice.immovable else stays)[guest.vmid] = choice.action
        return stays, if_stuck


def _reason(name: str, value: t.Any) -> list[str]:
    """Return why a node needs maintenance, by what the task says of it; nothing if it needs none. Raises
    InvalidRequest.

    Templates make texts of booleans.
    """
    text = str(value).strip()
    if value is None or text.lower() in ("", "false", "no"):
        return []
    if isinstance(value, bool) or text.lower() in ("true", "yes"):
        return [NEEDED]
    if not isinstance(value, str):
        raise InvalidRequest(f"needed: {value!r} for {name}, expected a reason as text, true or false")
    return [" ".join(text.split())]


def _choice(where: str, body: Mapping[str, t.Any]) -> GuestChoice:
    immovable = bool(body.get("immovable"))
    selects = any(body.get(key) for key in STAYS)
    guests = Exemption() if immovable and not selects else exemption_of(where, body)
    return GuestChoice(guests, body["action"], immovable)


def task_nodes(params: Mapping[str, t.Any]) -> list[str]:
    """Return the nodes of a task. Raises InvalidRequest if it concerns one, and has not exactly one."""
    names, state = list(dict.fromkeys(params["name"])), params["state"]
    if state in OF_ONE_NODE and len(names) != 1:
        raise InvalidRequest(f"name: {len(names)} nodes are given, expected one for state={state}")
    if state == FINISHED and not names:
        raise InvalidRequest(f"name: 0 nodes are given, expected one or more for state={state}")
    return names


def tour_argument_spec() -> Spec:
    """Return the options of the module."""
    return {
        **MOVING_OPTIONS,
        "name": {"type": "list", "elements": "str", "default": [], "aliases": ["node"]},
        "state": {"type": "str", "choices": list(STATES), "default": PLANNED},
        "keep_order": {"type": "bool", "default": False},
        "homes": {"type": "bool", "default": False},
        "guests": {"type": "list", "elements": "dict", "options": GUESTS, "default": []},
        "only_if": {"type": "list", "elements": "str", "choices": list(NEEDS), "default": []},
        "needed": {"type": "dict"},
        "accept": {"type": "list", "elements": "str", "default": []},
        "ceph_noout": {"type": "bool", "default": True},
        "ha_maintenance": {"type": "bool", "default": False},
        "agents": {"type": "bool", "default": False},
        "backup_window": {"type": "float", "default": 0.0},
        "resume": {"type": "float", "default": 12.0},
        "parallel_nodes": {"type": "int", "default": 1},
        "shut_down": {"type": "list", "elements": "int", "default": []},
        "may_run": {"type": "list", "elements": "int", "default": []},
        "shutdown": {
            "type": "dict",
            "default": {},
            "options": {"timeout": {"type": "int"}, "force": {"type": "bool", "default": False}},
        },
        "move_pinned": {"type": "bool", "default": False},
        "allow_hidden": {"type": "bool", "default": False},
    }
