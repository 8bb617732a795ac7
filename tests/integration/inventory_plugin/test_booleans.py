# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A typo in a boolean of a source is an error: Ansible would take it for false, and not verify a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from support.ansible_commands import Ansible
from support.playbook import environment

CONNECTION = {"api_host": "127.0.0.1:1", "api_user": "root@pam", "api_token_id": "t", "api_token_secret": "Zq9-secret"}
WRONG: list[dict[str, Any]] = [
    {"validate_certs": "flase"},
    {"validate_certs": ""},
    {"validate_certs": "{{ 'ture' }}"},
    {"configs": "ture"},
    {"strict": 2},
    {"filter": ["name is match('web')"]},
]
RIGHT: list[dict[str, Any]] = [{"validate_certs": "{{ 'no' }}"}, {"validate_certs": "Yes"}, {"validate_certs": None}]


def read(tmp_path: Path, sources: list[dict[str, Any]], variables: dict[str, str]) -> str:
    folder = tmp_path / "sources"
    folder.mkdir()
    for number, given in enumerate(sources):
        text = yaml.safe_dump({"plugin": "qemu_scheduler.proxmox.cluster", **CONNECTION, **given})
        (folder / f"source{number}.yml").write_text(text, encoding="utf-8")
    env = environment(tmp_path, {"ANSIBLE_INVENTORY_ENABLED": "qemu_scheduler.proxmox.cluster", **variables})
    run = Ansible.run("ansible-inventory", ["-i", str(folder), "--list"], env)
    return " ".join(run.stderr.split())


def test_booleans__are_read_strictly(tmp_path: Path) -> None:
    told = read(tmp_path, [*WRONG, *RIGHT], {})
    for name, count in (("validate_certs", 3), ("configs", 1), ("strict", 1)):
        assert told.count(f"plugin: InvalidRequest: {name}: expected true or false") == count, told
    assert "plugin: InvalidRequest: filter: this plugin has no such option; did you mean filters?" in told, told
    assert told.count("plugin: ConnectionFailed") == len(RIGHT), told


def test_boolean_of_the_environment__is_read_strictly(tmp_path: Path) -> None:
    told = read(tmp_path, [{}, {"validate_certs": True}], {"PROXMOX_VALIDATE_CERTS": "flase"})
    assert told.count("plugin: InvalidRequest: validate_certs: expected true or false") == 1, told
    assert told.count("plugin: ConnectionFailed") == 1, told
