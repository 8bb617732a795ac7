# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clusters of histories, and what controllers want of them.

A cluster is tight or roomy. In a tight one each node has room for one web server, so that all four nodes are needed for
them. In a roomy one controllers drain nodes and rebalance, too; some VMs are HA resources, and one has a local disk.
There may be HA rules: the databases are kept apart from one container, and a web server and another container
off a node.
"""

from __future__ import annotations

import functools
import pickle
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Request
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import ONE_VM_OPTIONS
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import build_entries
from ansible_collections.qemu_scheduler.proxmox.plugins.modules import (
    cluster_rebalance,
    maintenance_tour,
    node_drain,
    qemu_schedule,
)

NAMES = ("web-1", "web-2", "web-3", "web-4", "db-1", "db-2")
VMIDS = {name: f"{200 + 10 * number}-{209 + 10 * number}" for number, name in enumerate(NAMES)}
TEMPLATE = "golden"
OPS = "ops"
"""The pool of the controllers' VMs, where others have VMs, too."""

TENANT = "tenant"
"""The pool of those who have VMs of their own in the cluster."""

NODES = ("pve1", "pve2", "pve3", "pve4")
MODULES: dict[str, t.Any] = {
    "qemu_schedule": qemu_schedule,
    "node_drain": node_drain,
    "maintenance_tour": maintenance_tour,
    "cluster_rebalance": cluster_rebalance,
}
TIGHT_MEMORY, ROOMY_MEMORY = 2700, 4600
"""MiB of each node: room for one web server and a database, or for two of each, beside containers."""

HA_RULES = {"web-1": "not-pve4", "db-1": "apart", "db-2": "apart"}
"""The rules that VMs join. Whichever VM comes last, there is room for it with one node drained, and no guest moved."""

APART = {"type": "apart", "name": "db-.*", "topology_key": "node"}


def cluster(*, roomy: bool, ruled: bool = False) -> dict[str, t.Any]:
    """The description of a cluster."""
    # A rule has a resource at least.
    rules = {
        "resources": [{"sid": "ct:100", "state": "started"}, {"sid": "ct:199", "state": "started"}],
        "rules": [
            {"rule": "apart", "type": "resource-affinity", "affinity": "negative", "resources": "ct:100"},
            {"rule": "not-pve4", "type": "node-affinity", "nodes": "pve1,pve2,pve3", "strict": 1,
             "resources": "ct:199"},
        ],
    }  # fmt: skip
    mail = {"vmid": 199, "name": "mail", "node": "pve3", "type": "lxc", "cores": 1, "memory": 64, "status": "running",
            "config": {"rootfs": "shared:vm-199-disk-0,size=8G"}}  # fmt: skip
    memory = ROOMY_MEMORY if roomy else TIGHT_MEMORY
    return {
        "version": "9.2",
        "nodes": [{"name": name, "cores": 16, "memory": memory, "bridges": ["vmbr0"]} for name in NODES],
        "storages": [
            {"name": "local", "type": "dir", "content": ["iso", "import"], "size": 60},
            {"name": "fast", "type": "lvmthin", "content": ["images"], "size": 20},
            {"name": "shared", "type": "rbd", "shared": True, "content": ["images", "rootdir"], "size": 200},
        ],
        "guests": [
            {"vmid": 100, "name": "base", "node": "pve2", "type": "lxc", "cores": 1, "memory": 64,
             "status": "running", "config": {"rootfs": "shared:vm-100-disk-0,size=8G"}},
            {"vmid": 9000, "name": TEMPLATE, "node": "pve1", "cores": 1, "memory": 2048, "template": True,
             "disks": {"scsi0": "shared:4"}, "config": {"net0": "virtio,bridge=vmbr0"}},
            *([mail] if ruled else []),
        ],
        "pools": [OPS, TENANT],
        "ha": rules if ruled else {},
    }  # fmt: skip


def wanted(name: str, *, roomy: bool, ruled: bool) -> dict[str, t.Any]:
    """What a task says of a VM. The databases are small, and kept apart; web-3 is a clone."""
    body: dict[str, t.Any] = {"name": name, "state": "started", "cores": 1, "memory": 2048 if "web" in name else 128}
    if name == "web-3":
        return {**body, "clone": TEMPLATE}
    if ruled and name in HA_RULES:
        body["ha"] = {"state": "started", "rule": HA_RULES[name]}
    elif roomy and name in ("web-2", "db-1"):
        body["ha"] = {"state": "started"}
    if name.startswith("db"):
        body["affinity"] = [APART]
    return {**body, "scsi": {"scsi0": "fast:1" if roomy and name == "web-4" else "shared:1"}}


@functools.cache
def _parameters(module: str, *, roomy: bool, ruled: bool) -> bytes:
    given: dict[str, t.Any] = {
        "api_host": ["pve1.example"],
        "api_user": "automation@pve",
        "api_token_id": "ansible",
        "api_token_secret": "to be set",
        "validate_certs": False,
        "plugin_config": {"filters": {"MemoryOvercommit": {"config": {"include_stopped": True}}}},
    }
    if module == "qemu_schedule":
        vms = [wanted(name, roomy=roomy, ruled=ruled) for name in NAMES]
        given |= {"all_or_nothing": False, "parallel_creates": 2, "vms": vms}
    else:
        given |= {"containers": "restart", "timeout": 300, "rules": [{"type": "anti-affinity", "name": "db-.*"}]}
    if module == "node_drain":
        given["name"] = ["pve1"]
    if module == "maintenance_tour":
        given["guests"] = [{"status": "stopped", "immovable": True, "action": "stay"}]
    result = ArgumentSpecValidator(MODULES[module].argument_spec()).validate(given)
    if result.error_messages:
        raise ValueError(result.error_messages)
    return pickle.dumps(result.validated_parameters)


def parameters(module: str = "qemu_schedule", *, roomy: bool = False, ruled: bool = False) -> dict[str, t.Any]:
    """The options of a task, as its module has them; the caller may change them."""
    return t.cast("dict[str, t.Any]", pickle.loads(_parameters(module, roomy=roomy, ruled=ruled)))


@functools.cache
def requests(*, roomy: bool = False, ruled: bool = False) -> dict[str, Request]:
    """What a task requests, by the names of the VMs."""
    entries = build_entries(parameters(roomy=roomy, ruled=ruled), ONE_VM_OPTIONS, 0.0)
    return {entry.request.name: entry.request for entry in entries}
