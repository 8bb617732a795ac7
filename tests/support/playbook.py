# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs real playbooks, with the checkout as an installed collection, and reads the result of each task."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from ansible.release import __version__
from packaging.version import Version

from .ansible_commands import Ansible

SUPPORT = Path(__file__).resolve().parent
PLAY_RECORDS = "PLAY_RECORDS"
"""The environment variable with the folder to which the results of plays are written, to be compared."""

EMPTY = None if Version(__version__) >= Version("2.19") else ""
"""A role's variable that is not set. Before 2.19, ansible-core refuses null for it."""

COLLECTION = "ansible_collections/qemu_scheduler/proxmox"
COLLECTIONS = next(path for path in map(Path, sys.path) if (path / COLLECTION).is_dir())


@dataclass(frozen=True)
class TaskRun:
    """The result of one task on one host."""

    host: str
    task: str
    failed: bool
    result: dict[str, Any]


@dataclass(frozen=True)
class PlayRun:
    """A finished ansible-playbook: its exit code, its output, and its tasks in the order in which they ended."""

    code: int
    output: str
    tasks: list[TaskRun] = field(default_factory=list)

    @property
    def last(self) -> dict[str, Any]:
        """The result of the last task."""
        assert self.tasks, self.output
        return self.tasks[-1].result

    def of(self, task: str) -> dict[str, Any]:
        """The result of the last task of this name."""
        return [run.result for run in self.tasks if run.task == task][-1]


def environment(folder: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a controller that keeps its state in folder, without the caller's Ansible settings."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "PROXMOX_"))}
    return {
        **inherited,
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
        "ANSIBLE_CONFIG": str(SUPPORT / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_CALLBACK_PLUGINS": str(SUPPORT / "callback_plugins"),
        "ANSIBLE_CALLBACKS_ENABLED": "task_results,quick_plays",
        "PYTHONPATH": str(SUPPORT / "quick_python"),
        # Tables are as wide as without a terminal.
        "COLUMNS": "132",
        "XDG_STATE_HOME": str(folder / "state"),
        **extra,
    }


def run_playbook(
    folder: Path, playbook: str | Sequence[Mapping[str, Any]], env: Mapping[str, str], *arguments: str
) -> PlayRun:
    """Run a playbook, a path or plays as data, and return what it did. folder is the controller's home."""
    folder.mkdir(parents=True, exist_ok=True)
    if not isinstance(playbook, str):
        path = folder / "playbook.yml"
        path.write_text(yaml.safe_dump(list(playbook), sort_keys=False), encoding="utf-8")
        playbook = str(path)
    results = folder / "results.jsonl"
    results.unlink(missing_ok=True)
    done = Ansible.run(
        "ansible-playbook", [playbook, *arguments], environment(folder, {"TASK_RESULTS": str(results), **env})
    )
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    run = PlayRun(done.returncode, done.stdout + done.stderr, [TaskRun(**json.loads(line)) for line in lines])
    if records := os.environ.get(PLAY_RECORDS):
        from .parity import keep

        keep(Path(records), run.tasks)
    return run


def run_tasks(folder: Path, tasks: Sequence[Mapping[str, Any]], env: Mapping[str, str], *arguments: str) -> PlayRun:
    """Run tasks in one play on localhost."""
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": list(tasks)}
    return run_playbook(folder, [play], env, *arguments)
