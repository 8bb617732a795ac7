# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks run in the worker process or as modules, with the same results."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible.release import __version__ as ansible_version
from packaging.version import Version
from simulated_cluster.client import SimulatedCluster
from support.parity import without_variable_parts
from support.playbook import COLLECTION, COLLECTIONS, PlayRun, environment, run_playbook

Start = Callable[..., SimulatedCluster]

SECRET = "very-geheim-cipassword"
ACTIONS = COLLECTIONS / COLLECTION / "plugins" / "action"
DIRECT = "running directly in the worker process"
CREATE_AND_FIND = """
import contextlib, json, sys
from ansible.module_utils import basic
from ansible_collections.qemu_scheduler.proxmox.plugins.action import qemu_schedule

basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": {"name": "a", "memory": 512}}).encode()
basic._ANSIBLE_PROFILE = "legacy"
before = set(sys.modules)
for _time in range(2):
    with contextlib.suppress(SystemExit):
        qemu_schedule.qemu_schedule.main()
print(*sys.modules.keys() - before, sep="\\n", file=sys.stderr)
"""
"""Creates a VM in the process that has imported the action plugin, finds it there the second time, and writes what was
imported after the action plugin.
"""

PICK = {"qemu_scheduler.proxmox.vmid_pick": {}}


def schedule(**options: Any) -> dict[str, Any]:
    return {"qemu_scheduler.proxmox.qemu_schedule": options}


TASKS: list[dict[str, Any]] = [
    {**schedule(name="a", memory=512, cipassword=SECRET, state="started"), "register": "made"},
    schedule(name="a", memory=1024),
    {**schedule(name="a", memory=1024, update=True), "diff": True},
    {**schedule(name="plan", memory=512, profile="pack"), "check_mode": True},
    {**schedule(name="{{ item }}", memory=512, vmid_range="300-310"), "loop": ["b", "c"]},
    {**schedule(name="a", memory=1024), "async": 60, "poll": 1},
    {**PICK, "environment": {"PROXMOX_HOST": "nowhere.invalid", "PROXMOX_PORT": "8006"}},
    {"qemu_scheduler.proxmox.vmid_pick": {"count": "{{ made.vms | length }}"}},
    schedule(name="large", memory=99_999_999),
    schedule(name="large", memory="lots"),
    schedule(name="large", memroy=512),
    schedule(name="large", vmid_regex="("),
    {**schedule(name="a", memory=1024), "no_log": True},
    {**schedule(name="a", memory=1024), "register": "found", "until": "found is not changed", "retries": 2, "delay": 0},
    {"qemu_scheduler.proxmox.capacity_info": {"shapes": [{"name": "small", "memory": 2048}]}},
    {"qemu_scheduler.proxmox.cluster_snapshot_info": {}},
    {"qemu_scheduler.proxmox.vm_address_info": {"vmids": "{{ made.vms | map(attribute='vmid') }}"}},
    {"qemu_scheduler.proxmox.fleet_info": {"vms": [{"name": "a", "memory": 2048}], "unmanaged": True}},
    {
        "qemu_scheduler.proxmox.connection_info": {},
        "environment": {"PROXMOX_HOST": "nowhere.invalid", "PROXMOX_PORT": "8006"},
    },
    {"qemu_scheduler.proxmox.vm_list_info": {}},
    {"qemu_scheduler.proxmox.node_health_info": {"name": "{{ made.vms[0].node }}"}},
    {"qemu_scheduler.proxmox.ceph_flag": {"name": "noout"}},
    {"qemu_scheduler.proxmox.cluster_power": {"state": "on"}},
    {"qemu_scheduler.proxmox.maintenance_tour": {"name": "{{ made.vms[0].node }}"}},
    {"qemu_scheduler.proxmox.cluster_rebalance": {"goals": ["balance"]}, "check_mode": True},
    {"qemu_scheduler.proxmox.node_drain": {"name": "{{ made.vms[0].node }}"}},
    {"qemu_scheduler.proxmox.node_drain": {"name": "{{ made.vms[0].node }}", "state": "active"}},
    schedule(vms=[{"name": name} for name in "abc"], state="absent"),
]


def test_tasks__have_every_module_that_can_run_either_way() -> None:
    modules = {path.stem for path in ACTIONS.glob("*.py") if path.stem != "__init__"}
    assert {key.rpartition(".")[2] for task in TASKS for key in task if "." in key} == modules


