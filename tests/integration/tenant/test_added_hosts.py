# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts that the role provision adds: a VM that its owner named like another host takes nothing over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from simulated_cluster.client import SimulatedCluster

from .conftest import Ansible

STATIC = "[prod]\ndb-prod ansible_host=192.0.2.5 ansible_password=hunter2\n"


def test_vm_that_is_named_by_its_vmid__is_a_host_of_its_own(
    ansible: Ansible, texts: list[str], trace: Path, tmp_path: Path
) -> None:
    names = ["db-prod", "prod", "all", "localhost", "twin", "twin", "plain", *texts]
    agent = {"interfaces": [{"name": "e", "ip-addresses": [{"ip-address": "203.0.113.66"}]}]}
    description = {
        "nodes": [{"name": "pve1", "cores": 64, "memory": 65536}],
        "roles": {"Automation": ["VM.Audit", "VM.GuestAgent.Audit", "VM.Monitor", "Sys.Audit", "Datastore.Audit"]},
        "guests": [
            {
                "vmid": 100 + number, "name": name, "node": "pve1", "memory": 512, "status": "running",
                "config": {"agent": "1", "memory": 512}, "agent": agent,
            }
            for number, name in enumerate(names)
        ],
    }  # fmt: skip
    addresses = (
        "dict(groups.all | zip(groups.all | map('extract', hostvars) | map(attribute='ansible_host', default='')))"
    )
    variables: dict[str, Any] = {
        "qemu_vms": [{"vmid": 100 + number} for number in range(len(names))],
        "provision_wait_for_address": True,
    }
    play = [
        {
            "hosts": "localhost", "connection": "local", "gather_facts": False, "vars": variables,
            "roles": ["qemu_scheduler.proxmox.provision"],
        },
        {
            "hosts": "localhost", "connection": "local", "gather_facts": False,
            "tasks": [
                {"ansible.builtin.copy": {"content": f"{{{{ {content} | to_json }}}}", "dest": str(tmp_path / name)}}
                for content, name in (("groups", "groups.json"), (addresses, "hosts.json"))
            ],
        },
    ]  # fmt: skip
    path = tmp_path / "play.json"
    path.write_text(json.dumps(play), encoding="utf-8")
    with SimulatedCluster.start(description, time_scale=0.02) as cluster:
        done = ansible("ansible-playbook", str(path), env=cluster.environment(), sources={"hosts": STATIC})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert not trace.exists()
    hosts = json.loads((tmp_path / "hosts.json").read_text(encoding="utf-8"))
    groups = json.loads((tmp_path / "groups.json").read_text(encoding="utf-8"))
    assert hosts["db-prod"] == "192.0.2.5"
    ours = {"db-prod_100", "prod_101", "all_102", "localhost_103", "twin_104", "twin_105", "plain"}
    assert {hosts[name] for name in ours} == {"203.0.113.66"}
    assert groups["prod"] == ["db-prod"]
    assert len(hosts) == len(names) + 1
