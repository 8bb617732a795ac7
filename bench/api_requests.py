# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts the API requests to create a VM, those of a re-run that changes nothing, and those of changes."""

from __future__ import annotations

import typing as t
from contextlib import ExitStack

from . import shapes
from .playbooks import Controller, Task, controller
from .report import Cell, Section, Table, ratio

CHANGES: dict[str, dict[str, t.Any]] = {
    "change its config": {"cores": 2, "update": True},
    "change it and grow a disk": {"cores": 3, "scsi": {"scsi0": {"size": 16}}, "update": True},
    "start it": {"state": "started"},
    "stop it": {"state": "stopped", "force": True},
    "delete it": {"state": "absent"},
}
"""What is done with an existing VM, one after the other."""

CONFIGS = ("/config", "/pending")

SETTLING_SECONDS = 35
"""Seconds until a cluster is quiet: three rounds of Proxmox's statistics after the end of the last task."""


def measure(quick: bool) -> Section:
    """Count on clusters of three sizes; quick: of one."""
    vms = 5 if quick else 20
    creating = Table(
        "API requests to create one VM (token login)",
        ["nodes", "first contact", "+ polls", "later", "+ polls", "proxmox_kvm", "+ polls", "ratio"],
        notes=[
            "First contact: the controller knows neither this address nor the bridges of the node that it chooses; one "
            "request reads those.",
            "Not reached: 4 requests at first contact, without network cards. The fifth finds out which cluster "
            "answers, before anything is reserved. Without it, two tasks that reach one cluster by two addresses would "
            "each give away its last room. If names identified a cluster, creating a VM on another "
            "cluster with the same names would end reservations of this one. If certificates identified it, "
            "a node that still has a certificate of an old CA would count as another cluster.",
            "Polls ask Proxmox how the task is getting on; the peer asks once a second.",
        ],
    )
    again = Table(
        f"API requests of a re-run that finds V = {vms} VMs as they should be",
        ["nodes", "at once", "quiet", "2 + V", "proxmox_kvm", "ratio"],
        notes=["At once: right after the creates, while Proxmox still shows VMs without names and sizes."],
    )
    changing = Table(
        "API requests to change an existing VM",
        ["task", "requests", "+ polls", "writes", "reads that prove"],
        notes=[
            "Reads that prove: of the VM's config, beyond the one that compares it with its request.",
            "Each write needs at most one, as its proof that the VMID still belongs to that VM.",
            "The first change of the config needs none: it carries the digest of the config that was compared.",
            "One more read checks that a VM may be deleted.",
        ],
    )
    following = Table(
        f"Polls of {vms} VMs that are created and started in one task",
        ["parallel_creates", "task [s]", "requests", "+ polls", "polls per VM", "goal: at most"],
    )
    names = [f"web-{number}" for number in range(vms)]
    with ExitStack() as stack:
        clusters = {nodes: stack.enter_context(controller(nodes)) for nodes in ((3,) if quick else (3, 16, 50))}
        for nodes, ansible in clusters.items():
            ansible.cluster.advance(SETTLING_SECONDS)
            creating.rows.append(_create(ansible, nodes))
        changing.rows.extend(_change(clusters[3], task, options) for task, options in CHANGES.items())
        for parallel in (4, 16):
            started = [f"app-{parallel}-{number}" for number in range(vms)]
            run = clusters[3].run(shapes.ours_many(started, state="started", parallel_creates=parallel))
            following.rows.append([parallel, run.seconds, len(run.requests), run.polls, run.polls / vms, 3])
        at_once = {}
        for nodes, ansible in clusters.items():
            ansible.run(shapes.ours_many(names, parallel_creates=16))
            at_once[nodes] = _unchanged(ansible, shapes.ours_many(names))
        for nodes, ansible in clusters.items():
            ansible.cluster.advance(SETTLING_SECONDS)
            quiet = _unchanged(ansible, shapes.ours_many(names))
            peer = _unchanged(ansible, shapes.peer_loop(names, nodes))
            again.rows.append([nodes, at_once[nodes], quiet, 2 + vms, peer, ratio(peer, quiet)])
    return Section("requests", [creating, following, again, changing])


def _create(ansible: Controller, nodes: int) -> list[Cell]:
    first = ansible.run(shapes.ours(name="first"))
    later = ansible.run(shapes.ours(name="later"))
    peer = ansible.run(shapes.peer("peer", shapes.by_hand(0, nodes)))
    counts = [count for run in (first, later, peer) for count in (len(run.requests), run.polls)]
    return [nodes, *counts, ratio(len(peer.requests), len(later.requests))]


def _change(ansible: Controller, task: str, options: dict[str, t.Any]) -> list[Cell]:
    """Change the VM that was created first, when the cluster is quiet."""
    ansible.cluster.advance(SETTLING_SECONDS)
    run = ansible.run(shapes.ours(name="first", **options))
    writes = [entry for entry in run.requests if entry["method"] != "GET"]
    reads = [entry for entry in run.requests if entry["method"] == "GET" and entry["path"].endswith(CONFIGS)]
    return [task, len(run.requests), run.polls, len(writes), len(reads) - 1]


def _unchanged(ansible: Controller, task: Task) -> int:
    """The requests of a re-run. Raises RuntimeError when it changed something."""
    run = ansible.run(task)
    if any(result.get("changed") for result in run.results):
        raise RuntimeError("a re-run changed something: its requests are not those of an unchanged one")
    return len(run.requests)
