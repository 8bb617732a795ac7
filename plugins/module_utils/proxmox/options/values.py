# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses and formats single values as users and Proxmox write them: booleans, numbers and sizes."""

from __future__ import annotations

import re
import typing as t
from decimal import Decimal, localcontext

from ...engine.texts import shortened
from ...errors import InvalidRequest
from ...model import GIB

_TRUE = frozenset({"1", "on", "yes", "true"})
_FALSE = frozenset({"0", "off", "no", "false"})
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,30})?")
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,30})?)([KMGT]?)")
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": GIB, "T": 1024**4}


class Secret(str):
    """A secret text for Proxmox. Its repr, as in a traceback or a mapping, shows asterisks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'********'"


def invalid(option: str, value: t.Any, expected: str) -> InvalidRequest:
    """Return the error for an option with an invalid value."""
    return InvalidRequest(
        f"{option}: {shortened(repr(value))} is not valid, expected {expected}",
        option=option,
        value=shortened(str(value)),
        expected=expected,
    )


def such_as(example: str) -> str:
    """Return the end of a text about what is expected: the example, if there is one."""
    return f", such as {example}" if example else ""


def boolean(value: t.Any) -> bool | None:
    """Return the boolean for any spelling that Proxmox or Ansible knows, None for other values."""
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    return False if text in _FALSE else None


def number(
    option: str, value: t.Any, minimum: float | None = None, maximum: float | None = None, *, whole: bool = False
) -> str:
    """Return a number in its normal form, without exponent and trailing zeros. Raises InvalidRequest."""
    expected = "a whole number" if whole else "a number"
    if minimum is not None and maximum is not None:
        expected += f" from {minimum} to {maximum}"
    elif minimum is not None:
        expected += f" of at least {minimum}"
    text = str(value).strip()
    if not _NUMBER.fullmatch(text):
        raise invalid(option, value, expected)
    parsed = Decimal(text)
    if (
        (whole and parsed != parsed.to_integral_value())
        or (minimum is not None and parsed < Decimal(str(minimum)))
        or (maximum is not None and parsed > Decimal(str(maximum)))
    ):
        raise invalid(option, value, expected)
    return plain(parsed)


def plain(value: Decimal) -> str:
    """Return a number without exponent and without trailing zeros."""
    text = f"{value:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


def size_in_gib(option: str, value: t.Any) -> int:
    """Return bytes for a size as users give it: a number of GiB, or a text with a unit (C(512M), C(32G), C(1T))."""
    found = _SIZE.fullmatch(str(value).strip().upper())
    if found is None:
        raise invalid(option, value, "a size in GiB, or with a unit: 32, 0.5, 512M, 32G, 1T")
    return int(Decimal(found[1]) * (_UNITS[found[2]] if found[2] else GIB))


def size_in_config(text: str) -> int | None:
    """Return bytes for a size as a VM's config shows it (C(32G), C(528K), or plain bytes); None for other texts."""
    found = _SIZE.fullmatch(text.strip())
    return int(Decimal(found[1]) * _UNITS[found[2]]) if found else None


def format_gib(size: int) -> str:
    """Return bytes as the number of GiB that C(storage:GiB) takes, exactly."""
    with localcontext() as context:
        context.prec = 60
        return plain(Decimal(size) / GIB)


def format_size(size: int) -> str:
    """Return bytes in the largest unit that divides them, as Proxmox writes sizes into a config."""
    for unit in "TGMK":
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return str(size)
