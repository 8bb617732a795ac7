# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one "why not": a code of kube-scheduler's, the plugin that answers, and the reason that a person reads."""

from __future__ import annotations

import enum
import typing as t


class Code(enum.Enum):
    """kube-scheduler's status codes, by the same names; PreFilter may skip one of Filter and Score."""

    SUCCESS = "Success"
    UNSCHEDULABLE = "Unschedulable"
    UNSCHEDULABLE_AND_UNRESOLVABLE = "UnschedulableAndUnresolvable"
    WAIT = "Wait"
    SKIP = "Skip"
    SKIP_FILTER = "SkipFilter"
    SKIP_SCORE = "SkipScore"
    ERROR = "Error"


class Category(enum.Enum):
    """What a plugin's rejections are about."""

    PLACEMENT = "placement"
    """Which nodes come into question at all."""
    CAPACITY = "capacity"
    """Limits to what a node may hold."""
    STORAGE = "storage"
    DEVICE = "device"
    RULE = "rule"
    """Relations between the VM and others, and whatever else a rule may say."""


class Shortage(t.NamedTuple):
    """How much of what was missing.

    resource: C(cpu) (vCPUs), C(memory) or C(storage) (both in bytes).
    """

    resource: str
    amount: float


class Status(t.NamedTuple):
    """A plugin's answer when it is not a plain yes; the plain yes is C(None).

    Attributes:
        reason: completes the sentence "3 node(s) ..."; the same words for every node that fails in the same way.
        detail: what is particular to this node ("26.0 of 32.0 GiB would be used"), or empty.
        shortages: set when the node would do if it had that much more; what was missing, as data.
        until: when time alone will change the answer, in seconds on the clock of Request.created; None: it will not.
        plugin, category: the name and the category of the plugin that answers. The framework fills them in.
    """

    code: Code
    reason: str = ""
    detail: str = ""
    shortages: tuple[Shortage, ...] = ()
    until: float | None = None
    plugin: str = ""
    category: Category = Category.RULE

    @property
    def resolvable(self) -> bool:
        """Whether a change of the cluster may help."""
        return self.code is not Code.UNSCHEDULABLE_AND_UNRESOLVABLE

    @property
    def text(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


def unschedulable(reason: str, detail: str = "", shortage: Shortage | None = None) -> Status:
    """Not now, but a change of the cluster may help."""
    return Status(Code.UNSCHEDULABLE, reason, detail, () if shortage is None else (shortage,))


def unresolvable(reason: str, detail: str = "", shortage: Shortage | None = None) -> Status:
    """Not now and not later: nothing that changes in the cluster's guests can help."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reason, detail, () if shortage is None else (shortage,))


SKIP = Status(Code.SKIP)
SKIP_FILTER = Status(Code.SKIP_FILTER)
SKIP_SCORE = Status(Code.SKIP_SCORE)
SKIPS = (Code.SKIP, Code.SKIP_FILTER, Code.SKIP_SCORE)
"""PreFilter's answers that leave out a plugin's own points."""
WAIT = Status(Code.WAIT)
