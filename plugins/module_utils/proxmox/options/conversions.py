# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How each type of VM option is declared to Ansible, sent to Proxmox, and compared with a VM's config.

to_api returns the value for the API; an empty text unsets the option. same tells whether a value of to_api and a value
of the VM's config mean the same. merged returns the value to send so that nothing that Proxmox generated is lost. shown
returns the value for display.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from ...errors import InvalidRequest
from ...other_words import REMOVAL
from .drives import REMOVE_DRIVE, Destroyed, Value, parse_drive
from .property_strings import PropertyKind
from .values import Secret, boolean, invalid, number, such_as

_SEPARATORS = re.compile(r"[\s,;]+")
_TAG = re.compile(r"[a-z0-9_][a-z0-9_+.-]*")
# Options may stand before the type. The base64 text begins with the length of the type, of which the upper bytes are 0.
_PUBLIC_KEY = re.compile(r"(?:^|\s)(?:sk-)?(?:ssh|ecdsa)-[\w.@-]+\s+AAAA[A-Za-z0-9+/]*={0,3}(?:\s|$)")
_MOST_SHARES = 10_000
_VERSIONED_MACHINE = {"pc": "pc-i440fx-", "q35": "pc-q35-"}


class Conversion:
    """One type of option. Subclasses define how it differs from a plain text."""

    @property
    def example(self) -> str:
        """Return a value as users write it, for the texts of errors; empty where none is needed."""
        return ""

    def spec(self) -> dict[str, t.Any]:
        """Return the option's entry in an Ansible argument spec."""
        return {"type": "str"}

    def to_api(self, option: str, value: t.Any) -> Value:
        """Return the value for the API. Raises InvalidRequest, which names option, value and what was expected."""
        return str(value)

    def same(self, wanted: t.Any, current: t.Any) -> bool:
        """Whether both mean the same to Proxmox."""
        return str(wanted) == str(current)

    def merge(self, wanted: t.Any, current: t.Any) -> Value:
        """Return the wanted value with what must be kept of the current one."""
        return t.cast(Value, wanted)

    def show(self, value: t.Any) -> t.Any:
        """Return the value for display."""
        return value


@dataclass(frozen=True)
class Text(Conversion):
    """A text of one line that Proxmox keeps as it is, without whitespace around it."""

    pattern: str = r"[^\r\n]*"
    expected: str = "a text of one line"
    # What an empty mapping stands for, if for anything.
    empty: str | None = None

    def to_api(self, option: str, value: t.Any) -> Value:
        text = self.empty if value == {} and self.empty is not None else str(value).strip()
        if text and not re.fullmatch(self.pattern, text):
            raise invalid(option, value, self.expected)
        return text


class Description(Conversion):
    """A text of several lines, without trailing whitespace, which Proxmox removes."""

    def same(self, wanted: t.Any, current: t.Any) -> bool:
        return str(wanted).rstrip() == str(current).rstrip()


@dataclass(frozen=True)
class Choice(Conversion):
    """One of several words."""

    choices: tuple[str, ...]

    def spec(self) -> dict[str, t.Any]:
        return {"type": "str", "choices": list(self.choices)}

    def to_api(self, option: str, value: t.Any) -> Value:
        if str(value) not in self.choices:
            raise invalid(option, value, "one of " + ", ".join(self.choices))
        return str(value)


class Boolean(Conversion):
    """A switch. Proxmox takes 0 and 1 only."""

    def spec(self) -> dict[str, t.Any]:
        return {"type": "bool"}

    def to_api(self, option: str, value: t.Any) -> Value:
        truth = boolean(value)
        if truth is None:
            raise invalid(option, value, "a boolean")
        return int(truth)

    def same(self, wanted: t.Any, current: t.Any) -> bool:
        return boolean(wanted) == boolean(current)


@dataclass(frozen=True)
class Number(Conversion):
    """A number within the limits of the API schema."""

    minimum: float | None = None
    maximum: float | None = None
    whole: bool = True

    def spec(self) -> dict[str, t.Any]:
        return {"type": "int" if self.whole else "float"}

    def to_api(self, option: str, value: t.Any) -> Value:
        text = number(option, value, self.minimum, self.maximum, whole=self.whole)
        return text if "." in text else int(text)

    def same(self, wanted: t.Any, current: t.Any) -> bool:
        """Compare as numbers. Memory may be shown as C(current=512)."""
        try:
            return float(wanted) == float(str(current).removeprefix("current="))
        except ValueError:
            return False


