# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times many VMs in one task, and a loop of the peer over the same list."""

from __future__ import annotations

from simulated_cluster.cluster import Timing

from . import shapes
from .playbooks import Run, controller
from .plots import Plot
from .report import Section, Table, number, ratio

NODES = 16
OURS = (1, 2, 5, 10, 20, 50, 100, 200)
PEER = (1, 5, 20, 50)
PARALLEL = (4, 16)
"""The default of parallel_creates, and a number that a cluster of this size handles well."""

SECONDS_PER_VM = Timing.create_seconds + Timing.disk_seconds


def measure(quick: bool) -> Section:
    """Time lists of up to 200 VMs, those of the peer up to 50; quick: up to 5 and 2."""
    ours, peer = ((1, 5), (1, 2)) if quick else (OURS, PEER)
    sizes = sorted({*ours, *peer})
    columns = ["VMs", *(f"qemu_schedule, parallel_creates {p} [s]" for p in PARALLEL), "proxmox_kvm in a loop [s]"]
    table = Table(
        f"Creating VMs in one task, {NODES} nodes: wall time of the task",
        [*columns, *(f"ratio at {p}" for p in PARALLEL)],
    )
    seconds: dict[str, dict[float, float]] = {"proxmox_kvm, loop": {}}
    for size in sizes:
        times = {p: _ours(size, p).seconds if size in ours else None for p in PARALLEL}
        theirs = _peer(size).seconds if size in peer else None
        table.rows.append([size, *times.values(), theirs, *(ratio(theirs, value) for value in times.values())])
        for parallel, value in times.items():
            if value is not None:
                seconds.setdefault(f"qemu_schedule, {parallel} at once", {})[size] = value
        if theirs is not None:
            seconds["proxmox_kvm, loop"][size] = theirs
    table.notes += [
        f"Ansible itself takes {number(_baseline())} s for a task that does nothing.",
        f"The simulated Proxmox takes {SECONDS_PER_VM:.1g} s for one such VM, as a real one did: with N at once, V VMs "
        f"take V / N x {SECONDS_PER_VM:.1g} s at the least.",
        "The peer was not measured beyond what the table shows.",
    ]
    lines = {label: list(points.items()) for label, points in seconds.items()}
    plot = Plot("benchmark-batch", "Creating VMs in one task", "VMs", "seconds", lines)
    return Section("batch", [table], [plot])


def _ours(size: int, parallel: int) -> Run:
    with controller(NODES) as ansible:
        return ansible.run(shapes.ours_many(_names(size), parallel_creates=parallel))


def _peer(size: int) -> Run:
    with controller(NODES) as ansible:
        return ansible.run(shapes.peer_loop(_names(size), NODES))


def _baseline() -> float:
    with controller(NODES) as ansible:
        return ansible.run({"name": "nothing", "ansible.builtin.ping": {}}).seconds


def _names(size: int) -> list[str]:
    return [f"web-{number}" for number in range(size)]
