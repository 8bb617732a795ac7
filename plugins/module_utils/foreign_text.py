# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that others control: names, notes, tags, pools, answers of agents, logs of tasks and errors of the API.

It is data wherever it goes. This module makes it harmless for terminals, pages and rulebooks; the constructor for
variables of Ansible stands on it (C(plugin_utils/untrusted.py)). Nothing here guesses whether a text is dangerous.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Callable, Mapping

SEALED = frozenset({"format", "version", "digest"})
"""The keys of a document whose digest changes with its text. A program that prints one makes its texts visible."""

_CONTROLS = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, and C1: escape sequences start with these
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"  # invisible, and marks of direction
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # the same, and separators of lines
    "\ud800-\udfff"  # halves of characters, which no terminal and no file takes
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
    "]"
)
"""Characters that change what a terminal or a page shows beside them. U+200C and U+200D are parts of words."""

_ACTIVE = re.compile(r"[{}()|\\]|^#")
"""Without these a text is no template, has no header of one, and calls no function or filter if it is an expression."""

_TO_WIDE = 0xFEE0
"""From an ASCII character to the wide one that looks alike, and means nothing to a program."""


def visible(text: str) -> str:
    """Return the text with its control characters escaped, as in C(\\x1b) and C(\\u202e). Tabs and line feeds stay."""
    text = str.__str__(text)
    return text if text.isprintable() else _CONTROLS.sub(_escape, text)


def on_one_line(text: str) -> str:
    """Return the text as visible does, with line feeds and tabs as spaces: nothing in it begins a line of its own."""
    return visible(text).replace("\n", " ").replace("\t", " ")


def all_visible(value: t.Any) -> t.Any:
    """Return data with all texts as visible returns them. Sealed documents keep theirs."""
    if isinstance(value, Mapping) and value.keys() >= SEALED:
        return value
    return each_text(value, visible, all_visible)


def inert(value: t.Any) -> t.Any:
    """Return data for a program that may evaluate its texts. The characters that templates and calls need are replaced
    by wide ones that look alike, in keys as well.

    ansible-rulebook passes events to playbooks as extra variables, which Ansible trusts. A mark as untrusted would be
    lost on the way, and an escape such as C(\\x7b) would be a brace again within quotes.
    """
    return each_text(value, _inert_text, inert)


def each_text(value: t.Any, change: Callable[[str], str], recurse: Callable[[t.Any], t.Any]) -> t.Any:
    """Return a value with change applied to a text, and recurse to the items of a list or mapping."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key) if isinstance(key, str) else key: recurse(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [recurse(each) for each in value]
    return value


def _inert_text(text: str) -> str:
    return _ACTIVE.sub(lambda found: chr(ord(found[0]) + _TO_WIDE), visible(text))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
