# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The secrets in the options of a task, whatever their shape is. Ansible finds only those that are in their places."""

from __future__ import annotations

import json
import re
import typing as t
from collections.abc import Callable, Iterable, Iterator, Mapping

from .reservations.opening import passwords_in

Spec = Mapping[str, Mapping[str, t.Any]]

_OF_ANY_MODULE = ("api_password", "api_token_secret", "cipassword")

_USER_INFO = re.compile(r"(?:.*//)?(.*)@", re.DOTALL)
_VALUE = r"""(?:"([^"]+)|'([^']+)|([^\s,;}\]]+))"""
"""A value in YAML, or after an equals sign."""

_TOKEN = re.compile(r"(?:[^\s:/!,;=]+@[\w.-]+!)?[A-Za-z][\w.-]*")
_USER = re.compile(r"[^\s:/!,;]+@[\w.-]+")
_SECRET = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
"""The form of the secrets that Proxmox makes."""


def secret_names(spec: Spec) -> frozenset[str]:
    """Return the names of all options that are secret, of any depth, and of those that other modules have."""
    names = set(_OF_ANY_MODULE)
    for name, option in spec.items():
        if option.get("no_log"):
            names |= {name, *option.get("aliases", ())}
        names |= secret_names(option.get("options") or {})
    return frozenset(names)


def secrets_in(given: t.Any, names: frozenset[str]) -> Iterator[str]:
    """Yield the secrets in options of any shape: what stands at one of the names, and in options of the connection."""
    if isinstance(given, Mapping):
        for name, value in given.items():
            if name in names:
                yield from _texts(value)
                continue
            if name in _PARTS:
                yield from (part for text in _texts(value) for part in _PARTS[name](text))
            yield from secrets_in(value, names)
    elif isinstance(given, (list, tuple)):
        for each in given:
            yield from secrets_in(each, names)
    elif isinstance(given, str):
        yield from _in_text(given, names)


def misshapen(given: t.Any, names: frozenset[str]) -> str | None:
    """Return the name of a secret option that is no text or number, at any depth; None if there is none."""
    if isinstance(given, Mapping):
        for name, value in given.items():
            if name in names and isinstance(value, (Mapping, list, tuple)):
                return str(name)
    inner = given.values() if isinstance(given, Mapping) else given if isinstance(given, (list, tuple)) else ()
    return next((found for each in inner if (found := misshapen(each, names)) is not None), None)


def _in_text(text: str, names: frozenset[str]) -> Iterator[str]:
    """Yield the secrets in a text that stands for a mapping: in JSON, YAML, or as C(key=value)."""
    if not any(name in text for name in names):
        return
    try:
        yield from secrets_in(json.loads(text), names)
    except (ValueError, RecursionError):
        name = "|".join(map(re.escape, sorted(names)))
        for found in re.finditer(rf"""(?:{name})["']?\s*[=:]\s*{_VALUE}""", text):
            yield from filter(None, found.groups())


def _texts(value: t.Any) -> Iterator[str]:
    """Yield all texts and numbers in a value, keys as well: a secret before a colon becomes one."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _texts(name)
            yield from _texts(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each)
    elif value is not None and not isinstance(value, bool) and str(value).strip("*"):
        # A plan that was kept has asterisks in place of its secrets.
        yield str(value)


def _user_info(text: str) -> Iterator[str]:
    """Yield what stands before the host in a URL, and the password in it."""
    found = _USER_INFO.match(text)
    if found is not None:
        yield from filter(None, {found[1], found[1].partition(":")[2]})


def _unless(form: re.Pattern[str]) -> Callable[[str], Iterable[str]]:
    """Return a function that yields a text which is not of the form: a secret may have been pasted into it."""
    return lambda text: () if form.fullmatch(text) and not _SECRET.fullmatch(text) else (text,)


_PARTS: Mapping[str, Callable[[str], Iterable[str]]] = {
    "api_host": _user_info,
    "api_token_id": _unless(_TOKEN),
    "api_user": _unless(_USER),
    "reservations": passwords_in,
}
"""The options that are no secrets, but may contain one."""
