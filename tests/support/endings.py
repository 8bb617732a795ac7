# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An ansible-playbook in a terminal of its own, and the ways in which it may be ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from .playbook import environment
from .waiting import until


class Playbook:
    """A running ansible-playbook with one task on localhost, which keeps everything in its folder."""

    def __init__(self, folder: Path, task: Mapping[str, Any], env: Mapping[str, str], *, nohup: bool = False) -> None:
        self.folder = folder
        self._temporary = folder / "tmp"
        self._temporary.mkdir(parents=True)
        playbook = folder / "playbook.yml"
        play = {"hosts": "localhost", "gather_facts": False, "tasks": [{"name": "task", **task}]}
        playbook.write_text(yaml.safe_dump([play]), encoding="utf-8")
        command = [str(Path(sys.executable).parent / "ansible-playbook"), str(playbook)]
        self._terminal, inside = pty.openpty()
        with (folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [*(["nohup"] if nohup else []), *command],
                cwd=folder,
                env=environment(folder, {"TMPDIR": str(self._temporary), **env}),
                stdin=inside,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_begin_in_terminal,
            )
        os.close(inside)

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait for something that the task does."""
        until(lambda: condition() or self._process.poll() is not None)
        assert condition(), (self.folder / "output").read_text(encoding="utf-8")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to ansible-playbook alone."""
        self._process.send_signal(number)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the terminal's foreground, as the terminal does."""
        os.killpg(self._process.pid, number)

    def kill_worker(self) -> None:
        (worker,) = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        os.kill(int(worker), signal.SIGKILL)

    def close_terminal(self) -> None:
        os.close(self._terminal)
        self._terminal = -1

    def wait(self) -> int:
        """Wait until ansible-playbook and everything that it has started has ended, and return its exit code."""
        code = self._process.wait()
        until(lambda: not self._left())
        return code

    def files_left(self) -> list[str]:
        """The temporary files that are left, without those of Ansible's own queues, which a signal leaves behind."""
        return [path.name for path in self._temporary.iterdir() if not path.name.startswith("pymp-")]

    def end(self) -> None:
        """Kill what is left, and close the terminal."""
        for pid in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        if self._terminal >= 0:
            self.close_terminal()

    def _left(self) -> list[int]:
        """Its processes: no other one has its folder in its environment."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if f"XDG_STATE_HOME={self.folder}/state".encode() in path.read_bytes():
                    found.append(int(path.parent.name))
        return found


def _begin_in_terminal() -> None:
    """Take the terminal, and the signals as a terminal gives them: tests that run in the background ignore some."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


GOES_ON = "closed terminal, with `nohup`"

ENDINGS: Mapping[str, Callable[[Playbook], None]] = {
    "Ctrl-C: `SIGINT` to all processes in the foreground": lambda playbook: playbook.signal_group(signal.SIGINT),
    "`SIGINT` to `ansible-playbook` alone": lambda playbook: playbook.signal(signal.SIGINT),
    "cancelled job: `SIGTERM` to the process group": lambda playbook: playbook.signal_group(signal.SIGTERM),
    "`SIGTERM` to `ansible-playbook` alone": lambda playbook: playbook.signal(signal.SIGTERM),
    "closed terminal: `SIGHUP` to all processes in the foreground": Playbook.close_terminal,
    "`SIGHUP` to `ansible-playbook` alone": lambda playbook: playbook.signal(signal.SIGHUP),
    "`SIGKILL` to `ansible-playbook`": lambda playbook: playbook.signal(signal.SIGKILL),
    "`SIGKILL` to the worker": Playbook.kill_worker,
    GOES_ON: Playbook.close_terminal,
}
"""The first column of the table in docs/concurrency.md."""


@contextlib.contextmanager
def playbook(ending: str, task: Mapping[str, Any], env: Mapping[str, str], execution: str) -> Iterator[Playbook]:
    """Run a task until the block ends, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="ending-") as folder:
        running = Playbook(Path(folder), task, {**env, "QEMU_SCHEDULER_EXECUTION": execution}, nohup=ending == GOES_ON)
        try:
            yield running
        finally:
            running.end()


def rows_of(page: Path) -> Sequence[Sequence[str]]:
    """The rows of the table of endings on a page: what happens, and what it does to a task."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start = lines.index("| what happens | in the worker process | as a module |") + 2
    table = lines[start : lines.index("", start)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
