# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that a custom plugin needs, in one import line.

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plugin_api import FilterPlugin, unschedulable
"""

from __future__ import annotations

from .engine.cache import ClusterState, NodeInfo
from .engine.framework.interface import (
    CycleState,
    Draft,
    Event,
    FilterPlugin,
    PermitPlugin,
    PostFilterPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
    Setting,
    Subject,
    VMIDPlugin,
)
from .engine.framework.status import (
    SKIP,
    SKIP_FILTER,
    SKIP_SCORE,
    WAIT,
    Category,
    Code,
    Shortage,
    Status,
    unresolvable,
    unschedulable,
)
from .engine.vmids.choice import VMIDChoice, parse_range
from .engine.vmids.pattern import compile_pattern
from .errors import InvalidPluginConfig, InvalidRequest
from .model import GIB, MIB, Guest, Node, Request

__all__ = [
    "GIB",
    "MIB",
    "SKIP",
    "SKIP_FILTER",
    "SKIP_SCORE",
    "WAIT",
    "Category",
    "ClusterState",
    "Code",
    "CycleState",
    "Draft",
    "Event",
    "FilterPlugin",
    "Guest",
    "InvalidPluginConfig",
    "InvalidRequest",
    "Node",
    "NodeInfo",
    "PermitPlugin",
    "PostFilterPlugin",
    "PreEnqueuePlugin",
    "PreFilterPlugin",
    "QueueSortPlugin",
    "Request",
    "ReservePlugin",
    "ScorePlugin",
    "Setting",
    "Shortage",
    "Status",
    "Subject",
    "VMIDChoice",
    "VMIDPlugin",
    "compile_pattern",
    "parse_range",
    "unresolvable",
    "unschedulable",
]
