# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the cost of listing the guests of a cluster as an inventory."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

from simulated_cluster.client import SimulatedCluster
from support.playbook import environment as controller_environment

from . import COLLECTIONS, peer
from .report import Section, Table, ratio

NODES = 10
OURS, PEER = "qemu_scheduler.proxmox.cluster", "community.proxmox.proxmox"
Source = dict[str, t.Any]


def measure(quick: bool) -> Section:
    """List the guests with both plugins: names and groups only, and with the configuration of each."""
    guests, rounds = (50, 1) if quick else (500, 3)
    table = Table(
        f"Inventory of {guests} guests on {NODES} nodes",
        ["read", "requests", "peer", "ratio", "seconds", "peer", "ratio"],
        notes=[
            f"The peer is the inventory plugin {PEER}. Seconds are those of ansible-inventory, the median of {rounds}.",
            "Configurations are read with our options configs and addresses, and with want_facts of the peer. No agent "
            "is enabled.",
            "Our plugin sends one request less if the cluster's task list is not empty, as on all but new clusters.",
        ],
    )
    rows: dict[str, tuple[Source, Source]] = {
        "names and groups": ({}, {}),
        "configurations": ({"configs": True, "addresses": ["static", "agent"]}, {"want_facts": True}),
    }
    description = {
        "generate": {"nodes": NODES, "guests_per_node": guests // NODES},
        "roles": {"Automation": ["VM.Audit", "VM.GuestAgent.Audit", "Sys.Audit", "Pool.Audit"]},
    }
    with (
        SimulatedCluster.start(description, time_scale=1.0) as cluster,
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
    ):
        for read, (ours, theirs) in rows.items():
            here, ours_s = measured(cluster, Path(folder), {"plugin": OURS, **ours}, rounds)
            there, peer_s = measured(cluster, Path(folder), {**login(cluster), **theirs}, rounds)
            table.rows.append([read, here, there, ratio(there, here), ours_s, peer_s, ratio(peer_s, ours_s)])
    return Section("inventory", [table])


def login(cluster: SimulatedCluster) -> Source:
    """The connection options of the peer."""
    env = cluster.environment()
    token = {"token_id": env["PROXMOX_TOKEN_ID"], "token_secret": env["PROXMOX_TOKEN_SECRET"]}
    return {"plugin": PEER, "url": cluster.url, "user": env["PROXMOX_USER"], **token}


def measured(cluster: SimulatedCluster, folder: Path, source: Source, rounds: int) -> tuple[int, float]:
    """Requests and seconds of one listing. Raises RuntimeError when it lacks guests."""
    path = folder / "guests.proxmox.yml"
    path.write_text(json.dumps(source), encoding="utf-8")
    settings = {
        **cluster.environment(),
        "ANSIBLE_COLLECTIONS_PATH": f"{COLLECTIONS}:{peer.collections_path()}",
        "REQUESTS_CA_BUNDLE": cluster.ca_path,
    }
    command = [str(Path(sys.executable).parent / "ansible-inventory"), "--inventory", str(path), "--list"]
    seconds = []
    for _round in range(rounds):
        cluster.reset_requests()
        began = time.monotonic()
        done = subprocess.run(
            command, env=controller_environment(folder, settings), capture_output=True, text=True, check=False
        )
        seconds.append(time.monotonic() - began)
        hosts = json.loads(done.stdout or "{}").get("_meta", {}).get("hostvars", {})
        if len(hosts) < len(cluster.state()["guests"]):
            raise RuntimeError(f"{source['plugin']} listed {len(hosts)} hosts:\n{done.stderr}")
    return len(cluster.requests()), statistics.median(seconds)
