# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs one task against a simulated cluster, counts its requests and measures its time."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import typing as t
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from simulated_cluster.client import SimulatedCluster
from support.playbook import environment as controller_environment

from . import COLLECTIONS, peer

CALLBACKS = Path(__file__).resolve().parent / "callback_plugins"
Task = dict[str, t.Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One task, run on one or many hosts at once.

    Attributes:
        seconds: from the task's start to its end on the last host.
        cpu_seconds: of ansible-playbook and all that it started, on all CPUs together.
        results: what the module returned, for each host, or for each item of a loop.
        requests: as the cluster logged them, without polls.
        polls: the number of requests that followed Proxmox tasks.
    """

    seconds: float
    cpu_seconds: float
    results: list[dict[str, t.Any]]
    requests: list[dict[str, t.Any]]
    polls: int

    @property
    def failures(self) -> list[str]:
        """The messages of hosts or items that failed."""
        return [str(result.get("msg")) for result in self.results if result.get("failed")]


class Controller:
    """A controller of its own: its state folder, and so its ledger of reservations, begins empty."""

    def __init__(self, cluster: SimulatedCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder

    def run(
        self,
        task: Task,
        *,
        hosts: Sequence[str] = ("localhost",),
        must_succeed: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> Run:
        """Run one task on all hosts at the same time. The cluster's log of requests starts anew.

        Raises RuntimeError when nothing was run, or when something failed that must_succeed.
        """
        self.cluster.reset_requests()
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            record, playbook = Path(name, "record"), Path(name, "play.json")
            body = {"hosts": "all", "gather_facts": False, "connection": "local", "tasks": [task]}
            playbook.write_text(json.dumps([body]), encoding="utf-8")
            command = [str(Path(sys.executable).parent / "ansible-playbook"), str(playbook)]
            began = cpu_of_children()
            done = subprocess.run(
                [*command, "--inventory", ",".join([*hosts, ""]), "--forks", str(len(hosts))],
                env=controller_environment(self.folder, {**self._settings(record), **(environment or {})}),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            cpu_seconds = cpu_of_children() - began
            events = [json.loads(line) for line in record.read_text("utf-8").splitlines()] if record.exists() else []
        log = self.cluster.requests()
        requests = without_polls(log)
        ends = [event for event in events if event["event"] == "end"]
        if not ends:
            raise RuntimeError(f"ansible-playbook ran no task:\n{done.stdout}")
        results = [item for end in ends for item in end["result"].get("results", [end["result"]])]
        seconds = max(end["at"] for end in ends) - min(event["at"] for event in events)
        run = Run(seconds, cpu_seconds, results, requests, len(log) - len(requests))
        failed = [end["result"].get("msg") for end in ends if end["result"].get("failed")]
        if must_succeed and failed:
            raise RuntimeError(f"the task failed on {len(failed)} hosts: {failed[0]}")
        return run

    def _settings(self, record: Path) -> dict[str, str]:
        return {
            **self.cluster.environment(),
            "ANSIBLE_COLLECTIONS_PATH": f"{COLLECTIONS}:{peer.collections_path()}",
            "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
            "ANSIBLE_CALLBACKS_ENABLED": "record",
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
            "BENCH_RECORD": str(record),
            # What makes the tests faster, users do not have.
            "PYTHONPATH": "",
        }


def without_polls(log: Sequence[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """The requests that do not follow tasks. The list of tasks that is read before the first write shows the cluster,
    those that are read later show what became of the writes.
    """
    writes = [number for number, entry in enumerate(log) if entry["method"] != "GET"]
    first = min(writes, default=len(log))
    polls = ("/tasks/", "/cluster/tasks")
    return [
        entry
        for number, entry in enumerate(log)
        if polls[0] not in entry["path"] and not (number > first and entry["path"].endswith(polls[1]))
    ]


@contextmanager
def controller(nodes: int, *, guests_per_node: int = 5, **size: int) -> Iterator[Controller]:
    """A controller with a quiet cluster of its own, in real time: the peer sleeps real seconds. size has the cores and
    the memory of each node.
    """
    description = {"generate": {"nodes": nodes, "guests_per_node": guests_per_node, **size}}
    with (
        SimulatedCluster.start(description, time_scale=1.0) as cluster,
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
    ):
        yield Controller(cluster, Path(folder))


def cpu_of_children() -> float:
    """CPU seconds of all processes that have ended; the cluster still runs and so does not count."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
