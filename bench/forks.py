# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times many forks of Ansible, each of which creates its own VM at the same moment."""

from __future__ import annotations

from collections.abc import Sequence

from . import shapes
from .playbooks import Controller, Run, Task, controller
from .report import Cell, Section, Table, number, ratio

NODES = 16
FASTER = 15
"""How many times as fast as the peer with throttle: 1 so many forks are wanted to be."""

COLUMNS = ["", "created", "VMIDs", "wrong VMID", "failed", "task [s]", "CPU [s]", "requests", "polls"]


def measure(quick: bool) -> Section:
    """Race with 10 forks and with 50; quick: with 3 and 4."""
    few, many = (3, 4) if quick else (10, 50)
    return Section("forks", [_race(few), _beside_throttle(many)])


def _race(forks: int) -> Table:
    table = Table(f"{forks} forks, each its own VM, at the same moment", COLUMNS)
    for label, task in (("qemu_schedule", _ours()), ("proxmox_kvm", _peer())):
        run, cells = _run(task, forks)
        table.rows.append([label, *cells])
        table.notes += [f"{label}, the first failure: {text}" for text in run.failures[:1]]
    table.notes.append(
        "VMIDs: how many different ones were reported. Wrong VMID: reported as ok, but the VM of that VMID is another."
    )
    return table


def _beside_throttle(forks: int) -> Table:
    table = Table(f"{forks} forks, each its own VM, at the same moment, beside proxmox_kvm with throttle: 1", COLUMNS)
    ours, cells = _run(_ours(), forks)
    table.rows.append(["qemu_schedule", *cells])
    peer, cells = _run({**_peer(), "throttle": 1}, forks)
    table.rows.append(["proxmox_kvm, throttle: 1", *cells])
    with controller(NODES) as ansible:
        nothing = ansible.run(
            {"name": "nothing", "ansible.builtin.ping": {}, "delegate_to": "localhost"}, hosts=hosts(forks)
        )
    table.notes += [
        f"{ratio(peer.seconds, ours.seconds)} faster; the goal is {FASTER}x.",
        f"Ansible itself takes {number(nothing.seconds)} s, and {number(nothing.cpu_seconds)} s of CPU, for {forks} "
        "forks that do nothing (ansible.builtin.ping).",
    ]
    if peer.seconds / ours.seconds < FASTER:
        table.explain(
            f"{FASTER}x",
            f"Starting and ending {forks} forks takes Ansible most of the time that the goal leaves, and the forks "
            "share the CPUs of the machine with the simulated cluster.",
        )
    return table


def _run(task: Task, forks: int) -> tuple[Run, Sequence[Cell]]:
    with controller(NODES) as ansible:
        run = ansible.run(task, hosts=hosts(forks), must_succeed=False)
        return run, _row(ansible, run)


def _row(ansible: Controller, run: Run) -> Sequence[Cell]:
    there = {vmid: guest["name"] for vmid, guest in ansible.cluster.state()["guests"].items()}
    ok = [result for result in run.results if not result.get("failed")]
    wrong = sum(there.get(int(result["vmid"])) != _name_of(result) for result in ok)
    created = sum(name.startswith("web-") for name in there.values())
    vmids = len({int(result["vmid"]) for result in ok})
    return [created, vmids, wrong, len(run.failures), run.seconds, run.cpu_seconds, len(run.requests), run.polls]


def _name_of(result: dict[str, object]) -> object:
    """The VM that was asked for, from what the module was called with."""
    invocation = result["invocation"]
    assert isinstance(invocation, dict)
    return invocation["module_args"]["name"]


def hosts(forks: int) -> list[str]:
    """The names of so many hosts, each with a VM of its name."""
    return [f"web-{number}" for number in range(forks)]


def _ours() -> Task:
    return {**shapes.ours(name="{{ inventory_hostname }}"), "delegate_to": "localhost"}


def _peer() -> Task:
    node = "pve{{ inventory_hostname.split('-')[1] | int % " + str(NODES) + " + 1 }}"
    return shapes.peer("{{ inventory_hostname }}", node, delegate_to="localhost")
