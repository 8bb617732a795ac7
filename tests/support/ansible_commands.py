# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs real commands of Ansible, most of them forked from a process that has imported Ansible and the collection.

To import these takes 0.6 s of CPU, and the rest of a play 0.1 s.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from .forking import ForkServer

TESTS = Path(__file__).resolve().parent.parent
READ_AGAIN = frozenset(
    {"ANSIBLE_HOME", "ANSIBLE_INJECT_INVOCATION", "ANSIBLE_INVENTORY_ENABLED", "ANSIBLE_INVENTORY_UNPARSED_FAILED"}
)
"""The settings that a forked command reads again. All others are those of the process that it is forked from."""


class Ansible:
    """How commands run."""

    _settings: ClassVar[dict[str, str] | None] = None
    _server: ClassVar[ForkServer | None] = None

    @classmethod
    @contextmanager
    def forked(cls, environment: Mapping[str, str]) -> Iterator[None]:
        """Within this context, commands with the settings of this environment are forked."""
        cls._settings = dict(environment)
        try:
            yield
        finally:
            if cls._server:
                cls._server.close()
            cls._settings = cls._server = None

    @classmethod
    def run(
        cls, command: str, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a command and return its exit code and what it printed."""
        if cls._settings is None or _lasting(environment) != _lasting(cls._settings):
            program = str(Path(sys.executable).parent / command)
            return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)
        if cls._server is None:
            path = os.pathsep.join([cls._settings["PYTHONPATH"], str(TESTS)])
            cls._server = ForkServer("support.ansible_server", {**cls._settings, "PYTHONPATH": path})
        with tempfile.TemporaryDirectory(prefix="ansible-output-") as folder:
            files = [Path(folder, name) for name in ("out", "err")]
            code = cls._server.wait(cls._server.start(command, list(arguments), dict(environment), *files))
            out, err = (file.read_text(encoding="utf-8") for file in files)
            return subprocess.CompletedProcess([command, *arguments], code, out, err)


def _lasting(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings that nobody reads again once everything is imported."""
    names = ("ANSIBLE_", "PYTHON")
    return {name: value for name, value in environment.items() if name.startswith(names) and name not in READ_AGAIN}
