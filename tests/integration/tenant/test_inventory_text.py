# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names, notes, tags and cloud-init settings of guests, in the inventory and in a play that uses its variables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from simulated_cluster.client import SimulatedCluster
from support.payloads import controls

from .conftest import Ansible


@pytest.fixture
def cluster(texts: list[str]) -> Iterator[SimulatedCluster]:
    guests = [
        {
            "vmid": 100 + number, "name": text, "node": "pve1", "memory": 512, "pool": "tenant", "status": "running",
            "tags": [text.replace(";", "")],
            "config": {"description": text, "ipconfig0": f"ip=2001:db8::1%{text.replace(',', '')}/64"},
        }
        for number, text in enumerate(texts)
    ]  # fmt: skip
    description = {"nodes": [{"name": "pve1", "cores": 64, "memory": 65536}], "pools": ["tenant"], "guests": guests}
    with SimulatedCluster.start(description, time_scale=0.02) as running:
        yield running


NOTES = "proxmox_config.description"


def source(folder: Path) -> dict[str, Any]:
    return {
        "configs": True,
        "addresses": ["static"],
        "filters": [f"'nothing' not in {NOTES}", "proxmox_name != 'nothing'"],
        "compose": {"notes": NOTES, "longer": "'the ' ~ proxmox_name", "same": f"{NOTES} | trim"},
        "keyed_groups": [
            {"key": "proxmox_tags", "separator": ""},
            {"key": "proxmox_name", "prefix": "named", "parent_group": "{{ proxmox_pool }}"},
        ],
        "groups": {"odd": f"{NOTES} is search('x')"},
        "cache": True,
        "cache_plugin": "ansible.builtin.jsonfile",
        "cache_connection": str(folder / "cache"),
    }


def play(folder: Path) -> str:
    values = ["notes", "longer", "same", "proxmox_tags", "proxmox_name", NOTES, "group_names", "inventory_hostname"]
    used = {"copied": "{{ notes }}", "looked_up": "{{ lookup('ansible.builtin.vars', 'notes') }}"}
    tasks: list[dict[str, Any]] = [
        {"ansible.builtin.debug": {"msg": [f"{{{{ {value} }}}}" for value in values]}},
        {"ansible.builtin.set_fact": used},
        {"ansible.builtin.debug": {"msg": "{{ copied }} {{ looked_up }} {{ hostvars[inventory_hostname].notes }}"}},
        {"ansible.builtin.debug": {"var": f"{{{{ {NOTES} }}}}"}, "ignore_errors": True},
        {"ansible.builtin.debug": {"msg": "{{ item }}"}, "loop": "{{ proxmox_tags + [same] }}"},
        {"ansible.builtin.debug": {}, "when": f"{{{{ {NOTES} }}}}", "ignore_errors": True},
        {"ansible.builtin.debug": {}, "when": "same", "ignore_errors": True},
        {"ansible.builtin.assert": {"that": ["{{ notes }}"]}, "ignore_errors": True},
    ]
    path = folder / "play.yml"
    hosts = {"hosts": "all", "gather_facts": False, "connection": "local", "tasks": tasks}
    path.write_text(yaml.safe_dump([hosts], sort_keys=False), encoding="utf-8")
    return str(path)


def test_text_of_guests__is_data_in_the_inventory_and_in_plays(
    cluster: SimulatedCluster, ansible: Ansible, texts: list[str], trace: Path, tmp_path: Path
) -> None:
    sources = {"cluster.yml": source(tmp_path)}
    for _cached in (False, True):
        listed = ansible("ansible-inventory", "--list", env=cluster.environment(), sources=sources)
        assert listed.returncode == 0, listed.stderr
        variables = json.loads(listed.stdout)["_meta"]["hostvars"]
        assert sorted(each["proxmox_vmid"] for each in variables.values()) == [100 + n for n in range(len(texts))]
        assert all(each["proxmox_addresses"] == [] for each in variables.values()), "a scope is any text"
        assert not any("{" in name or controls(name) for name in variables)
        assert controls(listed.stdout + listed.stderr) == set()
        assert not trace.exists()
    cluster.reset_requests()
    played = ansible("ansible-playbook", "-f", "4", play(tmp_path), env=cluster.environment(), sources=sources)
    assert "unreachable=0    failed=0" in played.stdout, played.stdout[-2000:]
    assert not cluster.requests(), "the play was about a cached inventory"
    assert not trace.exists()
    assert controls(played.stdout + played.stderr) == set()
