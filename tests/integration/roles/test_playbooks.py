# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks, as a user runs them: plan, provision, the same again, capacity, teardown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from simulated_cluster.client import SimulatedCluster

from ansible_collections.qemu_scheduler.proxmox.plugins.modules import capacity_info, fleet_info, qemu_schedule

from .conftest import VMS, Play

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"


def test_file_of_vms__is_planned_provisioned_once_and_torn_down(
    cluster: SimulatedCluster, play: Play, tmp_path: Path
) -> None:
    before = set(cluster.state()["guests"])

    file = tmp_path / "plan.json"
    planned = play("plan", VMS, "-e", f"provision_plan_file={file}")
    assert planned.code == 0, planned.output
    assert set(cluster.state()["guests"]) == before
    assert re.search(r"web-1 +create\+start +pve4 +\d+ .* ahead of pve3", planned.output), planned.output
    assert "rejected by node state: was offline" in planned.output

    plan = json.loads(file.read_text(encoding="utf-8"))
    stats = planned.of("qemu_scheduler.proxmox.provision : Set the statistics")["ansible_stats"]["data"]
    assert stats["qemu_scheduler_plan"] == plan

    other = play("provision", {**VMS, "qemu_vms": VMS["qemu_vms"][:1], "provision_apply": str(file)})
    assert other.last["msg"] == 'apply: VM "db-1" is in the plan, but not in this task'
    provisioned = play("provision", {**VMS, "provision_apply": plan})
    assert provisioned.code == 0, provisioned.output
    assert "changed=1 " in provisioned.output
    created = {g["config"]["name"]: g for v, g in cluster.state()["guests"].items() if v not in before}
    assert {name: guest["status"] for name, guest in created.items()} == {"web-1": "running", "db-1": "stopped"}
    assert created["db-1"]["config"]["memory"] == "4096"
    assert "rejected by" not in provisioned.output
    assert {vm["name"]: vm["vmid"] for vm in plan["vms"]} == {name: guest["vmid"] for name, guest in created.items()}

    again = play("provision", VMS)
    assert again.code == 0, again.output
    assert "changed=0 " in again.output

    checked = play("teardown", VMS, "--check")
    assert "changed=1 " in checked.output
    assert set(cluster.state()["guests"]) != before

    protected = play("teardown", {**VMS, "teardown_only_tags": ["db"]})
    assert protected.last["msg"].startswith('RemovalRefused: VM "web-1"'), protected.output
    # The guard of a variable that is not set, as with -e teardown_only_pool=$POOL, or of one that is null.
    for nothing in ("", None):
        unset = play("teardown", {**VMS, "qemu_options": {"only_pool": "lab"}, "teardown_only_pool": nothing})
        assert "only_pool: is empty, expected the name of a pool" in unset.output
    assert set(cluster.state()["guests"]) != before

    removed = play("teardown", VMS)
    assert removed.code == 0, removed.output
    assert "changed=1 " in removed.output
    assert set(cluster.state()["guests"]) == before
    assert "changed=0 " in play("teardown", VMS).output


def test_drift__fails_a_scheduled_job_and_writes_nothing(cluster: SimulatedCluster, play: Play, tmp_path: Path) -> None:
    before = cluster.state()["guests"]
    missing = play("drift", VMS)
    assert missing.code != 0
    assert "2 VMs in the list: 2 missing" in missing.output
    assert missing.last["msg"] == "2 VMs in the list: 2 missing"
    stats = next(task.result for task in missing.tasks if task.task == "Set the statistics")
    assert stats["ansible_stats"]["data"]["qemu_scheduler_drift"]["summary"]["missing"] == 2
    assert play("drift", {**VMS, "drift_fail": False, "drift_page": ""}).code == 0
    # A survey gives an empty text for what is left empty.
    unsaid = play("drift", {**VMS, "drift_fail": "", "drift_unmanaged": ""})
    assert unsaid.last["msg"] == "2 VMs in the list: 2 missing"
    assert cluster.state()["guests"] == before
    play("provision", VMS)
    options = {**VMS["qemu_options"], "parallel_creates": 2}
    assert play("drift", {**VMS, "qemu_options": options}).code == 0
    page = tmp_path / "drift.html"
    extra = play("drift", {**VMS, "drift_unmanaged": True, "drift_page": str(page)})
    assert extra.code != 0
    assert " unmanaged " in extra.output
    assert "<h1>2 of 2 VMs as requested</h1>" in page.read_text(encoding="utf-8")


