# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helpers for tests of the ledger: both kinds of database, processes that schedule, and dead holders."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import typing as t
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import psycopg
import pytest
from support.postgres import postgres_server

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import (
    Durations,
    Holder,
    Reservation,
)

CLUSTER = "cluster-a"
OTHER_CLUSTER = "cluster-b"


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture
def empty_postgres(postgres_url: str, request: pytest.FixtureRequest) -> str:
    """Return the URL of a PostgreSQL database in which nobody has made a table."""
    schema = f"test_{abs(hash(request.node.nodeid))}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
    return f"{postgres_url}&options=-csearch_path%3D{schema}"


def _place(kind: str, request: pytest.FixtureRequest) -> str:
    if kind == "sqlite":
        return str(request.getfixturevalue("tmp_path") / "reservations.db")
    return kind if kind == "none" else str(request.getfixturevalue("empty_postgres"))


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest) -> str:
    """Return the location of a new ledger, for each kind of database that processes can share."""
    return _place(request.param, request)


@pytest.fixture(params=["sqlite", "postgresql", "none"])
def anywhere(request: pytest.FixtureRequest) -> str:
    """Return the location of a new ledger, for every kind of database."""
    return _place(request.param, request)


def reservation(vmid: int, name: str | None = None, **values: t.Any) -> Reservation:
    return Reservation(**{"cluster": CLUSTER, "vmid": vmid, "name": name or f"vm{vmid}", "node": "pve1", **values})


def dead_holder() -> Holder:
    """Return a holder whose process has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return replace(Holder.new(), pid=ended.pid, started="1")


def _python(module: str, *arguments: str, **options: t.Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen([sys.executable, "-m", module, *arguments], env=environment, **options)


class SchedulerProcess:
    """A scheduler in its own process, which runs one step at a time, and can be killed or stopped between steps.

    elsewhere: it acts as on another controller, so that neither side can see whether the other's process is alive.
    """

    def __init__(self, where: str, *, durations: Durations | None = None, elsewhere: bool = False) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = _python("support.scheduler_process", str(theirs.fileno()), pass_fds=[theirs.fileno()])
        self._connection = Connection(ours.detach())
        self.call("open", where, durations, elsewhere)

    def start(self, step: str, *arguments: t.Any, **options: t.Any) -> None:
        """Start a step, and do not wait for it."""
        self._connection.send((step, arguments, options))

    def result(self) -> t.Any:
        """Wait for the end of the step that was started, and return what it returned or raise what it raised."""
        outcome = self._connection.recv()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def call(self, step: str, *arguments: t.Any, **options: t.Any) -> t.Any:
        """Run a step, and return its result or raise its error."""
        self.start(step, *arguments, **options)
        return self.result()

    def has_finished(self, within: float) -> bool:
        """Tell whether the step that was started ends within so many seconds."""
        return self._connection.poll(within)

    def kill(self) -> None:
        """Kill it, so that it cannot clean up. It remains a zombie until it is closed."""
        self._process.kill()
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    def hang(self) -> None:
        """Stop it (SIGSTOP): the process exists but does nothing."""
        self._process.send_signal(signal.SIGSTOP)
        self.until_stopped()

    def until_stopped(self) -> None:
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


Launch = Callable[..., SchedulerProcess]


@pytest.fixture
def launch() -> Iterator[Launch]:
    """Return a function that starts a scheduler process; all of them end with the test."""
    with ExitStack() as stack:

        def start(*arguments: t.Any, **options: t.Any) -> SchedulerProcess:
            process = SchedulerProcess(*arguments, **options)
            stack.callback(process.close)
            return process

        yield start


@dataclass(frozen=True)
class CycleRecord:
    """One scheduling cycle of one process of a fleet. Times are those of the machine's monotonic clock."""

    process: int
    arrived: float
    begun: float
    ended: float
    vmid: int


class Fleet:
    """Processes that begin to schedule onto one cluster at the same instant.

    Each runs `cycles` cycles of at least `think` seconds and reserves the lowest VMID that is free.
    """

    def __init__(self, where: str, cluster: str, *, size: int, cycles: int = 1, think: float = 0.0) -> None:
        arguments = {"where": where, "cluster": cluster, "size": size, "cycles": cycles, "think": think}
        self._process = _python("support.fleet", json.dumps(arguments), stdout=subprocess.PIPE)

    def records(self) -> list[CycleRecord]:
        """Wait for all of them and return their cycles in the order in which they began."""
        output, _ = self._process.communicate(timeout=600)
        assert self._process.returncode == 0
        return sorted((CycleRecord(**record) for record in json.loads(output)), key=lambda record: record.begun)


class Loop:
    """A process that reserves and begins to bind one VM after the other until it is killed."""

    def __init__(self, where: str, cluster: str, output: Path) -> None:
        self._output = output
        with output.open("wb") as stream:
            self._process = _python("support.fleet", "loop", where, cluster, stdout=stream)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def acknowledged(self) -> list[int]:
        """Return the VMIDs that the ledger confirmed to the process as reserved and marked.

        Raises AssertionError if the process has failed.
        """
        assert self._process.poll() in (None, -signal.SIGKILL), "the process failed; its error is among the output"
        whole_lines = self._output.read_text().rpartition("\n")[0]
        return [int(line) for line in whole_lines.split()]
