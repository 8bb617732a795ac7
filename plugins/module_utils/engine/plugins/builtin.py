# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every built-in plugin, by name and in the order in which they are asked.

The list is explicit because Ansible ships a module only with what it imports by name. Cheap and final filters come
first.
"""

from __future__ import annotations

from ..framework.interface import Plugin
from ..profiles import Registry
from .allocation import BalancedAllocation, LeastAllocated, MostAllocated, RequestedToCapacityRatio
from .gang import Gang
from .ha_placement import HARules
from .limits import CPUOvercommit, FailoverHeadroom, GuestLimit, MemoryOvercommit, VCPULimit
from .nodes import (
    CPUModel,
    NamedResources,
    NetworkBridge,
    NodeAffinity,
    NodeName,
    NodeReady,
    NodeRegex,
    TaintToleration,
)
from .passthrough import DeviceClaims, DeviceFit, DeviceScarcity
from .proxmox_scores import FewestGuests, ProxmoxStatic
from .queueing import Delay, PrioritySort, SchedulingGates
from .random import Random
from .storages import StorageBalance, TemplateLocality, VolumeBinding
from .topology_spread import TopologySpread
from .utilization import NodeResource, UsedLimit, Utilization
from .vm_affinity import VMAffinity
from .vmids import Range, Regex
from .what_if import WhatIf

BUILTIN: tuple[type[Plugin], ...] = (
    SchedulingGates,
    PrioritySort,
    Delay,
    NodeName,
    NodeRegex,
    NodeReady,
    NodeAffinity,
    TaintToleration,
    NetworkBridge,
    NamedResources,
    CPUModel,
    VCPULimit,
    HARules,
    CPUOvercommit,
    MemoryOvercommit,
    GuestLimit,
    UsedLimit,
    VMAffinity,
    TopologySpread,
    TemplateLocality,
    DeviceClaims,
    VolumeBinding,
    FailoverHeadroom,
    WhatIf,
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio,
    BalancedAllocation,
    StorageBalance,
    DeviceScarcity,
    DeviceFit,
    FewestGuests,
    ProxmoxStatic,
    Utilization,
    NodeResource,
    Random,
    Range,
    Regex,
    Gang,
)


def builtin_registry() -> Registry:
    """Return a new registry with the built-in plugins, to which others may be added."""
    return Registry(BUILTIN)
