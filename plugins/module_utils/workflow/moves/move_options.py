# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of modules that move guests: which moves are permitted, how many at once, what becomes of the plan."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ...model import GIB
from ...plans import Bounds
from ...proxmox.moves.mobility_rules import Permitted
from ...proxmox.options.values import check_range
from ..options.common import (
    LIVE_OPTIONS,
    MOVES_OPTIONS,
    PROFILE_OPTIONS,
    SEARCH_OPTIONS,
    Spec,
    search_steps,
)

REPLAN, STOP = "replan", "stop"

_LEAST = {"timeout": 1, "bwlimit": 0, "max_moves": 0, "max_transfer": 0, "cooldown": 0}


@dataclass(frozen=True, slots=True)
class Caps:
    """The most moves at a time: in total, to one node, from one node, and between two nodes in either direction."""

    cluster: int = 4
    per_node_in: int = 2
    per_node_out: int = 2
    per_link: int = 2


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """What a task says of its moves.

    timeout is in seconds, for one move; bwlimit in KiB/s, None for Proxmox's own limit. replan: whether a new plan is
    made after a failure. apply is the plan to carry out or its path, plan_file where it is kept. prove: whether a
    solver checks the plan. cooldown is how many seconds a guest that was moved is not moved to balance or to
    consolidate.
    """

    permitted: Permitted
    bounds: Bounds
    caps: Caps
    timeout: float
    bwlimit: int | None
    replan: bool
    apply: t.Any
    plan_file: str | None
    prove: bool = False
    cooldown: float = 0.0

    @classmethod
    def of(cls, params: Mapping[str, t.Any], where: str = "") -> MoveOptions:
        """Return the options of a task. Raises InvalidRequest for a number that is not possible; where stands before
        the options in its message.
        """
        for option, least in _LEAST.items():
            if params.get(option) is not None:
                check_range(f"{where}{option}", params[option], least)
        given = {key: value for key, value in (params.get("parallel") or {}).items() if value is not None}
        for key, value in given.items():
            check_range(f"{where}parallel.{key}", value, 1)
        steps, transfer = search_steps(params), params.get("max_transfer")
        return cls(
            permitted=Permitted(
                offline=params["offline"],
                restart=params["containers"] == "restart",
                restart_vms=params["vms_not_live"] == "restart",
                local_disks=params["local_disks"],
                tag_rules=params["tag_rules"] and not params.get("move_pinned"),
            ),
            bounds=Bounds(params.get("max_moves"), None if transfer is None else int(transfer * GIB), steps),
            caps=Caps(**given),
            timeout=float(params["timeout"]),
            bwlimit=params.get("bwlimit"),
            replan=params["on_failure"] == REPLAN,
            apply=params.get("apply"),
            plan_file=params.get("plan_file"),
            prove=bool(params.get("prove")),
            cooldown=float(params.get("cooldown") or 0),
        )


def room_options(params: Mapping[str, t.Any]) -> MoveOptions:
    """Return the options in C(make_room). Raises InvalidRequest."""
    of_task = {name: params[name] for name in ("tag_rules", "search_time")}
    return MoveOptions.of({**params["make_room"], **of_task, "on_failure": REPLAN}, "make_room.")


MOVING_OPTIONS: t.Final[Spec] = {
    **LIVE_OPTIONS,
    **PROFILE_OPTIONS,
    **SEARCH_OPTIONS,
    **MOVES_OPTIONS,
    "on_failure": {"type": "str", "choices": [REPLAN, STOP], "default": REPLAN},
    "plan_file": {"type": "path"},
    "apply": {"type": "raw"},
    "progress_file": {"type": "path"},
}
"""The options of every module that does nothing but move guests."""