def play(tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    tolerant = [{"name": f"task {number}", "ignore_errors": True, **task} for number, task in enumerate(tasks)]
    return [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tolerant}]


@pytest.fixture
def run(start: Start, tmp_path: Path) -> Callable[..., PlayRun]:
    """Run tasks on a new cluster, one way or the other."""

    def run_tasks(tasks: Sequence[Mapping[str, Any]], execution: str, *arguments: str) -> PlayRun:
        # So fast that no figure of the cluster is late when the next task reads it.
        settings = {"QEMU_SCHEDULER_EXECUTION": execution, "ANSIBLE_INJECT_INVOCATION": "true"}
        env = {**start(time_scale=0.001).environment(), **settings}
        return run_playbook(tmp_path / execution, play(tasks), env, *arguments)

    return run_tasks


def test_results__are_the_same_either_way(run: Callable[..., PlayRun]) -> None:
    executions = ("auto", "module")
    ways = [run(TASKS, execution, "-vvv") for execution in executions]
    assert ways[0].output.count(DIRECT) == len(TASKS)  # one loops over two items, one is async
    assert DIRECT not in ways[1].output
    direct, module = (
        # Each way has a folder of its own, and so a ledger of its own.
        json.loads(
            json.dumps([(task.task, task.failed, without_variable_parts(task.result)) for task in way.tasks]).replace(
                f"/{execution}/state/", "/state/"
            )
        )
        for execution, way in zip(executions, ways, strict=True)
    )
    assert len(direct) == len(TASKS)
    for of_direct, of_module in zip(direct, module, strict=True):
        assert of_direct == of_module
    assert len(ways[0].tasks[1].result["warnings"]) == 1
    assert all(SECRET not in way.output for way in ways)


