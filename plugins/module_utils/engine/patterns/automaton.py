# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a regular expression's tree to an automaton, by Glushkov's construction.

Its states are the positions (symbols) of the expression. All positions that may be read next are followed together,
never one after the other, so the time to match is proportional to the length of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from . import InvalidPattern
from .syntax import Alternatives, Characters, Repeat, Sequence, Symbol, Tree

# Bounds of what one expression may cost. The first is the number of symbols when counted repeats are written out. The
# second counts steps from position to position, of which a computer makes about a million in a second. A part of the
# expression costs about as much as ten.
MAX_POSITIONS = 2_000
MAX_STEPS = 500_000
STEPS_PER_PART = 10


class TooComplex(InvalidPattern):
    """An expression would cost more than the bounds above allow. The text says so."""

    def __init__(self) -> None:
        super().__init__(
            f"it is too complex (more than {MAX_POSITIONS} symbols with repeats written out, or {MAX_STEPS} steps)"
        )


class _Part(NamedTuple):
    """A part of the expression: the positions that it can begin and end with, and whether it may be empty."""

    first: int
    last: int
    optional: bool


class Automaton:
    """The positions of an expression. Sets of positions are integers, with bit i for position i.

    A position is in a set when its symbol may be read next; one more position, which reads nothing, stands for the end.

    Attributes:
        symbols: what each position reads: characters, or one of the anchors START and END.
        follow: for each position what may be read after it.
        first: what may be read first.
        end: the position that stands for the end.
    """

    def __init__(self, tree: Tree, longest: int | None = None) -> None:
        """longest is the most characters that a text can have, if there is such a limit: it bounds counted repeats.

        Raises:
            TooComplex: the expression is beyond MAX_POSITIONS or MAX_STEPS.
        """
        self._steps = 0
        # Of more repetitions than that at least one takes no character, and any number of those is as good as one.
        self._most_repeats = None if longest is None else longest + 1
        self.symbols: list[Characters | str] = []
        self.follow: list[int] = []
        part = self._part(tree)
        self.end = self._symbol(Characters()).first
        self._connect(part.last, self.end)
        self.first = part.first | (self.end if part.optional else 0)

    def spend(self, steps: int) -> None:
        """Count what building costs. Raises TooComplex."""
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise TooComplex

    def positions_after(self, positions: int) -> int:
        """Return which positions may follow any of these. A set of positions is a number with a bit for each."""
        reached = 0
        for position in set_bits(positions):
            reached |= self.follow[position]
        return reached

    def pass_anchors(self, positions: int, anchors: int) -> int:
        """Add to `positions` what may be read where the positions `anchors` hold, which read no character."""
        added = positions
        while added:
            added = self.positions_after(added & anchors) & ~positions
            positions |= added
        return positions

    def anchor_positions(self, anchor: str) -> int:
        """Return the positions of START or of END."""
        return sum(1 << position for position, symbol in enumerate(self.symbols) if symbol == anchor)

    def positions_reading(self, char: str) -> int:
        """Return the positions that read `char`."""
        return sum(
            1 << position
            for position, symbol in enumerate(self.symbols)
            if isinstance(symbol, Characters) and char in symbol
        )

    def _part(self, tree: Tree) -> _Part:
        """Add the positions of a part of the pattern."""
        self.spend(STEPS_PER_PART)
        match tree:
            case Symbol(reads):
                return self._symbol(reads)
            case Sequence(items):
                return self._sequence(self._part(item) for item in items)
            case Alternatives(branches):
                return self._alternatives([self._part(branch) for branch in branches])
            case Repeat(item, least, most):
                return self._repeat(item, least, most)

    def _symbol(self, reads: Characters | str) -> _Part:
        """Add the position of a symbol. Positions are bits. Raises TooComplex."""
        if len(self.symbols) == MAX_POSITIONS:
            raise TooComplex
        position = 1 << len(self.symbols)
        self.symbols.append(reads)
        self.follow.append(0)
        return _Part(position, position, optional=False)

    def _sequence(self, parts: Iterable[_Part]) -> _Part:
        """Connect parts that follow one another."""
        whole = _Part(0, 0, optional=True)
        for part in parts:
            self._connect(whole.last, part.first)
            whole = _Part(
                first=whole.first | part.first if whole.optional else whole.first,
                last=whole.last | part.last if part.optional else part.last,
                optional=whole.optional and part.optional,
            )
        return whole

    def _alternatives(self, parts: Iterable[_Part]) -> _Part:
        """Join parts of which any one matches."""
        first = last = 0
        optional = False
        for part in parts:
            first |= part.first
            last |= part.last
            optional |= part.optional
        return _Part(first, last, optional)

    def _repeat(self, item: Tree, least: int, most: int | None) -> _Part:
        if self._most_repeats is not None:
            least = min(least, self._most_repeats)
            most = most if most is None else min(most, self._most_repeats)
        needed = self._sequence(self._part(item) for _copy in range(least))
        optional = self._repeat_any_number(item) if most is None else self._repeat_up_to(item, most - least)
        return self._sequence([needed, optional])

    def _repeat_any_number(self, item: Tree) -> _Part:
        part = self._part(item)
        self._connect(part.last, part.first)
        return part._replace(optional=True)

    def _repeat_up_to(self, item: Tree, most: int) -> _Part:
        """Read `x{0,3}` as `(x(x(x)?)?)?`: a copy follows the one before it alone, so that few are active."""
        first = last = previous = 0
        for copy in range(most):
            part = self._part(item)
            self._connect(previous, part.first)
            first = first if copy else part.first
            last |= part.last
            previous = part.last
        return _Part(first, last, optional=True)

    def _connect(self, last: int, first: int) -> None:
        self.spend(last.bit_count())
        for position in set_bits(last):
            self.follow[position] |= first


def set_bits(bits: int) -> Iterator[int]:
    """Yield the indices of the bits of `bits` that are set, lowest first."""
    while bits:
        yield (bits & -bits).bit_length() - 1
        bits &= bits - 1
