# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task says of how nodes are balanced, and the view of what they use as a result."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping
from dataclasses import replace

from ...demand import ALLOCATED, CPU, CPU_PRESSURE, IO_PRESSURE, MEMORY, MEMORY_PRESSURE, PRESSURE, USED, Curve, Stated
from ...errors import InvalidRequest
from ...model import MIB
from ...plans import Balance, Plan
from ...proxmox.inventory.usage import WEEK
from ...proxmox.options.values import check_range, invalid
from ..options.common import Spec

DEFAULTS: Mapping[str, Mapping[str, float]] = {
    ALLOCATED: {},
    USED: {"threshold": 0.1, "margin": 0.05, "above": 0.5},
    PRESSURE: {"margin": 0.05, "above": 0.1},
}
"""What differs from the defaults of Balance, by what nodes are balanced by."""

EITHER = ("threshold", "margin", "cooldown")
"""What may be given as an option of the task, or within balance."""

METRICS = {
    "cpu": CPU,
    "memory": MEMORY,
    "cpu_pressure": CPU_PRESSURE,
    "io_pressure": IO_PRESSURE,
    "memory_pressure": MEMORY_PRESSURE,
}
"""The resources of which metrics may be given."""

LARGEST = 1e15
"""The largest number that metrics may have."""

LARGEST_FRACTION = 2
"""The largest fraction that metrics may have. Rounding makes them larger than 1; what is larger is a percentage."""

_RANGES: Mapping[str, tuple[float, float]] = {
    "threshold": (0, 1),
    "margin": (0, 1),
    "above": (0, 1),
    "percentile": (1, 100),
    "window": (600, WEEK),
    "hold": (0, WEEK),
}
_OF_USE = ("percentile", "window", "hold", "above", "metrics")


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
        "metrics": {"type": "dict", "options": {"nodes": {"type": "dict"}, "guests": {"type": "dict"}}},
    }


def settings_of(params: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What is given, within balance or beside it. Raises InvalidRequest for what is given twice."""
    within = {key: value for key, value in (params.get("balance") or {}).items() if value is not None}
    beside = {key: params[key] for key in EITHER if params.get(key) is not None}
    twice = sorted(within.keys() & beside.keys())
    if twice:
        raise InvalidRequest(f"balance.{twice[0]}: is also given as {twice[0]}, expected one of them")
    return {**beside, **within}


def balance_of(params: Mapping[str, t.Any]) -> Balance:
    """How nodes are balanced. Raises InvalidRequest."""
    within = params.get("balance") or {}
    given = settings_of(params)
    by = given.get("by", ALLOCATED)
    given.pop("cooldown", None)
    for key, (least, most) in _RANGES.items():
        if key in given:
            check_range(f"balance.{key}" if within.get(key) is not None else key, given[key], least, most)
    useless = sorted(key for key in _OF_USE if key in given and by == ALLOCATED)
    if useless:
        raise InvalidRequest(
            f"balance.{useless[0]}: has no effect with by: {ALLOCATED}, expected by: {USED} or {PRESSURE}"
        )
    metrics = given.pop("metrics", None)
    settings = Balance(**{**DEFAULTS[by], **given}, stated=None if metrics is None else parse_stated(metrics))
    if "hold" not in given:
        settings = replace(settings, hold=min(settings.hold, settings.window))
    if settings.hold > settings.window:
        raise InvalidRequest(f"balance.hold: {settings.hold:g} is more than the window of {settings.window:g} seconds")
    return settings


def parse_stated(metrics: Mapping[str, t.Any]) -> Stated:
    """What metrics state. Raises InvalidRequest, which names the value."""
    return Stated(*(_each_of(metrics.get(kind) or {}, f"balance.metrics.{kind}") for kind in ("nodes", "guests")))


def _each_of(entries: Mapping[t.Any, t.Any], where: str) -> dict[str, dict[str, Curve]]:
    found: dict[str, dict[str, Curve]] = {}
    for name, values in entries.items():
        if not isinstance(values, Mapping):
            raise invalid(f"{where}.{name}", values, f"a mapping with {', '.join(METRICS)}")
        unknown = sorted(str(key) for key in values if key not in METRICS)
        if unknown:
            raise InvalidRequest(f"{where}.{name}.{unknown[0]}: is not possible, expected {', '.join(METRICS)}")
        found[str(name)] = {
            METRICS[key]: _values_of(value, key, f"{where}.{name}.{key}") for key, value in values.items()
        }
    return found


def _values_of(value: t.Any, key: str, where: str) -> Curve:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise invalid(where, value, "a number, or a list of numbers")
    factor = MIB if key == "memory" else 1
    numbers = (
        _number_of(f"{where}[{index}]" if isinstance(value, list) else where, each, key)
        for index, each in enumerate(values)
    )
    return tuple(None if each is None else each * factor for each in numbers)


def _number_of(where: str, value: t.Any, key: str) -> float | None:
    """Return a number as monitoring has it: also as text, with an exponent; None for NaN, which is no value."""
    if value is None:
        return None
    try:
        found = math.inf if isinstance(value, bool) or not isinstance(value, (int, float, str)) else float(value)
    except (ValueError, OverflowError):
        found = math.inf
    if math.isnan(found):
        return None
    if not 0 <= found <= LARGEST:
        raise invalid(where, value, "a number of at least 0")
    if key != "memory" and found > LARGEST_FRACTION:
        raise invalid(where, value, "a fraction from 0 to 1, not a percentage")
    return found


def usage_of(plan: Plan, wanted: Balance | None) -> dict[str, t.Any]:
    """What nodes use, for the result of a task."""
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
