# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a task that concern all of its VMs together: how the run goes, and what its result shows."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import InvalidRequest
from ...proxmox.options.values import check_range
from ..existing.plan import Shutdown
from .common import SKIP, search_steps

if t.TYPE_CHECKING:
    from ..moves.move_options import MoveOptions

LEAST = {"decision_nodes": 0, "parallel_creates": 1, "timeout": 1, "wait_for_capacity": 0}
"""Minimum values of numeric options."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a task says of its run. All durations are in seconds.

    Attributes:
        all_or_nothing: whether one VM that fails holds the others back.
        parallel: how many VMs are created or changed at a time.
        timeout: for one task of Proxmox VE.
        wait_for_capacity: for VMs that fit nowhere; 0 does not wait.
        shutdown: how VMs are stopped.
        respects_locks: whether a locked or protected VM fails; a run that only compares tells what differs of it, too.
        steps: the limit of a search for places; None for the default.
        room: how guests may be moved to make room; None for not at all.
        apply: the plan to carry out, or its path; plan_file is where a new plan is kept.
        progress_file: where the progress is written.
        skip_unreachable: whether clusters that do not answer are left out.
        many: whether the VMs are a list.
        decision_nodes: of how many VMs the result has the verdicts on all nodes.
        node_guests: whether the result lists the guests of each node.
    """

    all_or_nothing: bool = True
    parallel: int = 4
    timeout: float = 600.0
    wait_for_capacity: float = 0.0
    shutdown: Shutdown = field(default_factory=Shutdown)
    respects_locks: bool = True
    steps: int | None = None
    room: MoveOptions | None = None
    apply: t.Any = None
    plan_file: str | None = None
    progress_file: str | None = None
    skip_unreachable: bool = False
    many: bool = False
    decision_nodes: int = 0
    node_guests: bool = False

    @classmethod
    def of(cls, params: Mapping[str, t.Any]) -> RunOptions:
        """Return the options of a qemu_schedule task. Raises InvalidRequest."""
        for option, least in LEAST.items():
            check_range(option, params[option], least)
        seconds = params["shutdown_timeout"]
        if seconds is not None:
            check_range("shutdown_timeout", seconds, 0)
        if seconds == 0 and not params["force"]:
            raise InvalidRequest(
                "shutdown_timeout: 0 stops a VM at once, expected force=true with it, or a number above 0"
            )
        return cls(
            # A plan that is carried out only in part is a different plan.
            all_or_nothing=params["all_or_nothing"] or params["apply"] is not None,
            parallel=params["parallel_creates"],
            timeout=float(params["timeout"]),
            wait_for_capacity=float(params["wait_for_capacity"]),
            shutdown=Shutdown(seconds, force=params["force"]),
            steps=search_steps(params),
            room=None if params.get("make_room") is None else _room(params),
            apply=params["apply"],
            plan_file=params["plan_file"],
            progress_file=params.get("progress_file") or None,
            skip_unreachable=params.get("when_unreachable") == SKIP,
            many=params.get("vms") is not None,
            decision_nodes=params["decision_nodes"],
            node_guests=params["node_guests"],
        )

    @classmethod
    def to_compare(cls, params: Mapping[str, t.Any]) -> RunOptions:
        """Return the options of a run that only compares the VMs with the cluster."""
        skip = params.get("when_unreachable") == SKIP
        return cls(all_or_nothing=False, parallel=8, respects_locks=False, skip_unreachable=skip)


def _room(params: Mapping[str, t.Any]) -> MoveOptions:
    from ..moves.move_options import room_options

    return room_options(params)
