# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draining a node beside what a user would do without a plan, and how many requests that takes."""

from __future__ import annotations

import json
import ssl
import tempfile
import time
import typing as t
import urllib.request
from collections.abc import Callable
from pathlib import Path

from simulated_cluster.client import SimulatedCluster

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import MIB, Snapshot

from .hard_clusters import full_cluster, fullest
from .playbooks import Controller, Task, without_polls
from .report import Cell, Table

OURS = "qemu_scheduler.proxmox.node_drain"
PEER = "community.proxmox.proxmox_kvm"
SCALE = 8
"""The guests have an eighth of their memory, so that copying it in real time takes minutes and not hours."""

WORKERS = 4
"""How many guests Proxmox VE moves at a time: the default of its interface."""

POLL_SECONDS = 1.0

FASTER = 0.1
"""Real seconds per second of Proxmox VE, where only requests are counted."""


def measure(quick: bool) -> list[Table]:
    """Drain the fullest node of a cluster in three ways; quick: of a small one with room."""
    snapshot = full_cluster(3, 9, 0.5, 0) if quick else full_cluster(6, 90, 0.78, 2)
    drained = fullest(snapshot)
    beside = Table(
        f"Drain of one of {len(snapshot.nodes)} nodes with {len(snapshot.guests)} guests: beside moves without a plan",
        ["", "moves", "s", "requests", "+ polls", "left on the node", "fullest node after"],
        notes=[
            "migrateall: all guests to the node with the most free memory, four at a time.",
            "By hand: the largest guest first, each to the node with the most free memory.",
            "More than 100 %: the guests may use more memory than the node has.",
        ],
    )
    ways: dict[str, Callable[[Controller], object]] = {
        "node_drain": lambda ansible: ansible.run(_ours(drained)),
        "migrateall to one node": lambda ansible: _all_to_one(ansible.cluster, snapshot, drained),
        "proxmox_kvm in a loop, placed by hand": lambda ansible: ansible.run(_loop(snapshot, drained)),
    }
    for title, way in ways.items():
        beside.rows.append([title, *_measured(snapshot, drained, way)])
    return [beside, _requests(snapshot, drained)]


def _measured(snapshot: Snapshot, drained: str, way: Callable[[Controller], object]) -> list[Cell]:
    with _cluster(snapshot) as cluster, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        cluster.reset_requests()
        began = time.monotonic()
        way(Controller(cluster, Path(folder)))
        seconds = time.monotonic() - began
        log, guests = cluster.requests(), cluster.state()["guests"].values()
    polls = len(log) - len(without_polls(log))
    now = {guest["vmid"]: guest["node"] for guest in guests}
    used = dict.fromkeys((node.name for node in snapshot.nodes), 0)
    for each in snapshot.guests:
        used[now[each.vmid]] += each.memory
    moves = sum(entry["method"] == "POST" and entry["path"].endswith("/migrate") for entry in log)
    left = sum(node == drained for node in now.values())
    size = snapshot.nodes[0].memory
    moved = moves or sum(now[guest.vmid] != guest.node for guest in snapshot.guests)
    return [moved, seconds, len(log) - polls, polls, left, f"{max(used.values()) / size:.0%}"]


def _requests(snapshot: Snapshot, drained: str) -> Table:
    """What a drain asks and sends: to plan, as check mode does, and to carry the plan out."""
    table = Table(
        "API requests of node_drain, by a controller that knows the cluster",
        ["", "requests", "of which per move", "goal"],
        notes=[
            "To plan: the config of each guest that moves, and Proxmox's own check of it.",
            "To carry out, for each move: a look at the cluster, that check again, the config, which proves that it is "
            "the same guest, and the request that begins it. For a guest that HA manages, the HA rules as well. Beside "
            "the moves: the mark that keeps new guests off the node, what each target knows of tracked connections, "
            "and a last look at the cluster.",
        ],
    )
    task = _ours(drained)
    with _cluster(snapshot, FASTER) as cluster, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        ansible = Controller(cluster, Path(folder))
        ansible.run({"name": "known", "qemu_scheduler.proxmox.capacity_info": {}})
        planned = ansible.run({**task, "check_mode": True})
        drain = ansible.run(task)
        again = ansible.run(task)
    moves = len(drain.results[0]["moves"])
    requests = len(drain.requests) - len(planned.requests)
    table.rows += [
        [f"to plan {moves} moves", len(planned.requests), 2, None],
        [f"to carry out {moves} moves", requests, 4, f"6 + 4 x {moves}"],
        ["on a node that is drained", len(again.requests), None, None],
    ]
    return table


def _cluster(snapshot: Snapshot, time_scale: float = 1.0) -> SimulatedCluster:
    """The cluster of a snapshot; in real time, as the peer sleeps real seconds."""
    description: dict[str, t.Any] = {
        "nodes": [
            {"name": n.name, "cores": n.cores, "memory": n.memory // MIB // SCALE, "bridges": ["vmbr0"]}
            for n in snapshot.nodes
        ],
        "storages": [{"name": "ceph", "type": "rbd", "shared": True, "content": ["images"], "size": 100000}],
        "guests": [
            {"vmid": g.vmid, "name": g.name, "node": g.node, "cores": g.cores, "memory": g.memory // MIB // SCALE,
             "status": "running", "disks": {"scsi0": "ceph:8"}}
            for g in snapshot.guests
        ],
    }  # fmt: skip
    return SimulatedCluster.start(description, time_scale=time_scale)


def _ours(drained: str) -> Task:
    return {"name": "ours", OURS: {"name": [drained]}}


def _loop(snapshot: Snapshot, drained: str) -> Task:
    """A task of the peer's that moves every guest of the node."""
    free = _free(snapshot, drained)
    items = []
    for guest in sorted((g for g in snapshot.guests if g.node == drained), key=lambda g: (-g.memory, g.vmid)):
        target = max(free, key=lambda name: (free[name], name))
        free[target] -= guest.memory
        items.append({"vmid": guest.vmid, "node": target})
    moved = {"vmid": "{{ item.vmid }}", "node": "{{ item.node }}", "migrate": True, "timeout": 600}
    return {"name": "peer", PEER: moved, "loop": items}


def _all_to_one(cluster: SimulatedCluster, snapshot: Snapshot, drained: str) -> None:
    """Proxmox's own call for all guests of a node, polled once a second. Raises RuntimeError when the task fails."""
    free = _free(snapshot, drained)
    target = max(free, key=lambda name: (free[name], name))
    context = ssl.create_default_context(cafile=cluster.ca_path)
    token = f"PVEAPIToken={cluster.token_user}!{cluster.token_id}={cluster.token_secret}"

    def call(method: str, path: str, body: bytes | None = None) -> t.Any:
        url = f"{cluster.url}/api2/json/nodes/{drained}/{path}"
        request = urllib.request.Request(url, body, {"Authorization": token}, method=method)
        with urllib.request.urlopen(request, context=context) as answer:
            return json.load(answer)["data"]

    upid = call("POST", "migrateall", f"target={target}&maxworkers={WORKERS}".encode())
    while (status := call("GET", f"tasks/{upid}/status"))["status"] == "running":
        time.sleep(POLL_SECONDS)
    if status["exitstatus"] != "OK":
        raise RuntimeError(f"migrateall ended with {status['exitstatus']}")


def _free(snapshot: Snapshot, drained: str) -> dict[str, int]:
    """The free memory of the nodes that stay."""
    free = {node.name: node.memory for node in snapshot.nodes if node.name != drained}
    for guest in snapshot.guests:
        if guest.node in free:
            free[guest.node] -= guest.memory
    return free
