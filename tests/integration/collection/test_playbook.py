# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only a real ansible-playbook shows: check and diff, defaults for a group of actions, secrets, forks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.playbook import PlayRun, run_playbook

Tasks = Callable[..., PlayRun]

PASSWORD = "very-geheim-cipassword"
WITH_ARGUMENTS = {"ANSIBLE_INJECT_INVOCATION": "true"}
"""Since ansible-core 2.21 results have the arguments of their module only where that is asked for."""
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaGeheim user@host"
WEB: dict[str, Any] = {"memory": 1024, "cores": 2, "scsi": {"scsi0": {"size": 4}}, "state": "started"}
THREE = [{"name": "web-1"}, {"name": "web-2"}, {"name": "web-3", "memory": 2048}]


either_way = pytest.mark.parametrize("execution", ["auto", "module"])
"""For tests of what may differ in the worker process and as a module; their results are compared in test_execution."""


@pytest.fixture
def execution() -> str:
    return "auto"


@pytest.fixture(autouse=True)
def _execution(execution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QEMU_SCHEDULER_EXECUTION", execution)


def names(cluster: SimulatedCluster) -> set[str]:
    return {guest["name"] for guest in cluster.state()["guests"].values()}


@pytest.mark.parametrize(("version", "execution"), [("9.2", "auto"), ("8.4", "module")])
def test_play_creates__changes_nothing_the_second_time_and_removes(tasks: Tasks, cluster: SimulatedCluster) -> None:
    create = {"qemu_schedule": {**WEB, "vms": THREE}}
    remove = {"qemu_schedule": {"vms": THREE, "state": "absent"}}
    run = tasks(create, create, remove, remove)
    assert run.code == 0, run.output
    assert [task.result["changed"] for task in run.tasks] == [True, False, True, False]
    assert [[vm["action"] for vm in task.result["vms"]] for task in run.tasks] == [
        ["create"] * 3,
        ["none"] * 3,
        ["delete"] * 3,
        ["none"] * 3,
    ]
    assert "changed=2" in run.output
    assert not {"web-1", "web-2", "web-3"} & names(cluster)


def test_check_and_diff__show_what_will_be_and_write_nothing(tasks: Tasks, cluster: SimulatedCluster) -> None:
    run = tasks(
        {"qemu_schedule": {"name": "web-1", **WEB}},
        {"qemu_schedule": {"name": "app-1", "cores": 8, "update": True}},
        "--check",
        "--diff",
    )
    assert run.code == 0, run.output
    assert [task.result["changed"] for task in run.tasks] == [True, True]
    assert "+cores: 2" in run.output
    assert "-cores: 4" in run.output
    assert "+cores: 8" in run.output
    assert {request["method"] for request in cluster.requests()} == {"GET"}


@either_way
def test_no_secret__is_shown_however_much_is(tasks: Tasks, cluster: SimulatedCluster, tmp_path: Path) -> None:
    template = {"name": "web-1", "clone": "debian-13", "cipassword": PASSWORD, "sshkeys": PUBLIC_KEY}
    run = tasks(
        {"qemu_schedule": template},
        {"qemu_schedule": {**template, "cores": 4, "update": True}},
        {"qemu_schedule": {**template, "name": "huge", "memory": 10**7}, "ignore_errors": True},
        {"qemu_schedule": {**template, "name": "web-2", "cores": 0}, "ignore_errors": True},
        "-vvv",
        "--diff",
        env=WITH_ARGUMENTS,
    )
    assert run.code == 0, run.output
    assert [task.failed for task in run.tasks] == [False, False, True, True]
    written = b"".join(path.read_bytes() for path in (tmp_path / "ansible").rglob("*.db*"))
    assert b"qemu_scheduler_reservations" in written
    results = json.dumps([task.result for task in run.tasks])
    for secret in (PASSWORD, cluster.token_secret):
        assert secret not in run.output
        assert secret not in results
        assert secret.encode() not in written
    assert PUBLIC_KEY.encode() not in written


@either_way
def test_password_of_a_ledger__is_shown_nowhere(tasks: Tasks) -> None:
    ledger = "postgresql://scheduler:geheim%21pw@127.0.0.1:1/ledger?sslpassword=sslgeheim"
    task = {"qemu_schedule": {"name": "web-1", "reservations": ledger}, "ignore_errors": True}
    run = tasks(task, "-vvv", env=WITH_ARGUMENTS)
    assert run.tasks[0].result["error_code"] == "LedgerUnavailable"
    for secret in ("geheim%21pw", "geheim!pw", "sslgeheim"):
        assert secret not in run.output
        assert secret not in json.dumps(run.tasks[0].result)
    # From ansible-core 2.22 on, the rest of the URL is hidden as well.
    assert re.search(r"postgresql://scheduler:\*\*\*\*|\$REDACTED\$", run.output)


@pytest.mark.parametrize("scheme", ["PostgreSQL", "postgres+psycopg", "mysql"])
def test_the_password_of_a_ledger__is_shown_nowhere_when_the_url_is_misspelt(
    controller: Controller, scheme: str
) -> None:
    ledger = f"{scheme}://scheduler:ge/heim%21pw@127.0.0.1:1/ledger"
    failed = controller.start("qemu_schedule", name="web-1", reservations=ledger)
    result = failed.result()
    assert result["error_code"] == "InvalidRequest"
    # From 2.21 on, ansible-core returns no arguments here.
    if "invocation" in result:
        shown = result["invocation"]["module_args"]["reservations"]
        assert shown == "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"
    assert "heim" not in failed.output


def test_task__may_be_tried_until_it_goes_well(tasks: Tasks, cluster: SimulatedCluster) -> None:
    cluster.fault(method="POST", path="/nodes/[^/]+/qemu$", status=500, message="not now", count=1)
    task = {"qemu_schedule": {"name": "web-1", **WEB}, "register": "made", "until": "made is succeeded", "retries": 2}
    run = tasks({**task, "delay": 0})
    assert run.code == 0, run.output
    assert run.tasks[0].result["attempts"] == 2
    assert "web-1" in names(cluster)


@either_way
def test_connection__is_given_once_for_all_modules_of_the_group(cluster: SimulatedCluster, tmp_path: Path) -> None:
    connection = {key.lower().replace("proxmox", "api"): value for key, value in cluster.environment().items()}
    connection["ca_path"] = connection.pop("api_ca_path")
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "module_defaults": {"group/qemu_scheduler.proxmox.proxmox": connection},
        "tasks": [
            {"name": "pick", "qemu_scheduler.proxmox.vmid_pick": {"count": 2}, "register": "picked"},
            {
                "name": "create",
                "qemu_scheduler.proxmox.qemu_schedule": {
                    "name": "web-1",
                    "vmid": "{{ picked.vmids[1] }}",
                    "memory": 512,
                },
            },
        ],
    }
    run = run_playbook(tmp_path, [play], {})
    assert run.code == 0, run.output
    assert run.of("create")["vmid"] == run.of("pick")["vmids"][1] == 104


