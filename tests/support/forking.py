# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that are forked from one which has imported everything, as most of a start is importing.

A request is what the program's function takes; the answers are C(("started", pid)) and later C(("ended", pid, code)).
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import typing as t
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait

END_SECONDS = 30.0
"""How long the processes of a server have to end after SIGTERM."""


class ForkServer:
    """The process that others are forked from. One is enough for a test session."""

    def __init__(self, program: str, environment: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", program, str(theirs.fileno())], env=environment, pass_fds=[theirs.fileno()]
            )
        self._connection = Connection(ours.detach())
        self._ended: dict[int, int] = {}

    @classmethod
    @contextmanager
    def running(cls, program: str, environment: Mapping[str, str]) -> Iterator[t.Self]:
        """A server for as long as the context lasts."""
        server = cls(program, environment)
        try:
            yield server
        finally:
            server.close()

    def start(self, *request: t.Any) -> int:
        """Start a process and return its id."""
        self._connection.send(request)
        while (message := self._connection.recv())[0] != "started":
            self._ended[message[1]] = message[2]
        self._ended.pop(message[1], None)
        return int(message[1])

    def wait(self, pid: int) -> int:
        """Wait for the end of a process and return its exit code, which is negative if a signal ended it."""
        while pid not in self._ended:
            _what, ended, code = self._connection.recv()
            self._ended[ended] = code
        return self._ended[pid]

    def has_ended(self, pid: int) -> bool:
        """Tell, without waiting, whether a process has ended."""
        while self._connection.poll():
            _what, ended, code = self._connection.recv()
            self._ended[ended] = code
        return pid in self._ended

    def close(self) -> None:
        """End the server, and what it has started."""
        self._connection.close()
        self._process.wait()


def serve(connection: Connection, run: Callable[..., None]) -> None:
    """Run each request in a process of its own, until nobody sends any; then end those that still run."""
    # Ctrl-C comes to all processes. This one ends when nobody sends requests any more, and has then to end the others.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Garbage collections of the processes would look at all that was imported, and copy its pages.
    gc.collect()
    gc.freeze()
    running: dict[int, int] = {}
    while True:
        for ready in wait([connection, *running]):
            if ready is connection:
                try:
                    request = connection.recv()
                except EOFError:
                    _end(running)
                    return
                pid = os.fork()
                if not pid:
                    signal.signal(signal.SIGINT, before)
                    connection.close()
                    for pidfd in running:
                        os.close(pidfd)
                    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                    _run_and_exit(run, request)
                running[os.pidfd_open(pid)] = pid
                connection.send(("started", pid))
            else:
                pidfd = t.cast("int", ready)
                pid = running.pop(pidfd)
                os.close(pidfd)
                connection.send(("ended", pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))


def _run_and_exit(run: Callable[..., None], request: tuple[t.Any, ...]) -> t.NoReturn:
    """Do what Python does at its end, but for the last step: it would tidy up what was imported."""
    code: t.Any = 1
    try:
        run(*request)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        if error := sys.exc_info()[1]:
            traceback.print_exception(error)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def _end(running: Mapping[int, int]) -> None:
    """End processes, also those that a test has stopped; by force those that take too long."""
    for pid in running.values():
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)
    left, deadline = set(running), time.monotonic() + END_SECONDS
    while left and (seconds := deadline - time.monotonic()) > 0:
        left.difference_update(t.cast("list[int]", wait(left, seconds)))
    for pidfd in left:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    for pid in running.values():
        os.waitpid(pid, 0)