class Shares(Number):
    """A CPU weight. Proxmox reduces a value above the limit of cgroups v2 to that limit."""

    def same(self, wanted: t.Any, current: t.Any) -> bool:
        return min(float(wanted), _MOST_SHARES) == min(float(current), _MOST_SHARES)


class Memory(Number):
    """A number of MiB. It is declared as a text, so that the error about C(4G) comes from here and names the unit."""

    def spec(self) -> dict[str, t.Any]:
        return {"type": "str"}

    def to_api(self, option: str, value: t.Any) -> Value:
        try:
            return super().to_api(option, value)
        except InvalidRequest as error:
            raise invalid(option, value, f"{error.details['expected']}, in MiB: 4096 for 4 GiB, say") from error


@dataclass(frozen=True)
class Properties(Conversion):
    """A property string. required is the property that it must have."""

    kind: PropertyKind
    required: tuple[str, ...] = ()
    # What an empty mapping stands for. None: it lacks what is required.
    empty: str | None = None

    @property
    def example(self) -> str:
        return self.kind.example

    def spec(self) -> dict[str, t.Any]:
        """Declare a string or a mapping. With the type C(str), Ansible would convert a mapping to its Python text."""
        return {"type": "raw"}

    def to_api(self, option: str, value: t.Any) -> Value:
        if value == "":
            return ""
        if value == {} and self.empty is not None:
            return self.empty
        if _means_removal(value):
            raise invalid(option, value, f"properties{such_as(self.example)}; an empty text unsets it")
        properties = self.kind.of(option, value)
        if self.required and not any(key in properties for key in self.required):
            raise invalid(option, value, f"properties with {' or '.join(self.required)}")
        return self.kind.format(properties)

    def same(self, wanted: t.Any, current: t.Any) -> bool:
        """Compare the meaning of the properties, regardless of order, spelling, defaults and generated values."""
        given, present = self.kind.read(str(wanted)), self.kind.read(str(current))
        return self.kind.same(self._keep_generated(given, present), present)

    def merge(self, wanted: t.Any, current: t.Any) -> Value:
        """Keep values that Proxmox generated, such as a MAC address or a UUID."""
        given, present = self.kind.read(str(wanted)), self.kind.read(str(current))
        return self.kind.format(self.kind.keep_generated(self._keep_generated(given, present), present))

    def _keep_generated(self, wanted: dict[str, str], current: dict[str, str]) -> dict[str, str]:
        # Proxmox writes the newest version into the machine type of a Windows guest whose request has none.
        prefix = _VERSIONED_MACHINE.get(wanted.get("type", "")) if self.kind.name == "machine" else None
        if prefix and current.get("type", "").startswith(prefix):
            return {**wanted, "type": current["type"]}
        return wanted


@dataclass(frozen=True)
class Words(Conversion):
    """A list of words that Proxmox stores as one text."""

    separator: str = " "

    def spec(self) -> dict[str, t.Any]:
        return {"type": "list", "elements": "str"}

    def to_api(self, option: str, value: t.Any) -> Value:
        words = [value] if isinstance(value, str) else list(t.cast(Sequence[t.Any], value))
        return self.separator.join(self.check(option, [str(word).strip() for word in words]))

    def check(self, option: str, words: list[str]) -> list[str]:
        """Return the words to join."""
        for word in words:
            if not word or re.search(r"[\s,;]", word):
                parts = _SEPARATORS.split(word.strip())
                raise invalid(option, word, "a list of single words" + such_as(f"[{', '.join(parts)}]" if word else ""))
        return words

    def same(self, wanted: t.Any, current: t.Any) -> bool:
        """Compare word by word, whatever separates them."""
        return self.words(wanted) == self.words(current)

    @staticmethod
    def words(text: t.Any) -> list[str]:
        return _SEPARATORS.split(str(text).strip(" ,;"))


class Tags(Words):
    """Tags: lower case, sorted, each once, as Proxmox stores them on a change (but not when it creates a VM)."""

    def check(self, option: str, words: list[str]) -> list[str]:
        tags = sorted({word.lower() for word in words})
        for tag in tags:
            if not _TAG.fullmatch(tag):
                expected = "tags of letters, digits, _, -, + and ., the first a letter, a digit or _"
                parts = _SEPARATORS.split(tag)
                raise invalid(option, tag, expected + (such_as(f"[{', '.join(parts)}]") if len(parts) > 1 else ""))
        return tags

    def same(self, wanted: t.Any, current: t.Any) -> bool:
        return {word.lower() for word in self.words(wanted)} == {word.lower() for word in self.words(current)}


