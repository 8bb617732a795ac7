# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The short form: many like nodes and guests from a few numbers, the same every time for the same seed."""

from __future__ import annotations

import random
from typing import Any

KNOWN = ("nodes", "guests_per_node", "seed", "cores", "memory", "running", "first_vmid", "template")


def generate(data: dict[str, Any]) -> dict[str, Any]:
    """The description, with the nodes and guests that ``generate`` requests added to those that it lists."""
    wish = data["generate"]
    unknown = sorted(set(wish) - set(KNOWN))
    if unknown:
        raise ValueError(f"generate: unknown key(s) {', '.join(unknown)}; known: {', '.join(KNOWN)}")
    rng = random.Random(wish.get("seed", 0))
    result = {key: value for key, value in data.items() if key != "generate"}
    count, per_node = int(wish.get("nodes", 3)), int(wish.get("guests_per_node", 0))
    cores, memory = int(wish.get("cores", 32)), int(wish.get("memory", 131072))
    result["nodes"] = list(data.get("nodes") or []) + [
        {
            "name": f"pve{number}", "cores": cores, "memory": memory, "bridges": ["vmbr0", "vmbr1"],
            "cpu_use": round(rng.uniform(0.02, 0.4), 3), "memory_use": round(rng.uniform(0.05, 0.3), 3),
        }
        for number in range(1, count + 1)
    ]
    result["storages"] = list(data.get("storages") or []) or [
        {"name": "local", "type": "dir", "content": ["iso", "vztmpl", "backup", "import"], "size": 100},
        {"name": "local-lvm", "type": "lvmthin", "content": ["images", "rootdir"], "size": 2000},
        {"name": "ceph-vm", "type": "rbd", "shared": True, "content": ["images", "rootdir"], "size": 20000 * count},
    ]
    result["guests"] = list(data.get("guests") or []) + _guests(wish, rng, count, per_node)
    return result


def _guests(wish: dict[str, Any], rng: random.Random, count: int, per_node: int) -> list[dict[str, Any]]:
    vmid = int(wish.get("first_vmid", 100))
    running = float(wish.get("running", 0.8))
    guests: list[dict[str, Any]] = []
    if wish.get("template"):
        guests.append({
            "vmid": 9000, "name": str(wish["template"]), "node": "pve1", "cores": 2, "memory": 2048, "template": True,
            "disks": {"scsi0": "ceph-vm:4"}, "config": {"ide2": "ceph-vm:cloudinit", "agent": "1"},
        })
    for number in range(1, count + 1):
        for _ in range(per_node):
            while vmid == 9000:
                vmid += 1
            guests.append({
                "vmid": vmid, "name": f"vm{vmid}", "node": f"pve{number}", "cores": rng.choice([1, 2, 2, 4]),
                "memory": rng.choice([1024, 2048, 2048, 4096]),
                "status": "running" if rng.random() < running else "stopped",
                "disks": {"scsi0": f"local-lvm:{rng.choice([8, 16, 32])}"},
            })
            vmid += 1
    return guests
