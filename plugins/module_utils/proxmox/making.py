# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The making of a VM: what is changed in it after it was created, its last steps, and how binding can end.

In a VM that exists, changes and last steps are made in the same way. If no VM was made, the binder raises an error.
"""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from ..errors import CollectionError, TaskTimeout
from ..model import HAIntent, Identity, Request
from .creations import removal_of

if t.TYPE_CHECKING:
    from .options.drift import ChangeSet


TEMPLATE = "template"
"""The option that makes a VM a template. It is not sent with the config, which would only set the flag and not convert
the disks.
"""


class Note(t.Protocol):
    """Notes what is known by now of a VM that is being made."""

    def __call__(self, *, task: str = "", identity: Identity | None = None) -> None: ...


def note_nothing(*, task: str = "", identity: Identity | None = None) -> None:
    """Note nothing, for creations without a reservation."""


class Making(t.NamedTuple):
    """A VM that is being made: its VMID, name and node, the type, node and id of its task, the fence to call before
    each write, where to note what is known of the VM, and the server's time before the first request.
    """

    vmid: int
    name: str
    node: str
    task_type: str
    task_node: str
    task_id: str
    fence: Callable[[], None]
    note: Note
    since: float | None


@dataclass(frozen=True, slots=True)
class Adjustment:
    """Changes to a VM: config keys to set (C(delete) lists those to unset), disks to grow (slot to bytes), disks to
    move (slot to storage), and drives to destroy with their volumes.
    """

    changes: Mapping[str, t.Any] = field(default_factory=dict)
    resizes: Mapping[str, int] = field(default_factory=dict)
    moves: Mapping[str, str] = field(default_factory=dict)
    destroyed: Collection[str] = ()


Adjust = Callable[[Mapping[str, t.Any]], Adjustment]
"""Takes a VM's config as Proxmox returns it, but with its final description, and returns the changes to make."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The last steps for a VM whose config is set: convert it to a template, add it as an HA resource, remove its mark.

    The mark in the description says that the VM is unfinished (see Unfinished). marked tells whether the VM has it;
    description is the final one, without the mark, empty for none.
    """

    template: bool = False
    ha: HAIntent | None = None
    description: str = ""
    marked: bool = True

    @classmethod
    def of(cls, request: Request, description: str, *, marked: bool = True) -> Ending:
        ending = cls(bool(request.options.get(TEMPLATE)), request.ha, description)
        return replace(ending, marked=marked or ending.has_steps)

    @property
    def has_steps(self) -> bool:
        """Whether there is a step besides removing the mark."""
        return self.template or self.ha is not None

    @property
    def unmarking(self) -> Mapping[str, str]:
        """The config change that removes the mark."""
        return {"description": self.description} if self.description else {"delete": "description"}


def adjustment_of(changes: ChangeSet, without: Collection[str] = ()) -> Adjustment:
    """Return the adjustment for changes, except the conversion to a template and the keys in without."""
    parameters: dict[str, t.Any] = {
        key: value for key, value in changes.parameters.items() if key != TEMPLATE and key not in without
    }
    unset = [key for key in changes.delete if key not in without]
    if unset:
        parameters["delete"] = ",".join(unset)
    return Adjustment(parameters, changes.resizes, changes.moves, changes.destroyed)


def with_description(config: Mapping[str, t.Any], description: str) -> dict[str, t.Any]:
    """Return a config with another description, empty for none."""
    rest = {key: value for key, value in config.items() if key != "description"}
    return {**rest, "description": description} if description else rest


def merge_changes(changes: Mapping[str, t.Any], more: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return both changes as one; C(delete) lists the keys that either of them unsets."""
    unset = [each["delete"] for each in (changes, more) if each.get("delete")]
    return {**changes, **more, **({"delete": ",".join(unset)} if unset else {})}


# --- how binding can end ---


class Created(t.NamedTuple):
    """The VM is as requested.

    node is where it is now: HA may have moved it. warnings are what the user should know of it, such as the log of a
    task that ended with warnings.
    """

    vmid: int
    node: str
    warnings: tuple[str, ...] = ()


class NotStarted(t.NamedTuple):
    """The VM was created and is kept, but it was not started, or a later step failed."""

    vmid: int
    node: str
    error: CollectionError


class LeftBehind(t.NamedTuple):
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


class Unknown(t.NamedTuple):
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
