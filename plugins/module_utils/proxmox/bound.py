# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outcome of creating a VM. If nothing was made, the binder raises an error instead."""

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

    node is where it is now: HA may have moved it. warnings are the log of its task, if that warned.
    """

    vmid: int
    node: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The VM was created and stays, but it was not started, or what comes after that failed."""

    vmid: int
    node: str
    error: CollectionError


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """Creating the VM failed, and what was made of it could not be removed, for a reason.

    stub: it is the empty, locked VM that Proxmox makes before it starts a task, and the task could not be started.
    """

    vmid: int
    node: str
    error: CollectionError
    reason: str
    stub: bool = False

    @property
    def message(self) -> str:
        """The error's message, and what is left where."""
        left = f"{self.vmid} was left behind on node {self.node}: {self.reason}"
        if self.stub:
            cure = f"remove it there as root with '{removal_of(self.vmid)}'"
            return f"{self.error.message}; the empty VM {left}; {cure}"
        return f"{self.error.message}; VM {left}"


@dataclass(frozen=True, slots=True)
class Unknown:
    """The VM may exist, or come to exist: it was begun and not followed to its end, or the answer to its request was
    lost.
    """

    vmid: int
    node: str
    error: CollectionError
    begun: bool

    @property
    def goes_on(self) -> bool:
        """Whether a task is still at work on the VM, as far as is known."""
        return isinstance(self.error, TaskTimeout) and self.error.upid is not None


Bound: t.TypeAlias = "Created | NotStarted | LeftBehind | Unknown"


P = t.ParamSpec("P")


class Ended(Exception):
    """Brings an outcome from the step in which it was found to the end of the binding."""

    def __init__(self, outcome: Bound) -> None:
        super().__init__(outcome)
        self.outcome = outcome


def to_its_end(bind: Callable[P, Bound]) -> Callable[P, Bound]:
    """Have a function return the outcome that a step of it ended with."""

    @functools.wraps(bind)
    def bound(*args: P.args, **options: P.kwargs) -> Bound:
        try:
            return bind(*args, **options)
        except Ended as ended:
            return ended.outcome

    return bound
