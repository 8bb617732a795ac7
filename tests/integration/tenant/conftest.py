# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters on which tenants write what they like, and real Ansible commands against them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.ansible_commands import Ansible as Commands
from support.payloads import payloads
from support.playbook import environment

PLUGIN = "qemu_scheduler.proxmox.cluster"

Ansible = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """The file that exists if anything was evaluated."""
    return tmp_path / "trace"


@pytest.fixture
def texts(trace: Path) -> list[str]:
    return payloads(trace)


@pytest.fixture
def ansible(tmp_path: Path) -> Ansible:
    """Runs a command of Ansible, with a source of the inventory for each mapping of options."""

    def run(
        command: str,
        *arguments: str,
        env: Mapping[str, str],
        sources: Mapping[str, Mapping[str, Any] | str] = {},
    ) -> subprocess.CompletedProcess[str]:
        inventory: list[str] = []
        for name, source in sources.items():
            path = tmp_path / name
            text = source if isinstance(source, str) else yaml.safe_dump({"plugin": PLUGIN, **source})
            path.write_text(text, encoding="utf-8")
            inventory += ["--inventory", str(path)]
        given = {"ANSIBLE_INVENTORY_UNPARSED_FAILED": "1", **env}
        return Commands.run(command, [*inventory, *arguments], environment(tmp_path, given))

    return run
