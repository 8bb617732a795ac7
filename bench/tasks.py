# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the cost of one task in the worker process and as a module, compared with tasks that do nothing."""

from __future__ import annotations

import statistics
import subprocess
import sys

from . import shapes
from .playbooks import Controller, Task, controller, cpu_of_children
from .report import Section, Table, ratio, yes_or_no

NODES = 3
PING = "ansible.builtin.ping"
UNCHANGED = "qemu_schedule, unchanged VM"
AS_MODULE = f"{UNCHANGED}, as a module"
MODULE = {"QEMU_SCHEDULER_EXECUTION": "module"}

GOALS = {UNCHANGED: 0.5, AS_MODULE: 2.5}
"""In pings."""

LIBRARIES = f"{PING}, and importing requests and proxmoxer"
"""What no module that uses them can fall below, whatever it does."""

LIMITS = {
    AS_MODULE: "Ansible packs a module as source, so that each run compiles some 130 modules of the collection again; "
    f"no module can take less than the row '{LIBRARIES}'."
}
ROLE = "role provision"
ROLE_GOAL = 1.3
ROLE_VMS = 12
ROLE_LIMIT = (
    "Ansible starts a process for each of the role's nine other tasks, also for those that it skips. Each compiles the "
    "templates that it needs, and loads Ansible's filters, and ours, if one of them has any. "
    "The largest part is the task that adds the VMs to the inventory: Ansible prepares it again for each VM. "
    "One action in place of these tasks could not add several hosts, nor set facts as set_fact does."
)
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
            LIBRARIES: 0.0,
            AS_MODULE: _cost(ansible, shapes.ours(name="here"), hosts, MODULE),
        }
        costs[LIBRARIES] = costs[PING] + _cost_of_libraries(rounds)
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
        role = _role(ansible, rounds)
    return Section("tasks", [cpu, role, wall])


def _role(ansible: Controller, rounds: int) -> Table:
    """The role beside the task that it consists of, for VMs that exist."""
    table = Table(
        f"CPU of ansible-playbook, {ROLE_VMS} VMs that exist",
        ["play", "CPU [ms]", "against the task alone", "goal: at most", "reached"],
    )
    names = [f"web-{number}" for number in range(ROLE_VMS)]
    task = shapes.ours_many(names)
    options = {key: value for key, value in task[shapes.OURS].items() if key != "vms"}
    role = {
        "ansible.builtin.include_role": {"name": "qemu_scheduler.proxmox.provision"},
        "vars": {"qemu_vms": task[shapes.OURS]["vms"], "qemu_options": options, "provision_state": "present"},
    }
    ansible.run(task)
    alone, whole = (min(ansible.run(play).cpu_seconds for _ in range(rounds)) for play in (task, role))
    reached = whole / alone <= ROLE_GOAL
    table.rows.append(["the task of qemu_schedule", alone * 1000, "1.00x", None, None])
    table.rows.append([ROLE, whole * 1000, f"{whole / alone:.2f}x", f"{ROLE_GOAL:.2f}x", yes_or_no(reached)])
    if not reached:
        table.explain(ROLE, ROLE_LIMIT)
    return table


def _cost(ansible: Controller, task: Task, hosts: int, environment: dict[str, str] | None = None) -> float:
    """CPU seconds of one more task."""
    names = [f"host-{number}" for number in range(hosts)]
    one = ansible.run(task, hosts=names[:1], environment=environment).cpu_seconds
    many = ansible.run(task, hosts=names, environment=environment).cpu_seconds
    return (many - one) / (hosts - 1)


def _cost_of_libraries(rounds: int) -> float:
    """CPU seconds of importing the libraries into a process that has imported what each module does."""
    without = "import ansible.module_utils.basic"
    programs = (without, f"{without}, proxmoxer.backends.https")
    least, most = (min(_cpu_of(program) for _ in range(rounds)) for program in programs)
    return most - least


def _cpu_of(program: str) -> float:
    began = cpu_of_children()
    subprocess.run([sys.executable, "-c", program], check=True)
    return cpu_of_children() - began