@pytest.mark.parametrize(("count", "version", "execution"), [(5, "8.4", "module"), (50, "9.2", "auto")])
def test_forks__create_a_vm_each_at_the_same_moment(
    cluster: SimulatedCluster, tmp_path: Path, count: int, version: str
) -> None:
    inventory = tmp_path / "inventory"
    inventory.write_text("".join(f"web-{number}\n" for number in range(count)), encoding="utf-8")
    own = {
        "name": "{{ inventory_hostname }}",
        "memory": 3072,
        "scsi": {"scsi0": {"storage": "shared", "size": 1}},
        "state": "started",
    }
    task = {"name": "own VM", "qemu_scheduler.proxmox.qemu_schedule": own, "delegate_to": "localhost"}
    play = {"hosts": "all", "gather_facts": False, "tasks": [task]}
    run = run_playbook(tmp_path, [play], cluster.environment(), "--inventory", str(inventory), "--forks", str(count))
    assert run.code == 0, run.output
    results = [task.result for task in run.tasks]
    assert len(results) == count
    assert all(result["changed"] for result in results)
    vmids = {result["name"]: result["vmid"] for result in results}
    assert len(set(vmids.values())) == count
    guests = cluster.state()["guests"]
    assert {name: guests[vmid]["name"] for name, vmid in vmids.items()} == {name: name for name in vmids}
    used = dict.fromkeys(("pve1", "pve2", "pve3"), 0)
    for guest in guests.values():
        if guest["status"] == "running":
            used[guest["node"]] += int(guest["config"].get("memory", 512))
    assert max(used.values()) <= 65536, used


def test_interpreter_without_the_library__is_told_which_one_it_lacks(tasks: Tasks, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    interpreter = str(bare / "bin" / "python")
    run = tasks(
        {
            "qemu_schedule": {"name": "web-1"},
            "vars": {"ansible_python_interpreter": interpreter},
            "ignore_errors": True,
        }
    )
    assert run.last["error_code"] == "MissingLibrary"
    assert f"is not installed for {interpreter}" in run.last["msg"]


@either_way
def test_plugin_file__is_found_by_a_module_that_ansible_has_packed(tasks: Tasks, tmp_path: Path) -> None:
    (tmp_path / "third.py").write_text(
        """
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import FilterPlugin
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import unschedulable


class ThirdNode(FilterPlugin):
    '''Keeps the third node.'''

    name = "ThirdNode"

    def filter(self, state, request, node):
        return None if node.name == "pve3" else unschedulable("was not the third")
""",
        encoding="utf-8",
    )
    own = {"plugin_paths": [str(tmp_path / "third.py")], "plugin_config": {"filters": {"ThirdNode": {}}}}
    run = tasks(
        {"qemu_schedule": {"name": "web-1", **own}},
        {"qemu_schedule": {"name": "web-2", "node": "pve1", **own}, "ignore_errors": True},
    )
    assert [task.result.get("node") for task in run.tasks] == ["pve3", None]
    assert "was not the third" in run.last["msg"]


def test_failure__is_shown_as_a_table(tasks: Tasks) -> None:
    asked = {"vms": [{"name": "web-1"}, {"name": "huge", "memory": 10**7}]}
    drain = {"node_drain": {"name": ["pve1", "pve2", "pve3"]}, "check_mode": True}
    lines = tasks({"qemu_schedule": asked, "ignore_errors": True}, drain).output.splitlines()
    assert "qemu_schedule: 2 VMs: 1 failed, 1 not done" in lines
    assert any(line.startswith("qemu_schedule: huge   failed") for line in lines), lines
    assert any(re.match(r"node_drain: drain pve1, pve2, pve3: nothing moves, \d+ guest", line) for line in lines), lines
    quiet = tasks({"qemu_schedule": asked, "failed_when": False})
    assert "qemu_schedule: 2 VMs" not in quiet.output


def test_failures__keep_the_result_for_those_who_rescue_them(tasks: Tasks) -> None:
    run = tasks(
        {"qemu_schedule": {"name": "huge", "memory": 10**7}, "register": "outcome", "ignore_errors": True},
        {
            "ansible.builtin.assert": {
                "that": [
                    "outcome.error_code == 'NoNodesAvailable'",
                    "outcome.vms[0].decision.nodes | length == 3",
                    "outcome.vms[0].error.code == outcome.error_code",
                    "not outcome.changed",
                ]
            }
        },
    )
    assert run.code == 0, run.output
