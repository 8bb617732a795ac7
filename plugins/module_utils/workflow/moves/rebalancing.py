# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves guests so that the cluster is as rules, limits and the user want it: repaired, balanced, or consolidated."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

from ...errors import InvalidRequest
from ...plans import Goals
from ..access import Access
from ..options.plugin_config import profiles_of
from ..options.rules import facts_of
from .balancing import balance_of, settings_of, usage_of
from .move_options import MoveOptions
from .moving import move_progress
from .plan_run import PlanRun
from .results import failure_of, failure_with, result_of
from .sight import live_look

REPAIR, BALANCE, CONSOLIDATE = "repair", "balance", "consolidate"

COOLDOWN = 3600
"""The default seconds for which a guest that was moved rests."""


def rebalance(params: Mapping[str, t.Any], *, check_mode: bool, warn: Callable[[str], None]) -> dict[str, t.Any]:
    """Do what a cluster_rebalance task says, and return the module's result. warn takes texts for the user.

    Raises RunFailed with the result when rules stay broken or moves failed, and other CollectionErrors when nothing was
    moved.
    """
    options = MoveOptions.of({**params, "cooldown": settings_of(params).get("cooldown", COOLDOWN)})
    goals = goals_of(params)
    profiles, default = profiles_of(params)
    progress = move_progress(params.get("progress_file"))
    access = Access.open(params, facts_of(params.get("nodes")))
    try:
        look = live_look(access, lambda snapshot: goals)
        run = PlanRun(access, profiles, default, options, look, progress=progress)
        outcome = run.prepare(wait=not check_mode)
        if not check_mode:
            run.execute()
    finally:
        access.close()
    for text in outcome.warnings:
        warn(text)
    result = result_of(outcome, wrote=not check_mode)
    result["usage"] = usage_of(outcome.plan, goals.balance)
    error = failure_of(outcome, "not all that is broken can be repaired" if goals.repair else None)
    if error is not None:
        raise failure_with(error, result)
    return result


def goals_of(params: Mapping[str, t.Any]) -> Goals:
    """Return the goals that the options state. Raises InvalidRequest when there is none, or two contradict each other.
    """
    wanted = set(params["goals"]) | ({BALANCE} if params.get("balance") is not None else set())
    if not wanted:
        raise InvalidRequest(f"goals: is empty, expected one or more of {REPAIR}, {BALANCE} and {CONSOLIDATE}")
    if {BALANCE, CONSOLIDATE} <= wanted:
        raise InvalidRequest(f"goals: {BALANCE} and {CONSOLIDATE} contradict each other, expected one of them")
    return Goals(
        repair=REPAIR in wanted,
        balance=balance_of(params) if BALANCE in wanted else None,
        consolidate=CONSOLIDATE in wanted,
    )
