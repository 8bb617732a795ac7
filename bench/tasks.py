# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one task costs: in the worker process, as a module, and beside tasks that do nothing."""

from __future__ import annotations

import statistics

from . import shapes
from .playbooks import Controller, Task, controller
from .report import Section, Table, ratio

NODES = 3
PING = "ansible.builtin.ping"
UNCHANGED = "qemu_schedule, unchanged VM"
MODULE = {"QEMU_SCHEDULER_EXECUTION": "module"}


def measure(quick: bool) -> Section:
    """Run each task on one host and on many, and take the difference: what ansible-playbook itself costs goes out."""
    hosts, rounds = (6, 1) if quick else (21, 5)
    cpu = Table("CPU of one task", ["task", "CPU [ms]", f"against {PING}"])
    wall = Table("Creation of one VM on a quiet cluster", ["task", "task [s]", "against proxmox_kvm"])
    with controller(NODES) as ansible:
        ansible.run(shapes.ours(name="here"))
        costs = {
            "ansible.builtin.set_fact": _cost(ansible, {"ansible.builtin.set_fact": {"nothing": 1}}, hosts),
            PING: _cost(ansible, {PING: {}}, hosts),
            UNCHANGED: _cost(ansible, shapes.ours(name="here"), hosts),
            f"{UNCHANGED}, as a module": _cost(ansible, shapes.ours(name="here"), hosts, MODULE),
        }
        cpu.rows += [[task, seconds * 1000, f"{seconds / costs[PING]:.2f}x"] for task, seconds in costs.items()]
        ours, peer = [], []
        for number in range(rounds):
            ours.append(ansible.run(shapes.ours(name=f"ours-{number}")).seconds)
            peer.append(ansible.run(shapes.peer(f"peer-{number}", shapes.by_hand(0, NODES))).seconds)
        ours_s, peer_s = statistics.median(ours), statistics.median(peer)
        wall.rows += [["qemu_schedule", ours_s, ratio(peer_s, ours_s)], ["proxmox_kvm", peer_s, None]]
        wall.notes.append(f"The median of {rounds}.")
    return Section("tasks", [cpu, wall])


def _cost(ansible: Controller, task: Task, hosts: int, environment: dict[str, str] | None = None) -> float:
    """CPU seconds of one more task."""
    names = [f"host-{number}" for number in range(hosts)]
    one = ansible.run(task, hosts=names[:1], environment=environment).cpu_seconds
    many = ansible.run(task, hosts=names, environment=environment).cpu_seconds
    return (many - one) / (hosts - 1)
