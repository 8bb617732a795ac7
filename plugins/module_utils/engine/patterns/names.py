# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Regular expressions that the names of nodes, VMs and storages have to match in full."""

from __future__ import annotations

import functools
import re

from ...errors import InvalidRequest
from . import InvalidPattern

MAX_KNOWN_STEPS = 10_000
"""The number of steps that one pattern remembers. When it is reached, the memory is cleared."""

MAX_SHOWN = 80
"""The most characters of a pattern that an error shows."""


class _State:
    """A set of positions that may be read next, and the states that are known to follow it."""

    __slots__ = ("accepts", "following", "positions")

    def __init__(self, positions: int, accepts: bool) -> None:
        self.positions = positions
        self.accepts = accepts
        self.following: dict[str, _State] = {}


class NamePattern:
    """A pattern that `name_pattern` has compiled. Matching takes time in proportion to the name.

    Attributes:
        text: the expression as the user wrote it.
    """

    def __init__(self, text: str) -> None:
        # Most runs have no patterns.
        from .automaton import Automaton
        from .syntax import END, START, parse

        self.text = text
        self._automaton = Automaton(parse(text))
        self._at_start = self._automaton.anchor_positions(START)
        self._at_end = self._automaton.anchor_positions(END)
        self._forget()

    def matches(self, name: str) -> bool:
        """Whether all of `name` matches."""
        state = self._start
        for char in name:
            state = state.following.get(char) or self._step(state, char)
            if not state.positions:
                return False
        # Both anchors hold at both ends of an empty name.
        return state.accepts if name else self._ends(self._start.positions, self._at_start | self._at_end)

    def _step(self, state: _State, char: str) -> _State:
        """Return the state after a character. It is computed once, and forgotten when there are too many."""
        if self._steps == MAX_KNOWN_STEPS:
            self._forget()
        self._steps += 1
        if char not in self._reading:
            self._reading[char] = self._automaton.positions_reading(char)
        positions = self._automaton.positions_after(state.positions & self._reading[char])
        found = state.following[char] = self._state(positions)
        return found

    def _state(self, positions: int) -> _State:
        if positions not in self._states:
            self._states[positions] = _State(positions, self._ends(positions, self._at_end))
        return self._states[positions]

    def _ends(self, positions: int, anchors: int) -> bool:
        return bool(self._automaton.pass_anchors(positions, anchors) & self._automaton.end)

    def _forget(self) -> None:
        self._steps = 0
        self._reading: dict[str, int] = {}
        self._states: dict[int, _State] = {}
        self._start = self._state(self._automaton.pass_anchors(self._automaton.first, self._at_start))


@functools.cache
def name_pattern(text: str) -> NamePattern:
    """Compile a pattern. Each is kept: a cache that holds less than a run's patterns compiles all of them for each VM.

    Raises:
        InvalidPattern: the expression has a mistake, uses what is not supported (see `syntax`), or is too complex.
    """
    return NamePattern(text)


_START = re.compile(r"([A-Za-z0-9_-]*)([*?{]?)")


@functools.cache
def literal_start(text: str) -> str:
    """Return the text that begins every name which the pattern matches, as far as the pattern's beginning is literal.
    """
    if "|" in text or "(?" in text:
        return ""
    start = _START.match(text)
    if start is None:
        return ""
    # What is repeated may be left out.
    return start[1][:-1] if start[2] else start[1]


def compile_option_pattern(option: str, text: str) -> NamePattern:
    """Compile the pattern that a user gave for an option. Raises InvalidRequest, which names both."""
    try:
        return name_pattern(text)
    except InvalidPattern as error:
        shown = text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
        message = f"{option}: invalid regular expression {shown!r}: {error}"
        raise InvalidRequest(message, option=option, value=shown, expected="a regular expression") from None
