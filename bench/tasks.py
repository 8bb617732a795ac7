# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the cost of one task in the worker process and as a module, compared with tasks that do nothing."""

from __future__ import annotations

import statistics

from . import shapes
from .playbooks import Controller, Task, controller
from .report import Section, Table, ratio, yes_or_no

NODES = 3
PING = "ansible.builtin.ping"
UNCHANGED = "qemu_schedule, unchanged VM"
AS_MODULE = f"{UNCHANGED}, as a module"
MODULE = {"QEMU_SCHEDULER_EXECUTION": "module"}

GOALS = {UNCHANGED: 0.5, AS_MODULE: 2.0}
"""In pings. As a module: 30 % less than the 2.9 of the time when the goal was set."""

LIMITS = {
    AS_MODULE: "Ansible packs a module as source, so that each run compiles some 200 modules of the collection again; "
    "importing requests and proxmoxer takes about half a ping besides."
}
FASTER = 2.0
"""How many times as fast as the peer a creation is wanted to be."""


def measure(quick: bool) -> Section:
    """Run each task on one host and on many, and take the difference, which excludes the cost of ansible-playbook."""
    hosts, rounds = (6, 1) if quick else (21, 5)
    cpu = Table("CPU of one task", ["task", "CPU [ms]", f"against {PING}", "goal: at most", "reached"])
    wall = Table(
        "Creation of one VM on a quiet cluster",
        ["task", "task [s]", "faster than proxmox_kvm", "goal: at least", "reached"],
    )
    with controller(NODES) as ansible:
        ansible.run(shapes.ours(name="here"))
        costs = {
            "ansible.builtin.set_fact": _cost(ansible, {"ansible.builtin.set_fact": {"nothing": 1}}, hosts),
            PING: _cost(ansible, {PING: {}}, hosts),
            UNCHANGED: _cost(ansible, shapes.ours(name="here"), hosts),
            AS_MODULE: _cost(ansible, shapes.ours(name="here"), hosts, MODULE),
        }
        for task, seconds in costs.items():
            times, goal = seconds / costs[PING], GOALS.get(task)
            reached = None if goal is None else times <= goal
            shown = None if goal is None else f"{goal:.2f}x"
            cpu.rows.append([task, seconds * 1000, f"{times:.2f}x", shown, yes_or_no(reached)])
            if reached is False:
                cpu.explain(task, LIMITS.get(task, ""))
        ours, peer = [], []
        for number in range(rounds):
            ours.append(ansible.run(shapes.ours(name=f"ours-{number}")).seconds)
            peer.append(ansible.run(shapes.peer(f"peer-{number}", shapes.by_hand(0, NODES))).seconds)
        ours_s, peer_s = statistics.median(ours), statistics.median(peer)
        reached = yes_or_no(peer_s / ours_s >= FASTER)
        wall.rows.append(["qemu_schedule", ours_s, ratio(peer_s, ours_s), f"{FASTER:.1f}x", reached])
        wall.rows.append(["proxmox_kvm", peer_s, None, None, None])
        wall.notes.append(f"The median of {rounds}.")
    return Section("tasks", [cpu, wall])


def _cost(ansible: Controller, task: Task, hosts: int, environment: dict[str, str] | None = None) -> float:
    """CPU seconds of one more task."""
    names = [f"host-{number}" for number in range(hosts)]
    one = ansible.run(task, hosts=names[:1], environment=environment).cpu_seconds
    many = ansible.run(task, hosts=names, environment=environment).cpu_seconds
    return (many - one) / (hosts - 1)