def test_progress__is_shown_while_vms_are_made(play: Play) -> None:
    output = play("provision", VMS).output
    lines = re.findall(r"^qemu_schedule: (\d)/2 (\S+) created.* on pve4 as \d+ \(\d+\.\d s\)$", output, re.MULTILINE)
    assert sorted(lines) == [("1", lines[0][1]), ("2", lines[1][1])]
    assert {name for _number, name in lines} == {"web-1", "db-1"}
    assert "qemu_schedule: " not in play("provision", VMS).output


def test_check_mode__writes_nothing_and_shows_the_same_decision(cluster: SimulatedCluster, play: Play) -> None:
    before = set(cluster.state()["guests"])
    run = play("provision", VMS, "--check", "--diff")
    assert run.code == 0, run.output
    assert set(cluster.state()["guests"]) == before
    assert re.search(r"web-1 +create\+start +pve4", run.output)
    assert "+cores: 2" in run.output


def test_plan__is_made_from_a_recording_without_a_cluster(play: Play, tmp_path: Path) -> None:
    recording = tmp_path / "cluster.json"
    task = {"qemu_scheduler.proxmox.cluster_snapshot_info": {"dest": str(recording)}}
    assert play([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]).code == 0
    planned = play(
        "plan",
        {**VMS, "qemu_options": {**VMS["qemu_options"], "api_host": "nowhere.invalid"}},
        "-e",
        f"provision_snapshot={recording}",
    )
    assert planned.code == 0, planned.output
    assert re.search(r"web-1 +create\+start +pve4", planned.output)
    shapes = [{"name": "s", "memory": 8192}]
    counted = play("capacity", {"capacity_shapes": shapes, "capacity_snapshot": str(recording)})
    assert counted.code == 0, counted.output
    assert re.search(r"\d\d more fit, limited by memory", counted.output), counted.output


def test_capacity__counts_the_vms_of_the_file_with_and_without_one_node_to_spare(play: Play, tmp_path: Path) -> None:
    page = tmp_path / "capacity.html"
    # A survey gives an empty text for what is left empty.
    counted = play("capacity", {**VMS, "capacity_page": str(page), "capacity_n_plus_one": ""})
    assert counted.code == 0, counted.output
    total = int(re.search(r'"(\d+) more fit if placed .*\(\d+ web-1, \d+ db-1\)', counted.output)[1])  # type: ignore[index]
    assert f"<h1>{total} more VMs fit</h1>" in page.read_text(encoding="utf-8")
    spared = play("capacity", VMS, "-e", "capacity_n_plus_one=true capacity_page= capacity_snapshot=")
    assert spared.code == 0, spared.output
    assert int(re.search(r'"(\d+) more fit', spared.output)[1]) < total  # type: ignore[index]


@pytest.mark.parametrize("variable", ["qemu_vms", "capacity_shapes"])
def test_capacity__of_an_empty_list_is_an_error(variable: str, play: Play) -> None:
    counted = play("capacity", {"qemu_vms": [], variable: []})
    assert counted.code != 0
    assert counted.last["msg"] == f"{variable}: is empty, expected one shape or more, such as [{{memory: 4096}}]"


@pytest.mark.parametrize(
    ("playbook", "module", "other"),
    [("drift", fleet_info, set()), ("capacity", capacity_info, {"vms", "clusters", "when_unreachable"})],
)
def test_options_that_a_module_lacks__are_not_passed_to_it(playbook: str, module: ModuleType, other: set[str]) -> None:
    """other: those that have another name, or must not be ignored."""
    (described,) = yaml.safe_load((PLAYBOOKS / f"{playbook}.yml").read_text(encoding="utf-8"))
    lacking = qemu_schedule.argument_spec().keys() - module.argument_spec().keys()
    assert set(described["vars"][f"{playbook}_ignored"]) == lacking - other


