# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated clusters that are forked from a process which has loaded everything, as most of a start is loading.

Those that keep no state of their own share one certificate.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import context, forkserver, get_context
from pathlib import Path

from simulated_cluster.certificates import Certificates
from simulated_cluster.client import SimulatedCluster


class ForkedCluster:
    """A process of multiprocessing with the methods of subprocess.Popen that a cluster's process needs."""

    def __init__(self, process: context.ForkServerProcess) -> None:
        self._process = process

    def poll(self) -> int | None:
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("simulated_cluster", timeout or 0)
        return code


def launch(certificates: str, arguments: list[str], output: Path) -> ForkedCluster:
    """Run the command with `arguments`; what it prints goes to `output`."""
    if "--state-dir" not in arguments:
        arguments = [*arguments, "--state-dir", certificates]
    process = get_context("forkserver").Process(target=_run, args=(arguments, output))
    process.start()
    return ForkedCluster(process)


def _run(arguments: list[str], output: Path) -> None:
    with output.open("w", encoding="utf-8") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    from simulated_cluster.command_line import main

    sys.exit(main(arguments))


@contextmanager
def forked_clusters() -> Iterator[None]:
    """Within this context, SimulatedCluster.start forks."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        forkserver.set_forkserver_preload(["support.cluster_process"])
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    usual = SimulatedCluster.launcher
    with tempfile.TemporaryDirectory(prefix="simulated-cluster-certificates-") as folder:
        Certificates(Path(folder), "127.0.0.1")
        SimulatedCluster.launcher = staticmethod(functools.partial(launch, folder))
        try:
            yield
        finally:
            SimulatedCluster.launcher = usual
