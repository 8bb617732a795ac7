# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times one task over several clusters, one of which may be down, and the same task on one cluster."""

from __future__ import annotations

import socket
import statistics
import typing as t
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from simulated_cluster.client import SimulatedCluster

from . import shapes
from .playbooks import controller, without_polls
from .report import Section, Table, ratio

NODES = 16
DOWN: dict[str, t.Any] = {
    "name": "down",
    "api_host": "127.0.0.1",
    "api_user": "root@pam",
    "api_token_id": "t",
    "api_token_secret": "secret",
}


CASES = (
    ("1", 1, None),
    ("3", 3, None),
    ("3, one of them refuses connections", 2, 1),
    ("3, one of them never answers", 2, 0),
)
"""A label, how many clusters answer, and the port of one that does not: 0 for a port that never answers."""


def measure(quick: bool) -> Section:
    """Create VMs on one cluster, on three of that size, and on three of which one is down; quick: a few VMs, once."""
    vms, rounds = (4, 1) if quick else (20, 3)
    columns = ["clusters", "task [s]", "against one cluster", "requests"]
    table = Table(f"Creation of {vms} VMs in one task, {NODES} nodes in each cluster", columns)
    alone = 0.0
    for label, there, port in CASES:
        results = [_measured(vms, there, port) for _round in range(rounds)]
        seconds = statistics.median(took for took, _requests in results)
        alone = alone or seconds
        table.rows.append([label, seconds, ratio(seconds, alone), results[-1][1]])
    table.notes += [
        f"The median of {rounds}.",
        "Requests: one for each VM, and one for each chosen node, whose bridges are not known yet, beside those that "
        "read the clusters.",
        "A cluster that never answers accepts no connection, as behind a firewall that drops packets.",
    ]
    return Section("clusters", [table])


def _measured(vms: int, there: int, port: int | None) -> tuple[float, int]:
    """Seconds of the task, and the requests to all clusters without polls."""
    with ExitStack() as stack:
        ansible = stack.enter_context(controller(NODES))
        clusters = [ansible.cluster, *(stack.enter_context(_another()) for _number in range(there - 1))]
        entries = [{"name": name, **cluster.options()} for name, cluster in zip("abc", clusters, strict=False)]
        if port is not None:
            entries.append({**DOWN, "api_port": port or stack.enter_context(_silent_port())})
        several = {"clusters": entries, "when_unreachable": "skip"} if len(entries) > 1 else {}
        for cluster in clusters:
            cluster.reset_requests()
        run = ansible.run(shapes.ours_many([f"web-{number}" for number in range(vms)], **several))
        others = sum(len(without_polls(cluster.requests())) for cluster in clusters[1:])
        return run.seconds, len(run.requests) + others


def _another() -> t.ContextManager[SimulatedCluster]:
    return SimulatedCluster.start({"generate": {"nodes": NODES, "guests_per_node": 5}}, time_scale=1.0)


@contextmanager
def _silent_port() -> Iterator[int]:
    """A port that accepts no connection, as its queue of pending connections is full."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port: int = server.getsockname()[1]
        for _filling in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port
