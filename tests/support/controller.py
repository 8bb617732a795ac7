# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controllers that run the collection's modules in their own processes, which start faster than ansible-playbook."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import typing as t
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .forking import ForkServer
from .masking import as_shown

Result = dict[str, t.Any]

_NUMBERS = itertools.count()


class ModuleServer(ForkServer):
    """The process that modules are forked from."""


class RunningModule:
    """A running module."""

    def __init__(self, server: ModuleServer, pid: int, output: Path) -> None:
        self.pid = pid
        self._server = server
        self._output = output

    def kill(self) -> None:
        """Kill it, so that it cannot clean up."""
        os.kill(self.pid, signal.SIGKILL)
        assert self._server.wait(self.pid) == -signal.SIGKILL

    def interrupt(self, number: int) -> None:
        """Send it a signal to end."""
        os.kill(self.pid, number)

    def pause(self) -> None:
        """Stop it (SIGSTOP): the process exists but does nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        return not self._server.has_ended(self.pid)

    def result(self) -> Result:
        """Wait for its end and return its result, with the warnings as texts."""
        self._server.wait(self.pid)
        text = self._output.read_text(encoding="utf-8")
        assert text, self._output.with_suffix(".stderr").read_text(encoding="utf-8")
        result = as_shown(text)
        result["warnings"] = [_text_of(warning) for warning in result.get("warnings", ())]
        return result

    @property
    def output(self) -> str:
        """Everything that it has printed, as the controller shows it."""
        printed = json.dumps(as_shown(self._output.read_text(encoding="utf-8")))
        return printed + self._output.with_suffix(".stderr").read_text(encoding="utf-8")


class Controller:
    """A machine that runs modules against one cluster and keeps its state in folder."""

    def __init__(self, server: ModuleServer, folder: Path, environment: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._server = server
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            **environment,
        }

    def start(
        self,
        module: str,
        *,
        check: bool = False,
        diff: bool = False,
        env: Mapping[str, str] | None = None,
        **options: t.Any,
    ) -> RunningModule:
        """Start a module and do not wait for it. env has further environment variables, None removes one."""
        output = self.folder / f"module-{next(_NUMBERS)}"
        # no_log keeps modules from writing to the syslog of this machine.
        arguments = {**options, "_ansible_check_mode": check, "_ansible_diff": diff, "_ansible_no_log": True}
        environment = {key: value for key, value in {**self._environment, **(env or {})}.items() if value is not None}
        return RunningModule(self._server, self._server.start(module, arguments, environment, output), output)

    def run(self, module: str, **options: t.Any) -> Result:
        """Run a module and return its result, which may be a failure."""
        return self.start(module, **options).result()

    def schedule(self, **options: t.Any) -> Result:
        """Run qemu_schedule, which must succeed."""
        result = self.run("qemu_schedule", **options)
        assert not result.get("failed"), result["msg"]
        return result

    def fail(self, code: str, module: str = "qemu_schedule", **options: t.Any) -> Result:
        """Run a module, which must fail with this code."""
        result = self.run(module, **options)
        assert result.get("failed"), result
        assert result.get("error_code") == code, result["msg"]
        return result


@contextmanager
def module_server() -> Iterator[ModuleServer]:
    """A server for as long as the context lasts."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with ModuleServer.running("support.module_server", environment) as server:
        yield server


def _text_of(warning: t.Any) -> str:
    """A warning's text; from ansible-core 2.19 on it may be data."""
    if isinstance(warning, str):
        return warning
    event = warning.get("event", warning)
    return str(event["msg"])
