# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task says of how nodes are balanced, and the view of what they use as a result."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import replace

from ...demand import ALLOCATED, PRESSURE, USED
from ...errors import InvalidRequest
from ...plans import Balance, Plan
from ...proxmox.inventory.usage import WEEK
from ...proxmox.options.values import check_range
from ..options.common import METRICS_OPTIONS, Spec
from ..options.metrics import METRICS

DEFAULTS: Mapping[str, Mapping[str, float]] = {
    ALLOCATED: {},
    USED: {"threshold": 0.1, "margin": 0.05, "above": 0.5},
    PRESSURE: {"margin": 0.05, "above": 0.1},
}
"""What differs from the defaults of Balance, by what nodes are balanced by."""

EITHER = ("threshold", "margin", "cooldown", METRICS)
"""What may be given as an option of the task, or within balance."""

_RANGES: Mapping[str, tuple[float, float]] = {
    "threshold": (0, 1),
    "margin": (0, 1),
    "above": (0, 1),
    "percentile": (1, 100),
    "window": (600, WEEK),
    "hold": (0, WEEK),
}
_OF_USE = ("percentile", "window", "hold", "above")


def balance_spec() -> Spec:
    """Return the suboptions of balance."""
    return {
        "by": {"type": "str", "choices": [ALLOCATED, USED, PRESSURE], "default": ALLOCATED},
        "threshold": {"type": "float"},
        "margin": {"type": "float"},
        "cooldown": {"type": "int"},
        "percentile": {"type": "float"},
        "window": {"type": "int"},
        "hold": {"type": "int"},
        "above": {"type": "float"},
        **METRICS_OPTIONS,
    }


def settings_of(params: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the settings that the task sets, whether in balance or at the top level. Raises InvalidRequest if one is
    set in both.
    """
    within = {key: value for key, value in (params.get("balance") or {}).items() if value is not None}
    beside = {key: params[key] for key in EITHER if params.get(key) is not None}
    twice = sorted(within.keys() & beside.keys())
    if twice:
        raise InvalidRequest(f"balance.{twice[0]}: is also given as {twice[0]}, expected one of them")
    return {**beside, **within}


def balance_of(params: Mapping[str, t.Any]) -> Balance:
    """Return how nodes are balanced. Raises InvalidRequest."""
    within = params.get("balance") or {}
    given = settings_of(params)
    by = given.get("by", ALLOCATED)
    for elsewhere in ("cooldown", METRICS):
        given.pop(elsewhere, None)
    for key, (least, most) in _RANGES.items():
        if key in given:
            check_range(f"balance.{key}" if within.get(key) is not None else key, given[key], least, most)
    of_use = [key for key in _OF_USE if key in given] + [METRICS] * bool(within.get(METRICS))
    useless = sorted(of_use) if by == ALLOCATED else []
    if useless:
        raise InvalidRequest(
            f"balance.{useless[0]}: has no effect with by: {ALLOCATED}, expected by: {USED} or {PRESSURE}"
        )
    settings = Balance(**{**DEFAULTS[by], **given})
    if "hold" not in given:
        settings = replace(settings, hold=min(settings.hold, settings.window))
    if settings.hold > settings.window:
        raise InvalidRequest(
            f"balance.hold: {settings.hold:g} is more than the window, expected at most {settings.window:g} seconds"
        )
    return settings


def usage_of(plan: Plan, wanted: Balance | None) -> dict[str, t.Any]:
    """Return what nodes use, for the result of a task."""
    if wanted is None or wanted.by == ALLOCATED:
        return {}
    nodes = {
        name: {
            resource.replace(" ", "_"): {
                "before": round(load.before, 4),
                "peak": round(load.peak, 4),
                "after": round(load.after, 4),
                "curve": [None if value is None else round(value, 4) for value in load.curve],
            }
            for resource, load in loads.items()
        }
        for name, loads in plan.used.items()
    }
    return {
        "by": wanted.by,
        "percentile": wanted.percentile,
        "window": wanted.window,
        "nodes": nodes,
        "waits": list(plan.waits),
    }
