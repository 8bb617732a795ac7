# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks do their work, and report it, on an ansible-core whose undocumented parts are not as direct execution needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.other_core import Change, NothingChanged, beginning, copied, renaming, renaming_attribute
from support.playbook import PlayRun, run_tasks

NAMES = (
    "_ANSIBLE_ARGS",
    "_ANSIBLE_PROFILE",
    "_compute_environment_string",
    "_execute_module",
    "_parse_returned_data",
    "_update_module_args",
    "as_result_dict",
    "get_config_value",
    "initialize_plugin_configuration_definitions",
)
ATTRIBUTES = ("_connection", "_play_context", "_task", "_templar")
OF_ACTIONS = "plugins/action"
AS_A_MODULE, DIRECTLY = "qemu_schedule: running as a module: ", "qemu_schedule: running directly"
CREATED = "'\"vmid\"' in str(res['stdout'])"


def create(cluster: SimulatedCluster, folder: Path, change: Change, below: str = "") -> PlayRun:
    """Create one VM with a changed ansible-core, and check the cluster and the result."""
    try:
        other = copied(folder / "core", change, below)
    except NothingChanged:
        pytest.skip("this release of ansible-core has no such name")
    task = {"qemu_scheduler.proxmox.qemu_schedule": {"name": "web-1", "memory": 512, "state": "started"}}
    run = run_tasks(folder, [{"name": "create", **task}], {**cluster.environment(), **other}, "-vvv")
    made = [guest for guest in cluster.state()["guests"].values() if guest["name"] == "web-1"]
    assert [guest["status"] for guest in made] == ["running"], run.output
    sent = [each["path"] for each in cluster.requests() if each["method"] == "POST" and each["path"].endswith("/qemu")]
    assert len(sent) == 1
    assert run.code == 0, run.output
    result = run.of("create")
    assert (result["changed"], result["vmid"], result["vms"][0]["status"]) == (True, made[0]["vmid"], "running")
    return run


@pytest.mark.parametrize("name", NAMES)
def test_name__that_another_release_does_not_have(cluster: SimulatedCluster, tmp_path: Path, name: str) -> None:
    run = create(cluster, tmp_path, renaming(name))
    # Ansible never calls what this replaces.
    said = name != "_execute_module"
    assert (DIRECTLY in run.output, AS_A_MODULE in run.output) == (False, said)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attribute__that_actions_of_another_release_do_not_have(
    cluster: SimulatedCluster, tmp_path: Path, name: str
) -> None:
    run = create(cluster, tmp_path, renaming_attribute(name), OF_ACTIONS)
    assert (DIRECTLY in run.output, AS_A_MODULE in run.output) == (False, True)


@pytest.mark.parametrize(
    "options",
    [
        {"memory": "lots", "cipassword": {"of": "correct-horse"}},
        {"memory": "lots", "vms": {"a": {"cipassword": "correct-horse"}}},
        {"memory": 512, "api_user": "root@pam:correct-horse"},
    ],
)
def test_secret__is_hidden_without_the_step_before_the_options_are_checked(
    cluster: SimulatedCluster, tmp_path: Path, options: dict[str, Any]
) -> None:
    other = copied(tmp_path / "core", renaming("_set_internal_properties"))
    task = {"qemu_scheduler.proxmox.qemu_schedule": {"name": "web-1", **options}}
    run = run_tasks(tmp_path, [task], {**cluster.environment(), **other}, "-vvv")
    assert run.code != 0, run.output
    assert "correct-horse" not in run.output
    assert not [request for request in cluster.requests() if request["method"] != "GET"]


@pytest.mark.parametrize("line", ["raise RuntimeError('odd')", "res = {**res, 'stdout': '{}'}", "return None"])
def test_parser__that_always_fails(cluster: SimulatedCluster, tmp_path: Path, line: str) -> None:
    odd = beginning("_parse_returned_data", f"if type(self).__module__.endswith('qemu_schedule'): {line}")
    task = {"qemu_scheduler.proxmox.qemu_schedule": {"name": "web-1", "memory": 512}}
    run = run_tasks(tmp_path, [task], {**cluster.environment(), **copied(tmp_path / "core", odd)}, "-vvv")
    # Ansible's own way needs it as well, so there is no answer: but it was noticed before the module ran directly.
    assert (DIRECTLY in run.output, AS_A_MODULE in run.output) == (False, True)


@pytest.mark.parametrize("line", ["raise RuntimeError('odd')", "res = {**res, 'stdout': '{}'}", "return None"])
def test_parser__that_fails_once_the_module_has_run(cluster: SimulatedCluster, tmp_path: Path, line: str) -> None:
    run = create(cluster, tmp_path, beginning("_parse_returned_data", f"if {CREATED}: {line}"))
    assert (DIRECTLY in run.output, AS_A_MODULE in run.output) == (True, False)


@pytest.mark.parametrize("parameters", ["*, res", "must, res"])
def test_parser__that_takes_other_arguments(cluster: SimulatedCluster, tmp_path: Path, parameters: str) -> None:
    arguments = "res=res, profile=" if parameters.startswith("*") else "0, res, "

    def change(text: str) -> str:
        text = text.replace("_parse_returned_data(res, ", f"_parse_returned_data({arguments}")
        text = text.replace("_parse_returned_data(res)", f"_parse_returned_data({arguments.rpartition(', ')[0]})")
        return text.replace("def _parse_returned_data(self, res", f"def _parse_returned_data(self, {parameters}")

    run = create(cluster, tmp_path, change)
    assert (DIRECTLY in run.output, AS_A_MODULE in run.output) == (False, True)
