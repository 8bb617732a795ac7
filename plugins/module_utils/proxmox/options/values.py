# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values as users and Proxmox write them: single ones, addresses, and mappings with a key for each.

They are parsed, checked, written and compared. A mistake is an error that names the option, the value and what was
expected.
"""

from __future__ import annotations

import ipaddress
import re
import typing as t
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, localcontext

from ...engine.patterns.names import compile_option_pattern
from ...engine.texts import hint, number_text, shorten
from ...errors import InvalidRequest
from ...model import GIB

_TRUE = frozenset({"1", "on", "yes", "true"})
_FALSE = frozenset({"0", "off", "no", "false"})
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,30})?")
SIZES = "a size in GiB, or with a unit: 32, 0.5, 512M, 32G, 1T"
"""What the size of a drive may be, for errors."""

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
        f"{option}: {shorten(repr(value))} is not valid, expected {expected}",
        option=option,
        value=shorten(str(value)),
        expected=expected,
    )


MOST = 1_000_000_000
"""The largest number of anything: larger ones could not be computed with."""


def check_range(option: str, value: float, least: float, most: float = MOST) -> None:
    """Raise InvalidRequest unless a number is from least to most."""
    if not least <= value <= most:
        raise InvalidRequest(f"{option}: {number_text(value)} is not possible, expected {least} to {most}")


def check_length(option: str, text: str, longest: int) -> None:
    """Raise InvalidRequest if a text is longer than Proxmox takes it, counted in characters."""
    if len(text) > longest:
        raise invalid(option, text, f"at most {longest} characters, and it has {len(text)}")


def check_seconds(option: str, value: float) -> None:
    """Raise InvalidRequest unless a duration is above 0 and not too long to wait for."""
    if not 0 < value <= MOST:
        expected = f"a number of seconds above 0 and at most {MOST}"
        raise InvalidRequest(f"{option}: {number_text(value)} is not possible, expected {expected}")


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
        raise invalid(option, value, SIZES)
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


Interface: t.TypeAlias = "ipaddress.IPv4Interface | ipaddress.IPv6Interface"
Address: t.TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"

_CARD = re.compile(r"(?:ipconfig|net)(\d{1,9})")
_WITH_ADDRESS = ("ip", "ip6")


def static_addresses(config: Mapping[str, t.Any]) -> list[Interface]:
    """Return the static addresses of a guest with their prefixes, in the order of the cards, IPv4 before IPv6.

    C(dhcp), C(auto), C(manual), invalid values and addresses with a scope, which may be any text, are left out.
    """
    cards = sorted((int(found[1]), str(value)) for key, value in config.items() if (found := _CARD.fullmatch(key)))
    return [address for _number, text in cards for address in addresses_of_card(text)]


def gateways_of(config: Mapping[str, t.Any]) -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Return the gateways and name servers in a guest's config. Invalid values are left out."""
    words = str(config.get("nameserver") or "").replace(",", " ").split()
    for key, value in config.items():
        if _CARD.fullmatch(key):
            properties = dict(part.strip().partition("=")[::2] for part in str(value).split(","))
            words += [properties[key] for key in ("gw", "gw6") if key in properties]
    found = set()
    for word in words:
        with suppress(ValueError):
            found.add(ipaddress.ip_address(word))
    return found


def addresses_of_card(text: str) -> list[Interface]:
    """Return the static addresses in one property string, such as C(ip=192.0.2.10/24,gw=192.0.2.1)."""
    properties = dict(part.partition("=")[::2] for part in text.split(","))
    found = []
    for key in _WITH_ADDRESS:
        text = properties.get(key, "").strip()
        try:
            if "%" not in text:
                found.append(ipaddress.ip_interface(text))
        except ValueError:
            continue
    return found


# --- mappings ---


class Fields:
    """One mapping that a user wrote.

    None counts as not given, as Ansible fills in None for every suboption. All methods raise InvalidRequest.
    """

    def __init__(self, where: str, body: t.Any, known: Collection[str]) -> None:
        """where is how the option is called in messages (C(vms[1].affinity[0])); known are the keys it may have."""
        if not isinstance(body, Mapping):
            raise invalid(where, body, "a mapping")
        unknown = sorted(str(key) for key in body if key not in known)
        if unknown:
            raise InvalidRequest(
                f"{where}: unknown key {unknown[0]!r}; known keys: {', '.join(sorted(known))}{hint(known, unknown[0])}"
            )
        self.where = where
        self.body = body

    def __contains__(self, key: str) -> bool:
        return self.body.get(key) is not None

    def path(self, key: str) -> str:
        return f"{self.where}.{key}"

    def text(self, key: str) -> str | None:
        """Return a text that is not empty, or None."""
        return text_of(self.path(key), self.body[key]) if key in self else None

    def require_text(self, key: str, expected: str = "a text") -> str:
        """Return a text that is required and not empty."""
        found = self.text(key)
        if found is None:
            raise InvalidRequest(f"{self.path(key)}: is missing, expected {expected}")
        return found

    def choice(self, key: str, choices: Sequence[str], default: str | None = None) -> str:
        """Return one of choices; it must be given when there is no default."""
        expected = f"one of {', '.join(choices)}"
        found = self.require_text(key, expected) if default is None else self.text(key) or default
        if found not in choices:
            raise invalid(self.path(key), found, expected + hint(choices, found))
        return found

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean. Raises InvalidRequest."""
        if key not in self:
            return default
        found = boolean(self.body[key])
        if found is None:
            raise invalid(self.path(key), self.body[key], "true or false")
        return found

    def whole(self, key: str, minimum: int, maximum: int | None = None, default: int = 1) -> int:
        """Return a whole number within bounds."""
        if key not in self:
            return default
        return whole_of(self.path(key), self.body[key], minimum, maximum)

    def number(self, key: str, minimum: float = 0.0) -> float | None:
        """Return a number of at least minimum, or None."""
        return float(number(self.path(key), self.body[key], minimum)) if key in self else None

    def pattern(self, key: str) -> str | None:
        """Return a regular expression, or None."""
        found = self.text(key)
        if found is not None:
            compile_option_pattern(self.path(key), found)
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(text_of(where, item) for where, item in items_of(self.path(key), self.body.get(key)))

    def maps(self, key: str, known: Collection[str]) -> Iterator[Fields]:
        """Yield the entries of a list of mappings."""
        for where, item in items_of(self.path(key), self.body.get(key)):
            yield Fields(where, item, known)


def items_of(where: str, value: t.Any) -> Iterator[tuple[str, t.Any]]:
    """Yield each item of a list with its own name; nothing for None."""
    if value is None:
        return
    if not isinstance(value, (list, tuple)):
        raise invalid(where, value, "a list")
    for position, item in enumerate(value):
        yield f"{where}[{position}]", item


def text_of(where: str, value: t.Any) -> str:
    """Return a text that is not empty. Numbers and booleans become text as Ansible converts them elsewhere (C(yes)
    becomes C(True)), so that the same word in two options gives the same text.
    """
    if not isinstance(value, (str, int, float)) or value == "":
        raise invalid(where, value, "a text")
    return str(value)


def whole_of(where: str, value: t.Any, minimum: int, maximum: int | None = None) -> int:
    """Return a whole number within bounds."""
    return int(number(where, value, minimum, maximum, whole=True))
