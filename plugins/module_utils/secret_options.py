# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The secrets in the options of a task, whatever their shape is. Ansible finds only those that are in their places.

Some options are no secrets, but may be given one by mistake: those that say where something is and who asks. They are
the options of the connection, of the ledger and of files. Their texts are shown only if they have a form in which no
secret has a place. What else in them is a secret is not known: a password before an C(@), a parameter of a URL, or a
token that was pasted into the wrong line.
"""

from __future__ import annotations

import json
import re
import typing as t
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote

Spec = Mapping[str, Mapping[str, t.Any]]

_LONGEST_SHOWN = 100
_OF_ANY_MODULE = ("api_password", "api_token_secret", "cipassword")

_VALUE = r"""(?:"([^"]+)|'([^']+)|([^\s,;}\]]+))"""
"""A value in YAML, or after an equals sign."""

_SECRET = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
"""The form of the secrets that Proxmox makes. A host or a token may have such a name, which is not shown then."""

_HOST = r"(?:https?://)?[\w.-]+(?::\d{1,5})?(?:/[\w./-]*)?"
_ADDRESS = r"\[?[0-9A-Fa-f:.]+(?:%\w+)?\]?(?::\d{1,5})?"
_NUMBER = r"-?\d{1,5}(?:\.\d{1,3})?"

# Without URLs and their parameters. In an absolute path, a colon and an at sign are only characters.
_ABSOLUTE = r"(?!.*(?:://|//.*@|[?&].*=))[/~].*"
_FILE = rf"{_ABSOLUTE}|(?!.*(?:://|//.*@|:.*@|[?&].*=)).*"

_FORMS: Mapping[str, re.Pattern[str]] = {
    "api_host": re.compile(rf"{_HOST}|{_ADDRESS}"),
    "api_port": re.compile(_NUMBER),
    "api_timeout": re.compile(_NUMBER),
    "api_user": re.compile(r"[^\s:/!,;%=]+@[\w.-]+"),
    "api_token_id": re.compile(r"(?:[^\s:/!,;%=]+@[\w.-]+!)?[A-Za-z][\w.-]*"),
    "validate_certs": re.compile(r"true|false|yes|no|on|off|[01tfyn]|[01]\.0", re.IGNORECASE),
    "ca_path": re.compile(r"(?!.*://)(?:(?:\.{0,2}|~\w*)/[^\0?@]*|[\w .~+-]*\.\w{1,8})", re.DOTALL),
    **dict.fromkeys(
        ("snapshot", "apply", "plan_file", "progress_file", "plugin_config", "plugin_paths", "dest"),
        re.compile(_FILE, re.DOTALL),
    ),
}
"""The forms of the values that may be shown, by option."""

_DOCUMENTS = frozenset({"snapshot", "apply", "plugin_config"})
"""The options that take a document as well as its path."""

POSTGRESQL = re.compile(
    r"postgres(?:ql)?://"
    r"(?:(?P<user>[^:@/?#\s]*)(?::(?P<password>[^@/?#\s]*))?@)?"
    r"(?:(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]|%2[Ff][\w.%-]*)?(?::\d{1,5})?,?)*"
    r"(?:/[\w.%+-]*)?"
    r"(?:\?(?P<parameters>[^@#\s]*))?"
)
"""A URL of PostgreSQL in which it is clear where a password is."""

_PARAMETERS: Mapping[str, str] = {
    "sslmode": r"disable|allow|prefer|require|verify-ca|verify-full",
    "target_session_attrs": r"any|read-write|read-only|primary|standby|prefer-standby",
    **dict.fromkeys(("user", "dbname", "host", "hostaddr", "application_name"), r"[\w./:,-]{0,200}"),
    **dict.fromkeys(("sslcert", "sslkey", "sslrootcert", "passfile"), r"[/~.][\w ./~-]*|system"),
    **dict.fromkeys(("port", "connect_timeout", "keepalives_idle", "tcp_user_timeout"), r"\d{1,5}"),
}
"""Parameters of such a URL, and their values that may be shown."""

_NAMES_OF_SECRETS = frozenset({*_PARAMETERS, "password", "sslpassword", "options"})

_NO_CONVERSION = re.compile(
    r"(?P<start>argument '(?P<name>\w+)' is of type .*? and we were unable to convert to \w+): .*", re.DOTALL
)

_LEDGER_FILE = re.compile(_ABSOLUTE, re.DOTALL)
_RELATIVE = re.compile(r"[\w .~+-]*(?:/[\w ./~+-]*|\.\w{1,8})")
_NAME = re.compile(r"[\w.@+-]{0,63}")


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
            if name in PLACES:
                yield from hidden_texts(name, value)
            yield from secrets_in(value, names)
    elif isinstance(given, (list, tuple)):
        for each in given:
            yield from secrets_in(each, names)
    elif isinstance(given, str):
        yield from _in_text(given, names)


def misshapen_secret(given: t.Any, names: frozenset[str]) -> str | None:
    """Return the name of a secret option that is no text or number, at any depth; None if there is none."""
    if isinstance(given, Mapping):
        for name, value in given.items():
            if name in names and isinstance(value, (Mapping, list, tuple)):
                return str(name)
    inner = given.values() if isinstance(given, Mapping) else given if isinstance(given, (list, tuple)) else ()
    return next((found for each in inner if (found := misshapen_secret(each, names)) is not None), None)


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


PLACES = frozenset({*_FORMS, "reservations"})
"""The options that are no secrets, but may be given one by mistake."""


def hidden_texts(option: str, value: t.Any) -> Iterator[str]:
    """Yield what must not be shown of the value of such an option, which may have any shape."""
    if option == "reservations" and isinstance(value, str):
        yield from _secrets_of_ledger(value)
        return
    # A document in place of its path: what is secret in it has a name.
    is_document = isinstance(value, Mapping) or (isinstance(value, str) and value.lstrip().startswith("{"))
    if not (option in _DOCUMENTS and is_document):
        texts = list(_texts(value))
        if isinstance(value, Mapping) or not all(is_shown(option, text) for text in texts):
            yield from texts


def is_shown(option: str, text: str) -> bool:
    """Whether a text of such an option may be shown."""
    if option == "reservations":
        return not any(_secrets_of_ledger(text))
    return _FORMS[option].fullmatch(text) is not None and _SECRET.fullmatch(text) is None


def got(option: str, text: str) -> str:
    """Return the end of a message about a wrong value: what was given, if that may be shown."""
    return f', got "{text}"' if len(text) <= _LONGEST_SHOWN and is_shown(option, text) else ""


def quote(option: str, text: str) -> str:
    """Return a text for a message that cannot do without one."""
    return repr(text) if is_shown(option, text) else "what was given, which may contain a secret,"


def without_value(message: str) -> str:
    """Return Ansible's message about a value of another type, for such an option without the value: it is quoted there
    in ways that no mask finds.
    """
    found = _NO_CONVERSION.fullmatch(message)
    return message if found is None or found["name"] not in PLACES else found["start"]


def mask(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these secrets, as they are or as Python quotes them."""
    forms = {form for secret in secrets for form in (secret, repr(secret)[1:-1])}
    for secret in sorted(filter(None, forms), key=len, reverse=True):
        text = text.replace(secret, "********")
    return text


def _secrets_of_ledger(where: str) -> Iterator[str]:
    """Yield the passwords in the URL of a ledger, as written and decoded, or the whole of what has no known form."""
    hidden = [where]
    if where in ("", "default", "none") or any(
        form.fullmatch(where.removeprefix("sqlite://")) for form in (_LEDGER_FILE, _RELATIVE)
    ):
        hidden = []
    elif found := POSTGRESQL.fullmatch(where):
        user = found["user"] or ""
        known = _NAME.fullmatch(unquote(user)) and not _SECRET.fullmatch(unquote(user))
        hidden = [found["password"] or "", "" if known else user]
        for parameter in (found["parameters"] or "").split("&"):
            name, _equals, value = parameter.partition("=")
            if not re.fullmatch(_PARAMETERS.get(name, "(?!)"), unquote(value)):
                hidden += [value, "" if unquote(name) in _NAMES_OF_SECRETS else name]
    yield from {text for written in hidden if written for text in (written, unquote(written))}
