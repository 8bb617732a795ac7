# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that several modules share, apart from those of a VM and of the connection."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping

from ...proxmox.api.session import connection_argument_spec
from ...proxmox.options.table import vm_argument_spec
from ...proxmox.options.values import check_seconds
from .entries import STATES, guard_argument_spec
from .rules import guest_rules_argument_spec, rules_argument_spec
from .task import count_argument_spec

STEPS_PER_SECOND = 100_000
"""How many steps of a search stand for one second of C(search_time), so that results do not depend on the machine."""

Spec = dict[str, dict[str, t.Any]]

SKIP = "skip"
"""The value of C(when_unreachable) for which clusters that do not answer are left out."""

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


def identity_argument_spec() -> Spec:
    """Return the options for the VM's identity and for what to make it from."""
    return {
        "name": {"type": "str"},
        "per_node": {"type": "bool"},
        "vmid": {"type": "int", "aliases": ["newid"]},
        "pool": {"type": "str"},
        "clone": {"type": "raw"},
        "full": {"type": "bool"},
        "storage": {"type": "str"},
        "storage_class": {"type": "str"},
        "format": {
            "type": "str",
            "choices": ["cloop", "cow", "qcow", "qcow2", "qed", "raw", "vmdk", "unspecified"],
        },
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
    }


def placement_argument_spec() -> Spec:
    """Return the options for where the VM may be placed, and which VMID it may have."""
    return {
        "node": {"type": "str", "aliases": ["target"]},
        "node_regex": {"type": "str"},
        "cluster": {"type": "list", "elements": "str"},
        "vmid_range": {"type": "str"},
        "vmid_regex": {"type": "str"},
        "context": {"type": "dict"},
    }


def devices_argument_spec() -> Spec:
    """Return the option for the passthrough devices that a VM claims."""
    options = {
        "name": {"type": "str", "required": True},
        **CLAIM,
        "one_of": {"type": "list", "elements": "dict", "options": dict(CLAIM)},
    }
    return {"devices": {"type": "list", "elements": "dict", "options": options}}


def device_classes_argument_spec() -> Spec:
    """Return the options for what all VMs of a run may claim."""
    return {"device_classes": {"type": "dict"}, "device_attributes": {"type": "dict"}}


def one_vm_argument_spec() -> Spec:
    """Return all options of one VM in an entry of C(vms)."""
    return {
        **identity_argument_spec(),
        **vm_argument_spec(),
        **placement_argument_spec(),
        **rules_argument_spec(),
        **devices_argument_spec(),
        "addresses": {"type": "dict"},
        "host_groups": {"type": "list", "elements": "str"},
        "host_vars": {"type": "dict"},
        **guard_argument_spec(),
    }


def vms_argument_spec(key: str = "vms", *, required: bool = False) -> Spec:
    """Return a list of VMs, called key, and at the top level the options of one VM as the defaults of all entries."""
    one_vm = one_vm_argument_spec()
    entry = {"type": "list", "elements": "dict", "options": {**one_vm, **count_argument_spec()}}
    defaults = {name: {**one_vm[name], "default": value} for name, value in DEFAULTS.items()}
    return {**one_vm, **defaults, key: {**entry, "required": True} if required else entry}


def live_argument_spec() -> Spec:
    """Return the options for the live cluster, and how decisions about it are shared."""
    return {**connection_argument_spec(), "reservations": {"type": "str", "default": "default"}}


def cluster_argument_spec() -> Spec:
    """Return the options for the cluster, live or recorded, and how decisions about it are shared."""
    return {**live_argument_spec(), "snapshot": {"type": "raw"}}


def clusters_argument_spec() -> Spec:
    """Return the options for the clusters, and for what to do if one of them cannot be reached."""
    connection = {
        name: {key: value for key, value in spec.items() if key in ("type", "elements", "no_log")}
        for name, spec in connection_argument_spec().items()
    }
    own = {
        "name": {"type": "str", "required": True},
        "labels": {"type": "dict"},
        "nodes": {"type": "dict"},
        "snapshot": {"type": "raw"},
    }
    return {
        "clusters": {"type": "list", "elements": "dict", "options": {**own, **connection}},
        "when_unreachable": {"type": "str", "choices": ["fail", SKIP], "default": "fail"},
    }


def profile_argument_spec() -> Spec:
    """Return the options for the rules by which guests are placed, and for what the user configures about the nodes."""
    return {
        "plugin_config": {"type": "raw"},
        "plugin_paths": {"type": "list", "elements": "path", "default": []},
        "nodes": {"type": "dict", "default": {}},
        "storage_classes": {"type": "dict", "default": {}},
        **guest_rules_argument_spec(),
    }


def search_argument_spec() -> Spec:
    """Return the option for how long places and moves are searched."""
    return {"search_time": {"type": "float", "default": 2.0}}


def search_steps(params: Mapping[str, t.Any]) -> int:
    """Return how many steps C(search_time) allows. Raises InvalidRequest."""
    seconds: float = params["search_time"]
    check_seconds("search_time", seconds)
    return math.ceil(seconds * STEPS_PER_SECOND)


def moves_argument_spec() -> Spec:
    """Which moves are permitted, and how they are made."""
    caps = {"cluster": 4, "per_node_in": 2, "per_node_out": 2, "per_link": 2}
    parallel: Spec = {name: {"type": "int", "default": most} for name, most in caps.items()}
    return {
        "containers": {"type": "str", "choices": ["skip", "restart"], "default": "skip"},
        "vms_not_live": {"type": "str", "choices": ["skip", "restart"], "default": "skip"},
        "offline": {"type": "bool", "default": True},
        "local_disks": {"type": "bool", "default": True},
        "max_moves": {"type": "int"},
        "max_transfer": {"type": "float"},
        "parallel": {"type": "dict", "options": parallel},
        "bwlimit": {"type": "int"},
        "timeout": {"type": "int", "default": 3600},
    }


def run_argument_spec() -> Spec:
    """Return the options for all VMs of a run."""
    return {
        **profile_argument_spec(),
        "priority_classes": {"type": "dict", "default": {}},
        "open_gates": {"type": "list", "elements": "str", "default": []},
        "address_pools": {"type": "dict", "default": {}},
        **device_classes_argument_spec(),
    }