def test_worker__imports_nothing_that_ansible_playbook_has_not_imported(start: Start, tmp_path: Path) -> None:
    """Else each of fifty forks imports it. What an action plugin imports, ansible-playbook does before it forks."""
    done = subprocess.run(
        [sys.executable, "-c", CREATE_AND_FIND],
        env=environment(tmp_path, {**start(time_scale=0.001).environment(), "PYTHONPATH": str(COLLECTIONS)}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert [json.loads(line)["changed"] for line in done.stdout.splitlines() if line] == [True, False], done.stdout
    heavy = ("ansible_collections.", "proxmoxer", "requests", "sqlite3", "urllib3")
    imported_by_worker = [name for name in done.stderr.splitlines() if name.startswith(heavy)]
    assert imported_by_worker == []


def test_task__runs_as_a_module_where_it_has_to(run: Callable[..., PlayRun]) -> None:
    nowhere = {"ansible_connection": "ssh", "ansible_host": "nowhere.invalid"}
    reasons: dict[str, dict[str, Any]] = {
        "become is set": {"become": True},
        "async is set": {"async": 60, "poll": 1},
        "the interpreter is /usr/bin/python4": {"vars": {"ansible_python_interpreter": "/usr/bin/python4"}},
        "execution is set to module": {"vars": {"qemu_scheduler_execution": "{{ 'module' }}"}},
        # Last, as the play ends for a host that cannot be reached.
        "the connection is ssh": {"vars": nowhere},
    }
    output = run([{**PICK, **keywords} for keywords in reasons.values()], "auto", "-vvv").output
    assert re.findall("vmid_pick: running as a module: ([^,\n]+)", output) == list(reasons)


FAR_AWAY = """#!/bin/sh
# What ssh does, without a network: it runs its last argument in a shell with an environment of its own.
for command; do :; done
printf '%s\\n' "$command" >> "$0.log"
exec env -i PATH="$PATH" HOME="$HOME" XDG_STATE_HOME="$HOME/state" sh -c "$command"
"""


def test_task__runs_on_another_host_with_the_same_result(start: Start, tmp_path: Path) -> None:
    """It must not look for processes of the controller there: others have their ids, or nobody."""
    cluster = start(time_scale=0.001)
    ssh = tmp_path / "ssh"
    ssh.write_text(FAR_AWAY, encoding="utf-8")
    ssh.chmod(0o755)
    given = cluster.environment()
    login = {
        "api_host": given["PROXMOX_HOST"], "api_port": given["PROXMOX_PORT"], "ca_path": given["PROXMOX_CA_PATH"],
        "api_user": given["PROXMOX_USER"], "api_token_id": given["PROXMOX_TOKEN_ID"],
        "api_token_secret": given["PROXMOX_TOKEN_SECRET"],
    }  # fmt: skip
    far = {
        "ansible_connection": "ssh", "ansible_host": "far.invalid", "ansible_ssh_executable": str(ssh),
        "ansible_ssh_transfer_method": "piped", "ansible_python_interpreter": sys.executable,
        "ansible_ssh_use_tty": False,
    }  # fmt: skip
    plays = [
        {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [
            {"ansible.builtin.add_host": {"name": "far", **far}},
            {**schedule(name="a", memory=512, state="started", **login), "delegate_to": "far"},
            schedule(name="a", memory=512, state="started", **login),
        ]},
        {"hosts": "far", "gather_facts": False, "tasks": [
            schedule(name="a", memory=512, cores=2, update=True, **login),
            {"qemu_scheduler.proxmox.node_drain": {"name": "pve1", **login}},
        ]},
    ]  # fmt: skip
    play = run_playbook(tmp_path / "play", plays, {"QEMU_SCHEDULER_EXECUTION": "auto"}, "-vvv")
    assert play.code == 0, play.output
    _added, made, found, changed, drained = play.tasks
    assert (made.result["vms"][0]["actions"], made.result["changed"]) == (["create", "start"], True)
    assert found.result["changed"] is False
    assert changed.result["vms"][0]["actions"] == ["update"]
    assert not drained.failed
    assert play.output.count("running as a module: the connection is ssh") == 3
    sent = (tmp_path / "ssh.log").read_text(encoding="utf-8")
    assert "AnsiballZ_qemu_schedule.py" in sent
    assert "QEMU_SCHEDULER_STARTED_BY" not in sent


def test_task__runs_directly_with_the_interpreter_of_ansible(run: Callable[..., PlayRun]) -> None:
    interpreters = ("{{ ansible_playbook_python }}", "auto", "auto_silent")
    tasks = [{**PICK, "vars": {"ansible_python_interpreter": each}} for each in interpreters]
    assert run(tasks, "auto", "-vvv").output.count(f"vmid_pick: {DIRECT}") == len(tasks)


def test_execution__direct_fails_where_it_is_impossible(run: Callable[..., PlayRun]) -> None:
    task = run([{**PICK, "async": 60, "poll": 1}], "direct").tasks[-1]
    assert task.failed
    assert "execution is set to direct, but qemu_scheduler.proxmox.vmid_pick cannot run" in task.result["msg"]
    assert "async is set" in task.result["msg"]


def test_execution__refuses_an_unknown_way(run: Callable[..., PlayRun]) -> None:
    task = run([PICK], "fast").tasks[-1]
    assert task.failed
    assert "fast" in task.result["msg"]
    assert "execution" in task.result["msg"]


def test_environment__of_a_task_does_not_reach_the_next_item(run: Callable[..., PlayRun]) -> None:
    task = {
        **PICK,
        "loop": ["nowhere.invalid", ""],
        "environment": "{{ {'PROXMOX_HOST': item} if item else {} }}",
    }
    first, second = run([task], "auto").last["results"]
    assert first["error_code"] == "ConnectionFailed"
    assert second["vmid"]


@pytest.mark.parametrize("execution", ["auto", "module"])
def test_numbers__that_ansible_cannot_print_are_refused_either_way(run: Callable[..., PlayRun], execution: str) -> None:
    digits = "{{ '9' * 5000 }}"
    shapes = {"shapes": [{"name": "a", "vmid": digits}]}
    tasks = [
        schedule(name="a", cores=digits),
        schedule(vms=[{"name": "a", "cores": digits}]),
        {"qemu_scheduler.proxmox.vmid_pick": {"count": digits}},
        {"qemu_scheduler.proxmox.capacity_info": shapes},
    ]
    options = ["cores", "vms[0].cores", "count", "shapes[0].vmid"]
    if Version(ansible_version) >= Version("2.19"):  # before, templates make no number of this
        tasks.append(schedule(name="a", context={"a": "{{ ('9' * 4000) | int * 10 ** 1000 }}"}))
        options.append("context.a")
    expected = "99999999999999999999... is not possible, expected a number of at most 100 digits"
    results = [task.result for task in run(tasks, execution).tasks]
    assert [result["error_code"] for result in results] == ["InvalidRequest"] * len(tasks)
    assert [result["msg"] for result in results] == [f"{option}: {expected}" for option in options]
