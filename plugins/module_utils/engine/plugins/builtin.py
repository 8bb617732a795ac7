# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every built-in plugin, by name and in the order in which they are asked.

The list is explicit because Ansible ships a module only with what it imports by name. Cheap and final filters come
first.
"""

from __future__ import annotations

from ..framework.interface import Plugin
from ..framework.profile import Registry
from .devices.device_claims import DeviceClaims
from .devices.device_fit import DeviceFit
from .devices.device_scarcity import DeviceScarcity
from .diagnosis.what_if import WhatIf
from .filters.cpu_overcommit import CPUOvercommit
from .filters.failover_headroom import FailoverHeadroom
from .filters.memory_overcommit import MemoryOvercommit
from .filters.node_name import NodeName
from .filters.node_ready import NodeReady
from .filters.node_regex import NodeRegex
from .filters.vcpu_limit import VCPULimit
from .permits.gang import Gang
from .queue.delay import Delay
from .queue.priority_sort import PrioritySort
from .queue.scheduling_gates import SchedulingGates
from .rules.cpu_model import CPUModel
from .rules.guest_limit import GuestLimit
from .rules.ha_rules import HARules
from .rules.network_bridge import NetworkBridge
from .rules.node_affinity import NodeAffinity
from .rules.taint_toleration import TaintToleration
from .rules.topology_spread import TopologySpread
from .rules.vm_affinity import VMAffinity
from .scores.balanced_allocation import BalancedAllocation
from .scores.fewest_guests import FewestGuests
from .scores.least_allocated import LeastAllocated
from .scores.most_allocated import MostAllocated
from .scores.node_resource import NodeResource
from .scores.proxmox_static import ProxmoxStatic
from .scores.random import Random
from .scores.requested_to_capacity_ratio import RequestedToCapacityRatio
from .scores.utilization import Utilization
from .vmids.range import Range
from .vmids.regex import Regex
from .volumes.storage_balance import StorageBalance
from .volumes.template_locality import TemplateLocality
from .volumes.volume_binding import VolumeBinding

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
    CPUModel,
    VCPULimit,
    HARules,
    CPUOvercommit,
    MemoryOvercommit,
    GuestLimit,
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
    """A new registry with the built-in plugins, to which others may be added."""
    return Registry(BUILTIN)
