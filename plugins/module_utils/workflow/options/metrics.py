# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task states that nodes and guests used, from the monitoring of the site."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping

from ...demand import CPU, CPU_PRESSURE, IO_PRESSURE, MEMORY, MEMORY_PRESSURE, Curve, Stated
from ...errors import InvalidRequest
from ...model import MIB
from ...proxmox.options.values import invalid

METRICS = "metrics"
"""The name of the option."""

_RESOURCES = {
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


def stated_metrics(params: Mapping[str, t.Any]) -> Stated:
    """Return what the options state that nodes and guests used: metrics, which may also be given within balance.

    Raises InvalidRequest, which names the value.
    """
    within = (params.get("balance") or {}).get(METRICS)
    where, metrics = (METRICS, params.get(METRICS) or {}) if within is None else (f"balance.{METRICS}", within)
    return Stated(*(_each_of(metrics.get(kind) or {}, f"{where}.{kind}") for kind in ("nodes", "guests")))


def _each_of(entries: Mapping[t.Any, t.Any], where: str) -> dict[str, dict[str, Curve]]:
    found: dict[str, dict[str, Curve]] = {}
    for name, values in entries.items():
        if not isinstance(values, Mapping):
            raise invalid(f"{where}.{name}", values, f"a mapping with {', '.join(_RESOURCES)}")
        unknown = sorted(str(key) for key in values if key not in _RESOURCES)
        if unknown:
            raise InvalidRequest(f"{where}.{name}.{unknown[0]}: is not possible, expected {', '.join(_RESOURCES)}")
        curves = {_RESOURCES[key]: _values_of(value, key, f"{where}.{name}.{key}") for key, value in values.items()}
        # What the site's monitoring does not know is not zero.
        known = {resource: curve for resource, curve in curves.items() if any(value is not None for value in curve)}
        if known:
            found[str(name)] = known
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
