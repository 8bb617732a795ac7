# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outcomes of creating a VM. If no VM was made, the binder raises an error instead."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import CollectionError, TaskTimeout
from .creations import removal_of


@dataclass(frozen=True, slots=True)
class Created:
    """The VM is as requested.

    node is where it is now: HA may have moved it. warnings are what the user should know of it, such as the log of a
    task that ended with warnings.
    """

    vmid: int
    node: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The VM was created and is kept, but it was not started, or a later step failed."""

    vmid: int
    node: str
    error: CollectionError


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """Creating the VM failed, and what exists of it was not removed; reason says why.

    stub: only the empty, locked VM exists that Proxmox makes before it starts the task, which could not be started.
    """

    vmid: int
    node: str
    error: CollectionError
    reason: str
    stub: bool = False

    @property
    def message(self) -> str:
        """The error's message, with what was left behind on which node."""
        left = f"{self.vmid} was left behind on node {self.node}: {self.reason}"
        if self.stub:
            cure = f"remove it there as root with '{removal_of(self.vmid)}'"
            return f"{self.error.message}; the empty VM {left}; {cure}"
        return f"{self.error.message}; VM {left}"


@dataclass(frozen=True, slots=True)
class Unknown:
    """The VM exists or may come to exist: its task was not followed to the end (begun), or the answer to the request
    was lost.
    """

    vmid: int
    node: str
    error: CollectionError
    begun: bool

    @property
    def goes_on(self) -> bool:
        """Whether a task for the VM is still running, as far as is known."""
        return isinstance(self.error, TaskTimeout) and self.error.upid is not None


Bound: t.TypeAlias = "Created | NotStarted | LeftBehind | Unknown"


P = t.ParamSpec("P")


class Ended(Exception):
    """Ends the creation of a VM early, with an outcome. to_its_end turns it into a return value."""

    def __init__(self, outcome: Bound) -> None:
        super().__init__(outcome)
        self.outcome = outcome


def to_its_end(bind: Callable[P, Bound]) -> Callable[P, Bound]:
    """Decorate a function so that it returns the outcome of an Ended that one of its steps raises."""

    @functools.wraps(bind)
    def bound(*args: P.args, **options: P.kwargs) -> Bound:
        try:
            return bind(*args, **options)
        except Ended as ended:
            return ended.outcome

    return bound
