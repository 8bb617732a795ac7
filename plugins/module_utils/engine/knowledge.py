# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The three answers to the question whether something exists. What cannot be read is not known, which is not absent."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

Thing = t.TypeVar("Thing")


class _Answer:
    """An answer is compared by its type: one that is not known must not pass for one that is absent."""

    def __bool__(self) -> t.NoReturn:
        raise TypeError(f"{type(self).__name__} is one of three answers, not a truth value")


@dataclass(frozen=True, slots=True)
class Known(_Answer, t.Generic[Thing]):
    """It exists, and this is it."""

    thing: Thing


@dataclass(frozen=True, slots=True)
class NotKnown(_Answer, t.Generic[Thing]):
    """It may exist: it may be one of these things, about which too little can be read."""

    perhaps: tuple[Thing, ...] = ()


@dataclass(frozen=True, slots=True)
class Absent(_Answer):
    """It does not exist: everything that could be it was read."""


Answer: t.TypeAlias = "Known[Thing] | NotKnown[Thing] | Absent"
