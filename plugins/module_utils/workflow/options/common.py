# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that several modules share, apart from those of a VM and of the connection."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping

from ...proxmox.api.session import connection_argument_spec
from ...proxmox.options.table import VM_ARGUMENT_SPEC
from ...proxmox.options.values import check_seconds
from .entries import GUARD_OPTIONS, STATES
from .rules import GUEST_RULE_OPTIONS, RULE_OPTIONS
from .task import COUNT_OPTIONS

STEPS_PER_SECOND = 100_000
"""How many steps of a search stand for one second of C(search_time), so that results do not depend on the machine."""

Spec = dict[str, dict[str, t.Any]]

SKIP = "skip"
"""The value of C(when_unreachable) for which clusters that do not answer are left out."""

PLACEMENT_OPTIONS: t.Final[Spec] = {
    "node": {"type": "str", "aliases": ["target"]},
    "node_regex": {"type": "str"},
    "cluster": {"type": "list", "elements": "str"},
    "vmid_range": {"type": "str"},
    "vmid_regex": {"type": "str"},
    "context": {"type": "dict"},
}
"""The options for where the VM may be placed, and which VMID it may have."""

CLAIM: Spec = {
    "class": {"type": "str"},
    "mapping": {"type": "str"},
    "driver": {"type": "str", "choices": ["pci", "usb"]},
    "count": {"type": "int"},
    "constraints": {"type": "list", "elements": "str"},
    "match_attributes": {"type": "list", "elements": "str"},
    "mdev": {"type": "str"},
    "options": {"type": "dict"},
}
"""The options of a device claim, or of one of its alternatives."""

DEVICE_OPTIONS: t.Final[Spec] = {
    "devices": {
        "type": "list",
        "elements": "dict",
        "options": {
            "name": {"type": "str", "required": True},
            **CLAIM,
            "one_of": {"type": "list", "elements": "dict", "options": CLAIM},
        },
    }
}
"""The option for the passthrough devices that a VM claims."""

DEVICE_CLASS_OPTIONS: t.Final[Spec] = {"device_classes": {"type": "dict"}, "device_attributes": {"type": "dict"}}
"""The options for what all VMs of a run may claim."""

DEFAULTS: t.Final = {
    "state": "present",
    "update": False,
    "limits": "enforce",
    "apply_pending": "never",
    "priority": "0",
}
"""Defaults of a VM's options that neither its entry of C(vms) nor the top level sets.

They are part of the spec of the top level only. In that of the entries, they would hide the values of the top level.
"""


ONE_VM_OPTIONS: t.Final[Spec] = {
    # what it is, and what it is made from
    "name": {"type": "str"},
    "per_node": {"type": "bool"},
    "vmid": {"type": "int", "aliases": ["newid"]},
    "pool": {"type": "str"},
    "clone": {"type": "raw"},
    "full": {"type": "bool"},
    "storage": {"type": "str"},
    "storage_class": {"type": "str"},
    "format": {"type": "str", "choices": ["cloop", "cow", "qcow", "qcow2", "qed", "raw", "vmdk", "unspecified"]},
    "snapname": {"type": "str"},
    "archive": {"type": "str"},
    "unique": {"type": "bool"},
    "state": {"type": "str", "choices": list(STATES)},
    "update": {"type": "bool"},
    "rename": {"type": "bool"},
    "adopt": {"type": "bool"},
    "accept_unknown": {"type": "bool"},
    "limits": {"type": "str", "choices": ["enforce", "warn"]},
    "apply_pending": {"type": "str", "choices": ["never", "reboot"]},
    **VM_ARGUMENT_SPEC,
    # where it may be
    **PLACEMENT_OPTIONS,
    **RULE_OPTIONS,
    **DEVICE_OPTIONS,
    "addresses": {"type": "dict"},
    # its host in the inventory
    "host_groups": {"type": "list", "elements": "str"},
    "host_vars": {"type": "dict"},
    **GUARD_OPTIONS,
}
"""All options of one VM in an entry of C(vms)."""