def test_page__is_written_by_a_plan_and_is_no_change(cluster: SimulatedCluster, play: Play, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    cluster.reset_requests()
    run = play("plan", VMS, "-e", f"provision_page={page}")
    assert run.code == 0, run.output
    text = page.read_text(encoding="utf-8")
    assert "<h1>Placement of 2 VMs</h1>" in text
    assert "Plan: nothing was written" in text
    assert "<dd>demo</dd>" in text
    assert [request["path"] for request in cluster.requests()].count("/cluster/status") == 1
    assert "<dd>Plan VMs</dd>" in text
    assert "gitlab" in text
    assert "http" not in text.replace("http-equiv", "")


def test_cluster_on_a_page__is_as_the_user_says_or_as_it_is_called_or_its_address(play: Play, tmp_path: Path) -> None:
    cases: dict[str, dict[str, object]] = {
        "north &amp; south": {"html_page_cluster": "north & south"},
        "demo": {"html_page_cluster": "", "html_page_options": {"memory": 2048}},
        "nowhere.invalid": {"html_page_options": {"api_host": "nowhere.invalid"}},
        "127.0.0.1": {"html_page_options": {"snapshot": "recorded.json"}},
    }
    role = {"name": "qemu_scheduler.proxmox.html_page"}
    tasks = [
        {"ansible.builtin.include_role": role, "vars": {"html_page_path": str(tmp_path / shown), **case}}
        for shown, case in cases.items()
    ]
    described = {"name": "Page", "hosts": "localhost", "gather_facts": False, "tasks": tasks}
    run = play([described], {"html_page_result": {"vms": [], "nodes": []}})
    assert run.code == 0, run.output
    for shown in cases:
        assert f"<dd>{shown}</dd>" in (tmp_path / shown).read_text(encoding="utf-8")


def test_mistake__is_told_once_and_without_the_nodes(play: Play, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run = play(
        "plan",
        {"qemu_vms": [{"name": "web-1", "clone": "debain-13"}], "provision_explain": False},
        "-e",
        f"provision_page={page}",
    )
    assert run.code != 0
    shown = run.output.partition("Fail if a VM failed")[0]
    assert shown.count("TemplateNotFound") == 1, shown
    text = page.read_text(encoding="utf-8")
    assert "known templates: debian-13" in text
    assert "nodes usable" not in text
    assert "Nodes, before and after" not in text


def test_nothing_that_was_asked_for__can_become_markup(play: Play, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    hostile = "<img src=x onerror=alert(1)>"
    vms = [{"name": "evil", "node_regex": hostile}, {"name": "gitlab", "description": hostile}]
    run = play("plan", {"qemu_vms": vms}, "-e", f"provision_page={page}")
    assert run.code != 0
    text = page.read_text(encoding="utf-8")
    assert "<img" not in text
    assert text.count("&lt;img src=x onerror=alert(1)&gt;") >= 7


def test_no_secret__is_in_the_output_at_any_verbosity(cluster: SimulatedCluster, play: Play) -> None:
    vms = [{"name": "secret-1", "cipassword": "correct-horse", "ciuser": "ann"}]
    for name in ("provision", "teardown"):
        run = play(name, {"qemu_vms": vms}, "-vvv")
        assert run.code == 0, run.output
        assert "correct-horse" not in run.output.replace('-e "@', ""), name
        assert cluster.token_secret not in run.output


@pytest.mark.parametrize(
    ("playbook", "misspelt", "meant"),
    [
        ("provision", "provision_plan_onyl", "provision_plan_only"),
        ("teardown", "teardown_planonly", "teardown_plan_only"),
    ],
)
def test_roles__refuse_unknown_variables_before_anything_is_read(
    cluster: SimulatedCluster, play: Play, playbook: str, misspelt: str, meant: str
) -> None:
    before = set(cluster.state()["guests"])
    run = play(playbook, VMS, "-e", f"{misspelt}=true")
    assert run.code != 0
    assert f"unknown variable {misspelt}; did you mean {meant}?" in run.output
    assert set(cluster.state()["guests"]) == before


@pytest.mark.parametrize(
    ("playbook", "misspelt", "meant"),
    [
        ("teardown", "qemu_option", "qemu_options"),
        ("provision", "qemu_option", "qemu_options"),
        ("capacity", "qemu_option", "qemu_options"),
        ("capacity", "capacity_npusone", "capacity_n_plus_one"),
        ("drift", "qemu_optoins", "qemu_options"),
        ("plan", "provison_explain", "provision_explain"),
    ],
)
def test_misspelt_options__never_drop_the_guard_of_a_removal(
    cluster: SimulatedCluster, play: Play, playbook: str, misspelt: str, meant: str
) -> None:
    before = cluster.state()["guests"]
    running = next(guest["name"] for guest in before.values() if guest.get("name") and not guest.get("template"))
    run = play(playbook, {"qemu_vms": [{"name": running}], misspelt: {"only_pool": "lab"}})
    assert run.code != 0
    assert f"unknown variable {misspelt}; did you mean {meant}?" in run.output
    assert cluster.state()["guests"].keys() == before.keys()


@pytest.mark.parametrize("guard", [{"only_pool": "lab"}, {"only_tags": ["lab"]}])
def test_guard_beside_the_options__never_lets_a_vm_be_removed(
    cluster: SimulatedCluster, play: Play, guard: dict[str, Any]
) -> None:
    before = cluster.state()["guests"].keys()
    run = play("teardown", {"qemu_vms": [{"name": "gitlab"}], **guard})
    assert f"variable {next(iter(guard))} has no effect on the VMs; expected it in qemu_options" in run.last["msg"]
    assert cluster.state()["guests"].keys() == before


def test_guard_from_a_variable_of_its_name__is_in_use(cluster: SimulatedCluster, play: Play) -> None:
    """Variables of other roles, such as memory, do not matter, and an empty guard is named as the user calls it."""
    before = cluster.state()["guests"].keys()
    variables = {"qemu_vms": [{"name": "gitlab"}], "memory": 512, "only_pool": "lab"}
    run = play("teardown", {**variables, "teardown_only_pool": "{{ only_pool }}"})
    assert "is not removed: only_pool requires pool lab" in run.last["msg"]
    empty = play("teardown", {**variables, "teardown_only_pool": None})
    assert "teardown_only_pool: is empty, expected the name of a pool" in empty.last["msg"]
    assert cluster.state()["guests"].keys() == before


@pytest.mark.parametrize(
    ("playbook", "variables", "told"),
    [
        (
            "provision",
            {"qemu_vms": [{"name": "a"}, {"name": "b", "memory": "4GB"}]},
            "qemu_vms[1].memory: '4GB' is not",
        ),
        ("provision", {"qemu_vms": [{"name": "a", "state": "startd"}]}, "found in qemu_vms; did you mean started?"),
        ("provision", {"qemu_vms": [{"name": "a"}] * 2}, "name: 'a' is set in 2 entries of qemu_vms, expected "),
        ("teardown", {"qemu_vms": [{"name": "a*"}]}, "qemu_vms[0].name: 'a*' is not valid"),
        ("capacity", {"capacity_shapes": [{"cores": "two"}]}, "capacity_shapes[0].cores: 'two' is not valid"),
        ("capacity", {"qemu_vms": [{"name": "a", "cores": "two"}]}, "qemu_vms[0].cores: 'two' is not valid"),
        ("drain", {"node_drain_nodes": ["pve11"]}, "node_drain_nodes: 'pve11' is not a node; "),
        (
            "adopt",
            {"adopt_name": "shop-*"},
            "adopt_name: shop-*: there is no such VM; nothing was written; adopt_name is",
        ),
        ("adopt", {"adopt_file": "/nowhere/x.yml"}, "adopt_file: /nowhere/x.yml cannot be written"),
        ("adopt", {"adopt_file": ["x.yml"]}, "adopt_file: ['x.yml'] cannot be written"),
    ],
)
def test_mistake__is_named_by_the_variable_that_has_it(
    cluster: SimulatedCluster, play: Play, playbook: str, variables: dict[str, Any], told: str
) -> None:
    cluster.reset_requests()
    run = play(playbook, variables)
    assert run.code == 2
    assert told in run.last["msg"]
    # Nor by an option of the module, such as in the [ERROR] line that comes first since ansible-core 2.19.
    assert not re.search(r"\b((vms|shapes)\[|name: 'pve|(in|of)\s+vms\b)", run.output), run.output
    assert {request["method"] for request in cluster.requests()} <= {"GET"}


@pytest.mark.parametrize(
    ("playbook", "options"),
    [
        ("drain", "node_drain_options"),
        *((each, "qemu_options") for each in ("adopt", "capacity", "doctor", "drift", "provision")),
    ],
)
def test_roles__refuse_options_that_are_text(play: Play, playbook: str, options: str) -> None:
    """Ansible takes the value of -e NAME=VALUE as text."""
    asked = {"qemu_vms": VMS["qemu_vms"], "node_drain_nodes": ["pve1"]}
    run = play(playbook, asked, "-e", f'{options}={{"timeout":9}}')
    assert run.code != 0
    assert f"{options}: expected a mapping, such as " in run.output


def test_roles__know_the_variables_that_they_set(play: Play) -> None:
    play("provision", VMS)
    play_ = {"hosts": "localhost", "gather_facts": False}
    role = {"ansible.builtin.include_role": {"name": "qemu_scheduler.proxmox.provision"}}
    run = play([{**play_, "tasks": [role, role]}], VMS)
    assert run.code == 0, run.output


def test_doctor__finds_everything_in_order_or_says_what_helps(play: Play) -> None:
    healthy = play("doctor", VMS)
    assert healthy.code == 0, healthy.output
    assert re.search(r"rights +ok +sufficient for: provision", healthy.output), healthy.output
    assert "changed=0 " in healthy.output
    lost = play("doctor", {"qemu_options": {"api_host": "nowhere.invalid"}, "doctor_purposes": "drain"})
    assert lost.code == 2
    assert lost.last["msg"].startswith("ConnectionFailed: nowhere.invalid:"), lost.output
    misspelt = play("provision", {**VMS, "qemu_options": {"api_host": "nowhere.invalid"}})
    assert "ansible-playbook qemu_scheduler.proxmox.doctor checks the connection" in misspelt.output
