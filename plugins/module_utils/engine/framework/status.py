# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status that a plugin returns: a code of kube-scheduler, the plugin, and the reason for the user."""

from __future__ import annotations

import enum
import typing as t


class Code(enum.Enum):
    """The status codes of kube-scheduler, under the same names, plus two with which PreFilter skips only Filter or only
    Score.
    """

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
    """Which nodes are candidates at all."""
    CAPACITY = "capacity"
    """Limits to what a node may provide."""
    STORAGE = "storage"
    DEVICE = "device"
    RULE = "rule"
    """Relations between the VM and others, and all other rules."""


class Shortage(t.NamedTuple):
    """The missing amount of a resource.

    resource: C(cpu) (vCPUs), C(memory) or C(storage) (both in bytes).
    """

    resource: str
    amount: float


class Status(t.NamedTuple):
    """What a plugin returns. None means success.

    Attributes:
        reason: completes the sentence "3 node(s) ..."; equal for all nodes that fail in the same way.
        detail: the facts of this node ("26.0 of 32.0 GiB would be used"), or empty.
        shortages: the missing amounts, if these are all that the node lacks.
        until: the time at which the verdict changes by itself, in seconds on the clock of Request.created; None if it
            does not.
        plugin, category: the name and the category of the plugin. The framework sets them.
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
        """Whether a change in the cluster may help."""
        return self.code is not Code.UNSCHEDULABLE_AND_UNRESOLVABLE

    @property
    def text(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


def unschedulable(reason: str, detail: str = "", shortage: Shortage | None = None) -> Status:
    """Reject a node. A change in the cluster may help. reason and detail are those of Status."""
    return Status(Code.UNSCHEDULABLE, reason, detail, () if shortage is None else (shortage,))


def unresolvable(reason: str, detail: str = "", shortage: Shortage | None = None) -> Status:
    """Reject a node for good: no change in the cluster can help, so the run does not wait for one."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reason, detail, () if shortage is None else (shortage,))


SKIP = Status(Code.SKIP)
SKIP_FILTER = Status(Code.SKIP_FILTER)
SKIP_SCORE = Status(Code.SKIP_SCORE)
SKIPS = (Code.SKIP, Code.SKIP_FILTER, Code.SKIP_SCORE)
"""The codes with which PreFilter skips its plugin's Filter, Score or both."""
WAIT = Status(Code.WAIT)