def vms_argument_spec(key: str = "vms", *, required: bool = False) -> Spec:
    """Return a list of VMs, called key, and at the top level the options of one VM as the defaults of all entries."""
    entry = {"type": "list", "elements": "dict", "options": {**ONE_VM_OPTIONS, **COUNT_OPTIONS}}
    defaults = {name: {**ONE_VM_OPTIONS[name], "default": value} for name, value in DEFAULTS.items()}
    return {**ONE_VM_OPTIONS, **defaults, key: {**entry, "required": True} if required else entry}


LIVE_OPTIONS: t.Final[Spec] = {**connection_argument_spec(), "reservations": {"type": "str", "default": "default"}}
"""The options for the live cluster, and how decisions about it are shared."""

CLUSTER_OPTIONS: t.Final[Spec] = {**LIVE_OPTIONS, "snapshot": {"type": "raw"}}
"""The options for the cluster, live or recorded, and how decisions about it are shared."""

METRICS_OPTIONS: t.Final[Spec] = {
    "metrics": {"type": "dict", "options": {"nodes": {"type": "dict"}, "guests": {"type": "dict"}}}
}
"""The option for what the monitoring of the site says that nodes and guests used."""

CLUSTERS_OPTIONS: t.Final[Spec] = {
    "clusters": {
        "type": "list",
        "elements": "dict",
        "options": {
            "name": {"type": "str", "required": True},
            "labels": {"type": "dict"},
            "nodes": {"type": "dict"},
            **METRICS_OPTIONS,
            "snapshot": {"type": "raw"},
            # Neither defaults nor the environment: they are those of the task's own connection.
            **{
                name: {key: value for key, value in spec.items() if key in ("type", "elements", "no_log")}
                for name, spec in connection_argument_spec().items()
            },
        },
    },
    "when_unreachable": {"type": "str", "choices": ["fail", SKIP], "default": "fail"},
}
"""The options for the clusters, and for what to do if one of them cannot be reached."""

PROFILE_OPTIONS: t.Final[Spec] = {
    "plugin_config": {"type": "raw"},
    "plugin_paths": {"type": "list", "elements": "path", "default": []},
    "nodes": {"type": "dict", "default": {}},
    "storage_classes": {"type": "dict", "default": {}},
    **METRICS_OPTIONS,
    **GUEST_RULE_OPTIONS,
}
"""The options for the rules by which guests are placed, and for what the user configures about the nodes."""

RUN_OPTIONS: t.Final[Spec] = {
    **PROFILE_OPTIONS,
    "priority_classes": {"type": "dict", "default": {}},
    "open_gates": {"type": "list", "elements": "str", "default": []},
    "address_pools": {"type": "dict", "default": {}},
    **DEVICE_CLASS_OPTIONS,
}
"""The options for all VMs of a run."""

SEARCH_OPTIONS: t.Final[Spec] = {"search_time": {"type": "float", "default": 2.0}}
"""The option for how long places and moves are searched."""

_CAPS = {"cluster": 4, "per_node_in": 2, "per_node_out": 2, "per_link": 2}

MOVES_OPTIONS: t.Final[Spec] = {
    "containers": {"type": "str", "choices": ["skip", "restart"], "default": "skip"},
    "vms_not_live": {"type": "str", "choices": ["skip", "restart"], "default": "skip"},
    "offline": {"type": "bool", "default": True},
    "local_disks": {"type": "bool", "default": True},
    "max_moves": {"type": "int"},
    "max_transfer": {"type": "float"},
    "parallel": {"type": "dict", "options": {name: {"type": "int", "default": most} for name, most in _CAPS.items()}},
    "bwlimit": {"type": "int"},
    "timeout": {"type": "int", "default": 3600},
}
"""Which moves are permitted, and how they are made."""


def search_steps(params: Mapping[str, t.Any]) -> int:
    """Return how many steps C(search_time) allows. Raises InvalidRequest."""
    seconds: float = params["search_time"]
    check_seconds("search_time", seconds)
    return math.ceil(seconds * STEPS_PER_SECOND)
