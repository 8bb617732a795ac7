# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuses numbers on which Ansible itself fails, before it checks the arguments of a module.

Python does not print integers of more than 4,300 digits, so Ansible can neither send them to a module nor report that
they are wrong. C(1e999999999) keeps Ansible busy for long, as it computes all of its digits.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterator, Mapping
from decimal import Decimal, DecimalException

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.texts import shorten
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.secret_options import PLACES, secret_names

DIGITS = 100
"""No option takes a number with more digits."""

SHOWN = 20
"""The number of characters of a value that an error shows."""

NUMBERS = ("int", "float")

Spec = Mapping[str, Mapping[str, t.Any]]


def check_numbers(args: Mapping[str, t.Any], spec: Spec) -> None:
    """Raise InvalidRequest when an argument, at any depth, is infinite or a number with too many digits.

    A text counts as a number if the option is one according to spec, an argument spec.
    """
    secret = secret_names(spec) | PLACES
    for where, value in _numbers(args, _by_name(spec)):
        try:
            number = Decimal(value)
        except (DecimalException, ValueError):
            # Not a number: Ansible reports it.
            continue
        if number.is_infinite() or (number.is_finite() and number.adjusted() >= DIGITS):
            shown = "the number" if secret.intersection(re.findall(r"\w+", where)) else _as_text(value, number)
            raise InvalidRequest(
                f"{where}: {shown} is not possible, expected a number of at most {DIGITS} digits",
                option=where,
            )


def _by_name(spec: Spec) -> dict[str, Mapping[str, t.Any]]:
    return {name: option for key, option in spec.items() for name in (key, *option.get("aliases", ()))}


def _numbers(args: Mapping[str, t.Any], spec: Spec, where: str = "") -> Iterator[tuple[str, t.Any]]:
    """Yield the numbers in args, each with the path of its option."""
    for key, value in args.items():
        option = spec.get(key, {})
        kind = option.get("elements") if option.get("type") == "list" else option.get("type")
        yield from _numbers_of(value, f"{where}{key}", kind, _by_name(option.get("options") or {}))


def _numbers_of(value: t.Any, where: str, kind: str | None, options: Spec) -> Iterator[tuple[str, t.Any]]:
    """Yield the numbers in an option's value, each with its own name."""
    if isinstance(value, Mapping):
        yield from _numbers(value, options, f"{where}.")
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _numbers_of(item, f"{where}[{number}]", kind, options)
    elif isinstance(value, str):
        for part in value.split(",") if kind in NUMBERS else ():
            yield where, part.strip()
    elif isinstance(value, (int, float)):
        yield where, value


def _as_text(value: t.Any, number: Decimal) -> str:
    if isinstance(value, int):
        # Python does not convert an integer with so many digits to text.
        value = "".join(map(str, number.as_tuple().digits[: SHOWN + 1]))
    return shorten(str(value), SHOWN)
