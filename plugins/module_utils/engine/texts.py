# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text helpers for messages, and numbers that are texts."""

from __future__ import annotations

import datetime
import re
import typing as t
from collections.abc import Iterable, Mapping, Sequence

if t.TYPE_CHECKING:
    import difflib

_LIKE = 0.6
"""The similarity, from 0 to 1, from which a name may be a misspelling of another."""

NAMES_TOLD = 10
"""How many existing names a message lists."""


NAMED_KINDS = {
    "dir": "directory mapping",
    "pci": "PCI mapping",
    "usb": "USB mapping",
    "pci-device": "PCI device",
    "usb-device": "USB device",
    "snippet": "snippet",
    "storage": "storage",
}
"""How messages call what the options of a VM name, by kind."""


def known_names(names: Iterable[str], wanted: str) -> str:
    """Return the existing names, for a message about a name that does not exist: all in order, or the most similar ones
    if there are many.

    The text ends with the name that may be meant, if there is one.
    """
    there = sorted(set(names))
    text = ", ".join(there) or "none"
    if len(there) > NAMES_TOLD:
        ordered = sorted(there, key=lambda name: -_matcher(wanted, name).ratio())
        text = f"{', '.join(ordered[:NAMES_TOLD])} and {len(there) - NAMES_TOLD} more"
    return text if len(there) == 1 else text + hint(there, wanted)


def hint(names: Iterable[str], wanted: str) -> str:
    """Return the end of a message about a name that does not exist: the name that may be meant, or nothing."""
    meant = alike(names, wanted)
    return "" if meant is None else f"; did you mean {meant}?"


def alike(names: Iterable[str], wanted: str) -> str | None:
    """Return the name that is most like one that there is not, None when none is like it, or several are equally so."""
    matcher = _matcher("", wanted.casefold())
    likeness = []
    for name in names:
        matcher.set_seq1(name.casefold())
        likeness.append((matcher.ratio(), name))
    likeness.sort(reverse=True)
    best = likeness[0][0] if likeness else 0.0
    clear = len(likeness) < 2 or best > likeness[1][0]
    return likeness[0][1] if clear and best >= _LIKE else None


def join_words(items: Sequence[str]) -> str:
    """Return the words as C(a), C(a and b), or C(a, b and c)."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def of_one(reason: str) -> str:
    """Return the reason of a rejection in the singular; rejections are worded for several nodes."""
    return re.sub(r"^were(?= |n't )", "was", reason)


def first(items: Sequence[str], most: int) -> list[str]:
    """Return the items, or when there are more than most, the first of them and how many more there are."""
    return list(items) if len(items) <= most else [*items[:most], f"{len(items) - most} more"]


def shorten(text: str, most: int = 100) -> str:
    """Return a text of any length for a message: its first characters if there are more than most."""
    return text if len(text) <= most else f"{text[:most]}..."


def whole_number(text: object, digits: int = 18) -> int | None:
    """Return the number that a text of at most so many ASCII digits is, else None: Python refuses to read the longest
    ones.
    """
    written = str(text)
    return int(written) if written.isascii() and written.isdecimal() and len(written) <= digits else None


def number_text(value: float) -> str:
    """Return a number of any size for a message: Python refuses to write the largest ones."""
    if not abs(value) < 1e15:
        return "a number of more than 15 digits"
    return f"{value:g}" if isinstance(value, float) else str(value)


def vcpus(amount: float) -> str:
    """Return a number of vCPUs with its unit."""
    return f"{amount:g} vCPU{'' if amount == 1 else 's'}"


def _matcher(first: str, second: str) -> difflib.SequenceMatcher[str]:
    """Return what compares two texts. Only messages need difflib, so it is imported late."""
    import difflib

    return difflib.SequenceMatcher(None, first, second)


def kind_of(value: t.Any) -> str:
    """Return what a value is, in words of YAML."""
    kinds: dict[type | tuple[type, ...], str] = {
        str: "a text",
        (list, tuple): "a list",
        Mapping: "a mapping",
        bool: "a boolean",
        (int, float): "a number",
        datetime.date: "a date",
        bytes: "binary data",
        type(None): "nothing",
    }
    return next(
        (text for kind, text in kinds.items() if isinstance(value, kind)), f"a value of type {type(value).__name__}"
    )
