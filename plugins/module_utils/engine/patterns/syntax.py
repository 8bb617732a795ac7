# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a regular expression into a tree.

What is read: literals, `.`, `\\d \\D \\w \\W \\s \\S`, classes, groups (plain, `?:`, named), `|`, the repeats
`? * + {m} {m,} {m,n}` and their lazy forms, the anchors `^ $ \\A \\Z \\z`, `(?i)` at the beginning and `(?i:...)`. All
of it is regular, so that a match can be found without backtracking. Whatever else Python or Go would read is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from . import InvalidPattern

START = "^"
END = "$"

# The first bounds the time that the parser takes, the second keeps it, as it calls itself for every group, far from the
# interpreter's own limit.
MAX_LENGTH = 10_000
MAX_NESTED_GROUPS = 50
MAX_COUNT_DIGITS = 9

_CLASSES = frozenset("dDwWsS")
_ANCHORS = {"A": START, "Z": END, "z": END}
_QUANTIFIERS = {"?": (0, 1), "*": (0, None), "+": (1, None)}
_COUNTS = re.compile(r"\{([0-9]+)(,?)([0-9]*)\}")
_GROUP_PREFIX = re.compile(r"\?(?:(i)?:|P?<[A-Za-z_]\w*>)")
_IGNORE_CASE = "(?i)"
_UNSUPPORTED_GROUPS = {
    "?=": "look-ahead is not supported, as in RE2",
    "?!": "look-ahead is not supported, as in RE2",
    "?<=": "look-behind is not supported, as in RE2",
    "?<!": "look-behind is not supported, as in RE2",
    "?(": "conditionals are not supported, as in RE2",
    "?P=": "backreferences are not supported, as in RE2",
    "?>": "atomic groups are not supported, as in RE2",
    "?#": "comments are not supported, as in RE2",
}


@dataclass(frozen=True, slots=True)
class Characters:
    """The characters in one of `ranges` or `classes` (the letters of `\\d`, `\\W`, ...), or, negated, all others."""

    ranges: tuple[tuple[str, str], ...] = ()
    classes: tuple[str, ...] = ()
    negated: bool = False
    ignore_case: bool = False

    def __contains__(self, char: str) -> bool:
        return self._lists(char) is not self.negated

    def _lists(self, char: str) -> bool:
        for case in (char.lower(), char.upper()) if self.ignore_case else (char,):
            if any(first <= case <= last for first, last in self.ranges):
                return True
        return any(_is_in_class(letter, char) for letter in self.classes)


def _is_in_class(letter: str, char: str) -> bool:
    """Whether the class of a letter behind a backslash has the character. A capital letter stands for all others."""
    match letter.lower():
        case "d":
            holds = char.isdecimal()
        case "s":
            holds = char.isspace()
        case _:
            holds = char.isalnum() or char == "_"
    return holds is letter.islower()


ANY = Characters(ranges=(("\n", "\n"),), negated=True)


@dataclass(frozen=True, slots=True)
class Symbol:
    """One character of a set, or one of the anchors `START` and `END`."""

    reads: Characters | str


@dataclass(frozen=True, slots=True)
class Sequence:
    """`items`, one after the other. Without items: the empty string."""

    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of `branches`."""

    branches: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`item`, at least `least` and at most `most` times; None: any number of times."""

    item: Tree
    least: int
    most: int | None


Tree: TypeAlias = Symbol | Sequence | Alternatives | Repeat


