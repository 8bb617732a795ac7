# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A secret in the wrong option of a source: no message of ansible-inventory shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from support.ansible_commands import Ansible
from support.playbook import environment

SECRET = "Zq9-misplaced"
SOURCES: list[dict[str, Any]] = [
    {"api_port": SECRET},
    {"api_port": f"{{{{ '{SECRET}' }}}}"},
    {"api_timeout": SECRET},
    {"ca_path": SECRET},
    {"api_host": f"u%40pam:{SECRET}%40h"},
    {"api_host": f"h?password={SECRET}"},
    {"api_user": f"root@pam {SECRET}"},
    {"api_token_id": f"ansible={SECRET}"},
]
CONNECTION = {"api_host": "127.0.0.1:1", "api_user": "root@pam", "api_token_id": "t", "api_token_secret": "x"}


def test_secret__in_the_wrong_option_is_not_shown(tmp_path: Path) -> None:
    folder = tmp_path / "sources"
    folder.mkdir()
    for number, given in enumerate(SOURCES):
        text = yaml.safe_dump({"plugin": "qemu_scheduler.proxmox.cluster", **CONNECTION, **given})
        (folder / f"source{number}.yml").write_text(text, encoding="utf-8")
    arguments = ["-i", str(folder), "--list", "-vvvv"]
    run = Ansible.run("ansible-inventory", arguments, environment(tmp_path, {"PROXMOX_PASSWORD": ""}))
    output = run.stdout + run.stderr
    for number, given in enumerate(SOURCES):
        assert f"source{number}.yml" in output
        assert next(iter(given)) in output
    assert SECRET not in output, [line for line in output.splitlines() if SECRET in line]
