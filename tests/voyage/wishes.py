# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster of every history, and what its controllers want of it."""

from __future__ import annotations

import functools
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.qemu_scheduler.proxmox.plugins.modules.qemu_schedule import argument_spec

NAMES = ("web-1", "web-2", "web-3", "web-4", "db-1", "db-2")
VMIDS = {name: f"{200 + 10 * number}-{209 + 10 * number}" for number, name in enumerate(NAMES)}

CLUSTER: dict[str, t.Any] = {
    "version": "9.2",
    "nodes": [{"name": f"pve{number}", "cores": 16, "memory": 2700, "bridges": ["vmbr0"]} for number in (1, 2, 3, 4)],
    "storages": [
        {"name": "local", "type": "dir", "content": ["iso", "import"], "size": 60},
        {"name": "shared", "type": "rbd", "shared": True, "content": ["images", "rootdir"], "size": 200},
    ],
    "guests": [
        {"vmid": 100, "name": "base", "node": "pve2", "type": "lxc", "cores": 1, "memory": 64, "status": "running",
         "config": {"rootfs": "shared:vm-100-disk-0,size=8G"}},
        {"vmid": 9000, "name": "golden", "node": "pve1", "cores": 1, "memory": 2048, "template": True,
         "disks": {"scsi0": "shared:4"}, "config": {"net0": "virtio,bridge=vmbr0"}},
    ],
}  # fmt: skip


def wanted(name: str) -> dict[str, t.Any]:
    """What a task says of a VM. Each node has room for one web server, so that all four are needed for them. The
    databases are small, and kept apart; web-3 is a clone.
    """
    body: dict[str, t.Any] = {"name": name, "state": "started", "cores": 1, "memory": 2048 if "web" in name else 128}
    if name == "web-3":
        return {**body, "clone": "golden"}
    if name.startswith("db"):
        body["affinity"] = [{"type": "apart", "name": "db-.*", "topology_key": "node"}]
    return {**body, "scsi": {"scsi0": "shared:1"}}


@functools.cache
def parameters() -> dict[str, t.Any]:
    """The options of a task, as its module has them."""
    given = {
        "api_host": ["pve1.example"],
        "api_user": "automation@pve",
        "api_token_id": "ansible",
        "api_token_secret": "to be set",
        "validate_certs": False,
        "all_or_nothing": False,
        "parallel_creates": 2,
        "plugin_config": {"filters": {"MemoryOvercommit": {"config": {"include_stopped": True}}}},
        "vms": [wanted(name) for name in NAMES],
    }
    result = ArgumentSpecValidator(argument_spec()).validate(given)
    if result.error_messages:
        raise ValueError(result.error_messages)
    return t.cast("dict[str, t.Any]", result.validated_parameters)