def parse(text: str) -> Tree:
    """Read a regular expression.

    Raises:
        InvalidPattern: it has a mistake, or something that is not supported; the message says what and where.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidPattern(f"it is longer than {MAX_LENGTH} characters")
    return _Parser(text).parse()


class _Parser:
    """Reads from left to right; a method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ignore_case = text.startswith(_IGNORE_CASE)
        self._at = len(_IGNORE_CASE) if self._ignore_case else 0
        self._open_groups = 0

    def parse(self) -> Tree:
        tree = self._alternatives()
        if self._at < len(self._text):
            raise self._error("')' without '('")
        return tree

    def _alternatives(self) -> Tree:
        branches = [self._sequence()]
        while self._skip("|"):
            branches.append(self._sequence())
        return Alternatives(tuple(branches))

    def _sequence(self) -> Tree:
        items: list[Tree] = []
        while self._next not in {"", "|", ")"}:
            items.append(self._repetition())
        return Sequence(tuple(items))

    def _repetition(self) -> Tree:
        """Parse an item with the counts that may follow it. Whether it is lazy makes no difference to a whole match."""
        item = self._atom()
        counts = self._counts()
        if counts is None:
            return item
        self._skip("?")
        if self._next in {"*", "+", "?", "{"}:
            raise self._error("a repeat of a repeat needs a group, and possessive repeats are not supported")
        return Repeat(item, *counts)

    def _counts(self) -> tuple[int, int | None] | None:
        """Parse how often an item is repeated, at least and at most; None if nothing says so."""
        if self._next in _QUANTIFIERS:
            return _QUANTIFIERS[self._take()]
        if self._next != "{":
            return None
        match = _COUNTS.match(self._text, self._at)
        if match is None:
            raise self._error("a repeat is written {m}, {m,} or {m,n}, and a literal brace \\{")
        if max(len(match[1]), len(match[3])) > MAX_COUNT_DIGITS:
            raise self._error(f"a repeat count has more than {MAX_COUNT_DIGITS} digits")
        least = int(match[1])
        most = int(match[3]) if match[3] else None if match[2] else least
        if most is not None and least > most:
            raise self._error(f"{match[0]} asks for more at least than at most")
        self._at = match.end()
        return least, most

    def _atom(self) -> Tree:
        """Parse a group, a class, an escape, an anchor or a character."""
        if self._next in {"*", "+", "?", "{"}:
            raise self._error(f"there is nothing that {self._next!r} could repeat")
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return Symbol(self._class())
        if char == "\\":
            return Symbol(self._escape())
        if char in {START, END}:
            return Symbol(char)
        return Symbol(ANY if char == "." else self._characters(char))

    def _group(self) -> Tree:
        """Parse a group, up to its closing parenthesis. A flag that is set inside ends with it."""
        outside = self._ignore_case
        if self._next == "?":
            self._group_prefix()
        self._open_groups += 1
        if self._open_groups > MAX_NESTED_GROUPS:
            raise self._error(f"groups are nested deeper than {MAX_NESTED_GROUPS}")
        tree = self._alternatives()
        if not self._skip(")"):
            raise self._error("a group is not closed")
        self._open_groups -= 1
        self._ignore_case = outside
        return tree

    def _group_prefix(self) -> None:
        """Parse the beginning of a group that has a name, a flag or no number. Other kinds are refused."""
        match = _GROUP_PREFIX.match(self._text, self._at)
        if match is None:
            rest = self._text[self._at :]
            kinds = (kind for prefix, kind in _UNSUPPORTED_GROUPS.items() if rest.startswith(prefix))
            raise self._error(next(kinds, "this kind of group is not supported"))
        self._ignore_case = self._ignore_case or match[1] is not None
        self._at = match.end()

    def _escape(self) -> Characters | str:
        char = self._take()
        return _ANCHORS[char] if char in _ANCHORS else self._escape_in_class(char)

    def _escape_in_class(self, char: str) -> Characters:
        """Return the characters that an escape inside of a class stands for."""
        if char in _CLASSES:
            return Characters(classes=(char,))
        if not char:
            raise self._error("nothing follows the last backslash")
        if char.isdecimal():
            raise self._error("backreferences and octal escapes are not supported")
        if char.isalpha():
            raise self._error(f"\\{char} is not supported")
        return self._characters(char)

    def _class(self) -> Characters:
        """Parse a class, up to its closing bracket."""
        negated = self._skip("^")
        items = [self._class_item()]
        while not self._skip("]"):
            items.append(self._class_item())
        return Characters(
            ranges=tuple(bounds for item in items for bounds in item.ranges),
            classes=tuple(letter for item in items for letter in item.classes),
            negated=negated,
            ignore_case=self._ignore_case,
        )

    def _class_item(self) -> Characters:
        """Parse a character, a range or an escape inside of a class."""
        if self._text.startswith(("[:", "[.", "[="), self._at):
            raise self._error("POSIX classes are not supported; [[:digit:]] is \\d")
        first = self._take()
        if not first:
            raise self._error("a class is not closed by ']'")
        if first == "\\":
            first = self._take()
            if first in _CLASSES or first.isalnum() or not first:
                return self._escape_in_class(first)
        if self._next != "-" or self._text[self._at + 1 : self._at + 2] in {"", "]"}:
            return self._characters(first)
        self._take()
        last = self._take()
        if last == "\\":
            last = self._take()
            if not last or last.isalnum():
                raise self._error(f"\\{last} cannot end a range in a class")
        if first > last:
            raise self._error(f"the range {first}-{last} in a class runs backwards")
        return self._characters(first, last)

    def _characters(self, first: str, last: str | None = None) -> Characters:
        return Characters(ranges=((first, last or first),), ignore_case=self._ignore_case)

    @property
    def _next(self) -> str:
        """The next character, or the empty string at the end."""
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._next
        self._at += len(char)
        return char

    def _skip(self, char: str) -> bool:
        if self._next != char:
            return False
        self._at += 1
        return True

    def _error(self, reason: str) -> InvalidPattern:
        return InvalidPattern(f"{reason} (at character {min(self._at + 1, len(self._text))})")
