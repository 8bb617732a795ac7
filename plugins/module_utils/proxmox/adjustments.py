# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is changed in a VM after it was made, or in one that exists: its config, its disks and the last steps."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from ..model import HAIntent, Request

if t.TYPE_CHECKING:
    from .options.drift import ChangeSet

TEMPLATE = "template"
"""The option that makes a VM a template. It is not sent with the config, which would only set the flag and not convert
the disks.
"""


@dataclass(frozen=True, slots=True)
class Adjustment:
    """Changes to a VM: config keys to set (C(delete) lists those to unset), disks to grow (slot to bytes) and disks to
    move (slot to storage).
    """

    changes: Mapping[str, t.Any] = field(default_factory=dict)
    resizes: Mapping[str, int] = field(default_factory=dict)
    moves: Mapping[str, str] = field(default_factory=dict)


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
        """The last steps that a request needs."""
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
    """The adjustment for changes, except the conversion to a template and the keys in without."""
    parameters: dict[str, t.Any] = {
        key: value for key, value in changes.parameters.items() if key != TEMPLATE and key not in without
    }
    unset = [key for key in changes.delete if key not in without]
    if unset:
        parameters["delete"] = ",".join(unset)
    return Adjustment(parameters, changes.resizes, changes.moves)


def described(config: Mapping[str, t.Any], description: str) -> dict[str, t.Any]:
    """Return a config with another description, empty for none."""
    rest = {key: value for key, value in config.items() if key != "description"}
    return {**rest, "description": description} if description else rest