def tags_of(text: t.Any) -> frozenset[str]:
    """Return the tags in a config, or in a row of C(/cluster/resources)."""
    # A create keeps them as they are written; a later change of the config sorts them and makes them lower-case.
    return frozenset(filter(None, _SEPARATORS.split(str(text or ""))))


class Hotplug(Text):
    """A comma-separated list of features, C(1) for Proxmox's default, or C(0) for none."""

    def same(self, wanted: t.Any, current: t.Any) -> bool:
        return self._features(wanted) == self._features(current)

    @staticmethod
    def _features(value: t.Any) -> set[str]:
        names = {"1": "network,disk,usb", "0": ""}.get(str(value), str(value))
        return {name.strip() for name in names.split(",")} - {""}


_KEY_FILE = re.compile(r"[~/.]\S*|\S+\.pub")


class SshKeys(Conversion):
    """Public keys, one per line, or a list of them. The API uses them URL-encoded."""

    def spec(self) -> dict[str, t.Any]:
        """Declare a text or a list. It is not secret, although its name makes Ansible assume so."""
        return {"type": "raw", "no_log": False}

    def to_api(self, option: str, value: t.Any) -> Value:
        """Return the keys URL-encoded. An error does not show the line: it may be a private key."""
        text = "\n".join(str(each) for each in value) if isinstance(value, list | tuple) else str(value)
        for position, line in enumerate(text.splitlines(), start=1):
            if line.strip() and not _PUBLIC_KEY.search(line):
                expected = "a public key, its type and then its base64 text, such as ssh-ed25519 AAAAC3Nz..."
                if _KEY_FILE.fullmatch(line.strip()):
                    expected += "; that of a file is {{ lookup('ansible.builtin.file', '~/.ssh/id_ed25519.pub') }}"
                raise InvalidRequest(
                    f"{option}: line {position} is not valid, expected {expected}", option=option, expected=expected
                )
        return quote("\n".join(self._lines(text)), safe="")

    def same(self, wanted: t.Any, current: t.Any) -> bool:
        return self._lines(unquote(str(wanted))) == self._lines(unquote(str(current)))

    def show(self, value: t.Any) -> t.Any:
        return value if value is None else "\n".join(self._lines(unquote(str(value))))

    @staticmethod
    def _lines(text: str) -> list[str]:
        return [line.strip() for line in text.splitlines() if line.strip()]


class Password(Conversion):
    """A password. Proxmox stores a hash and shows asterisks, so any password that is set counts as the wanted one."""

    def spec(self) -> dict[str, t.Any]:
        return {"type": "str", "no_log": True}

    def to_api(self, option: str, value: t.Any) -> Value:
        return Secret(value)

    def same(self, wanted: t.Any, current: t.Any) -> bool:
        return bool(current)

    def show(self, value: t.Any) -> t.Any:
        return value if value is None else "********"


def _means_removal(value: t.Any) -> bool:
    """Whether a value is a word with which other tools remove things."""
    word = value.get("state") if isinstance(value, Mapping) else value
    return isinstance(word, str) and word.strip().lower() in REMOVAL


_REMOVALS = {"unused": "", "destroy": Destroyed()}
"""What becomes of the volume of a drive that is removed."""


@dataclass(frozen=True)
class Drives(Conversion):
    """A drive. suboptions is the argument spec of a drive that is given as a mapping of fixed keys."""

    suboptions: Mapping[str, dict[str, t.Any]] | None = None

    def spec(self) -> dict[str, t.Any]:
        if self.suboptions is None:
            return {"type": "dict"}
        return {"type": "dict", "options": {name: dict(each) for name, each in self.suboptions.items()}}

    def to_api(self, option: str, value: t.Any) -> Value:
        """Return the drive; an empty text, which unsets the slot, for one that is to be removed."""
        given = {key: each for key, each in value.items() if each is not None} if isinstance(value, Mapping) else {}
        if "remove" in given:
            removal = _REMOVALS.get(str(given["remove"]))
            if removal is None or len(given) > 1:
                raise invalid(option, given, "remove: unused or remove: destroy, and nothing else beside it")
            return removal
        if _means_removal(value):
            raise invalid(option, value, f"a drive; to remove it, {REMOVE_DRIVE}")
        return parse_drive(option, value)
