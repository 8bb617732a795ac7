# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures what users wait for: tasks that only read a small and a large cluster, and plan."""

from __future__ import annotations

import statistics
import typing as t

from . import inventory
from .playbooks import Controller, Run, Task, controller
from .plots import Plot
from .report import Cell, Section, Table

SIZES = ((3, 67), (50, 25))
"""Nodes, and guests on each: about 200 and 1,250 guests."""

OURS, PEER = "qemu_scheduler.proxmox", "community.proxmox"

LISTING, LIKE_LISTING = "vm_list_info", "proxmox_vm_info"
PLANNING: dict[str, dict[str, t.Any]] = {
    "capacity_info": {"cores": 2, "memory": 4096, "n_plus_one": True},
    "node_drain": {"name": ["pve1"]},
    "cluster_rebalance": {},
}
"""The modules that plan, with their options."""


def measure(quick: bool) -> Section:
    """Run each task in check mode; quick: once, on the small cluster."""
    rounds, sizes = (1, SIZES[:1]) if quick else (3, SIZES)
    table = Table(
        "Tasks that read and plan",
        ["task", "nodes", "guests", "seconds", "requests", "like it", "seconds", "requests"],
        notes=[
            f"Seconds are the median of {rounds}. Tasks run in check mode; the inventory is read by ansible-inventory.",
            f"Like it: what {PEER} has.",
            "By used: all nodes but one are busy, so that the statistics of all their guests are read.",
        ],
    )
    lines: dict[str, list[tuple[float, float]]] = {}
    for nodes, guests_per_node in sizes:
        with controller(nodes, guests_per_node=guests_per_node, cores=128, memory=1_048_576) as ansible:
            for cells in [*_of_cluster(ansible, rounds), _by_use(ansible, nodes, rounds)]:
                guests = nodes * guests_per_node
                table.rows.append([cells[0], nodes, guests, *cells[1:]])
                lines.setdefault(str(cells[0]), []).append((float(guests), t.cast("float", cells[1])))
                if cells[4] is not None:
                    lines.setdefault(str(cells[3]), []).append((float(guests), t.cast("float", cells[4])))
    plot = Plot("benchmark-modules", "Tasks that read and plan", "guests", "seconds", lines)
    return Section("modules", [table], [plot])


def _of_cluster(ansible: Controller, rounds: int) -> list[list[Cell]]:
    """For each task its seconds and requests, and those of the peer."""
    listed, *listing = _run(ansible, f"{OURS}.{LISTING}", {}, rounds)
    like = _run(ansible, f"{PEER}.{LIKE_LISTING}", {"config": "current"}, rounds)[1:]
    planning = {"fleet_info": {"vms": listed.results[0]["vms"]}, **PLANNING}
    requests, seconds = inventory.measured(ansible.cluster, ansible.folder, {"plugin": inventory.OURS}, rounds)
    peers, peer_seconds = inventory.measured(ansible.cluster, ansible.folder, inventory.login(ansible.cluster), rounds)
    return [
        [LISTING, *listing, LIKE_LISTING, *like],
        ["inventory", seconds, requests, inventory.PEER, peer_seconds, peers],
        *(
            [name, *_run(ansible, f"{OURS}.{name}", with_, rounds)[1:], None, None, None]
            for name, with_ in planning.items()
        ),
    ]


def _by_use(ansible: Controller, nodes: int, rounds: int) -> list[Cell]:
    """Balance by use where all nodes but one are busy: what each of their guests used is read, and is not kept."""
    for number in range(1, nodes):
        ansible.cluster.set_node(f"pve{number}", load={"cpu": [0.8]})
    options = {"balance": {"by": "used"}, "reservations": "none"}
    measured = _run(ansible, f"{OURS}.cluster_rebalance", options, rounds)[1:]
    return ["cluster_rebalance, by used", *measured, None, None, None]


def _run(ansible: Controller, module: str, options: dict[str, t.Any], rounds: int) -> tuple[Run, float, int]:
    """The last run of a task in check mode, the median of its seconds, and its requests."""
    task: Task = {module: options, "check_mode": True}
    ansible.run(task)  # the first contact, and files that are not in memory yet
    runs = [ansible.run(task) for _ in range(rounds)]
    return runs[-1], statistics.median(run.seconds for run in runs), len(runs[-1].requests)
