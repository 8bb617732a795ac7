# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random changes to data as JSON has it: types, nulls, lengths, Unicode, order, duplicates, rows of unknown types."""

from __future__ import annotations

import copy
import random
import typing as t
from collections.abc import Callable, Iterator

Place = tuple[t.Any, ...]


def nested(depth: int) -> t.Any:
    """Return a list in a list, and so on."""
    value: t.Any = 1
    for _level in range(depth):
        value = [value]
    return value


VALUES: list[t.Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**62, 10**400, 1.5, 1e300, float("nan"), float("inf")),
    *("", " ", "x", "-1", "1.5", "9" * 5000, "1e999", "nan", "\ud800", "\0", "²", "ä\u202e\u0301", "VM 104"),
    *("a=b,,c", "=", ":", ",", "%s{}{{ 1 }}", "(", "[a-z]*+", "../x", "none"),
    "x" * 9999,
    *([], {}, [None], [[]], [1, "a"], {"a": None}, {"": 1}, {"data": None}, {"type": []}, nested(40)),
]
"""What stands in for any value."""


def places(value: t.Any, place: Place = ()) -> Iterator[Place]:
    """Yield where a value can be changed: it as a whole, and everything in it."""
    yield place
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*place, index))


def changed(value: dict[str, t.Any], rng: random.Random, times: int) -> dict[str, t.Any]:
    """Return a copy of a mapping with so many changes to what is in it; the mapping itself stays one."""
    value = copy.deepcopy(value)
    for _change in range(times):
        found = [place for place in places(value) if place]
        if found:
            # Most places are deep in long lists: choose among the few high up as often.
            depth = rng.randint(1, max(map(len, found)))
            place = rng.choice([place for place in found if len(place) <= depth])
            _change_at(value, place, rng)
    return value


def _change_at(value: t.Any, place: Place, rng: random.Random) -> None:
    holder = value
    for key in place[:-1]:
        holder = holder[key]
    key, item = place[-1], holder[place[-1]]
    possible: list[Callable[[], None]] = [
        lambda: holder.__setitem__(key, copy.deepcopy(rng.choice(VALUES))),
        lambda: holder.__delitem__(key),
    ]
    if isinstance(item, list):
        possible += [
            lambda: rng.shuffle(item),
            lambda: item.extend(copy.deepcopy(item)),
            lambda: item.append(copy.deepcopy(rng.choice(VALUES))),
            lambda: item.insert(0, {"type": rng.choice(VALUES), "node": "pve1", "id": "new/1"}),
        ]
    if isinstance(item, dict):
        possible += [
            lambda: item.update({str(rng.choice(VALUES)): copy.deepcopy(rng.choice(VALUES))}),
            lambda: item.update({name: item[other] for name, other in zip(item, reversed(list(item)), strict=True)}),
        ]
    if isinstance(item, (list, str)):
        possible += [lambda: holder.__setitem__(key, item[: len(item) // 2])]
    if isinstance(item, str):
        possible += [
            lambda: holder.__setitem__(key, item + rng.choice([value for value in VALUES if isinstance(value, str)])),
            lambda: holder.__setitem__(key, item.swapcase()),
        ]
    if isinstance(item, (int, float)):
        possible += [
            lambda: holder.__setitem__(key, -item),
            lambda: holder.__setitem__(key, str(item)),
            lambda: holder.__setitem__(key, item + rng.choice([0.5 if abs(item) < 1e300 else 0, 1, 10**9])),
        ]
    rng.choice(possible)()


def changed_bytes(content: bytes, rng: random.Random) -> bytes:
    """Return what a file holds after a disk ran full, an editor went wrong, or two processes wrote."""
    start, stop = sorted(rng.choices(range(len(content) + 1), k=2))
    return rng.choice(
        [
            content[:start],
            content[:start] + content[stop:],
            content[:start] + content[start:stop] * 2 + content[stop:],
            content[:start] + rng.randbytes(rng.randint(1, 8)) + content[start:],
            content.replace(b'"', b"", rng.randint(1, 3)),
            b"[" * 100_000 + content,
            b"",
        ]
    )
