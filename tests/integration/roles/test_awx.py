# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AWX is set up with: modules get options that they have, surveys make VMs, workflows carry out approved plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.sandbox import ImmutableSandboxedEnvironment
from simulated_cluster.client import SimulatedCluster
from support.playbook import COLLECTIONS, run_playbook

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import connection_argument_spec

from .conftest import VMS, Play

MODULES = Path(__file__).with_name("awx_modules.json")
ACTION = Path(__file__).resolve().parents[2] / "support" / "awx_action.py"
REQUIRED = {
    "awx_image": "images.example.com/scheduler:1",
    "awx_project_url": "https://git.example.com/vms.git",
    "awx_project_branch": "1.2.3",
    "awx_credential": {"host": "pve1.example.com", "user": "awx@pve", "token_id": "awx", "token_secret": "not-shown"},
}
PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"
SET_BY_AWX = {
    f"awx_{name}": "x"
    for name in (
        "execution_node", "inventory_id", "inventory_name", "job_id", "job_launch_type", "job_scm_branch",
        "job_template_id", "job_template_name", "parent_job_schedule_id", "project_revision", "project_scm_branch",
        "schedule_id", "schedule_name", "user_email", "user_first_name", "user_id", "user_last_name", "user_name",
        "webhook_event_guid", "webhook_payload", "workflow_job_id", "workflow_job_launch_type", "workflow_job_name",
    )
}  # fmt: skip
"""Variables of each job."""


class Loader(yaml.SafeLoader):
    """Reads `!unsafe` as the text that it stands before."""


Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))  # type: ignore[arg-type]


def read(name: str) -> dict[str, Any]:
    return dict(yaml.load((PLAYBOOKS / "vars" / name).read_text(encoding="utf-8"), Loader))


def test_answers_to_the_survey__make_the_vms(cluster: SimulatedCluster, play: Play) -> None:
    before = set(cluster.state()["guests"])
    # AWX hands over an empty text for a question that was not answered.
    questions = read("awx_survey.yml")["awx_survey"]["spec"]
    answers = {question["variable"]: question.get("default", "") for question in questions}
    answers |= {"survey_name": "batch", "survey_count": 3, "survey_tags": "web, front"}
    planned = play("from_survey", {**answers, "provision_plan_only": True})
    assert planned.code == 0, planned.output
    assert set(cluster.state()["guests"]) == before
    run = play("from_survey", {**answers, "survey_more": {"reservations": "none"}})
    assert run.code == 0, run.output
    made = [guest["config"] for vmid, guest in cluster.state()["guests"].items() if vmid not in before]
    assert sorted(config["name"] for config in made) == ["batch-1", "batch-2", "batch-3"]
    assert {config["tags"] for config in made} == {"front;web"}
    assert {str(config["cores"]) for config in made} == {"2"}
    again = play("from_survey", answers)
    assert "changed=0 " in again.output


def test_no_answer__becomes_an_option_of_the_vms(cluster: SimulatedCluster, play: Play) -> None:
    before = set(cluster.state()["guests"])
    name = 'gitlab", "state": "absent", "description": "'
    answers = {"survey_name": name, "survey_count": 1, "survey_cores": 1, "survey_memory": 512, "survey_disk": 8}
    run = play("from_survey", answers)
    assert set(cluster.state()["guests"]) == before
    assert run.last["error_code"] == "InvalidRequest"
    assert "vms[0].name" in run.last["msg"]


def test_answers__that_are_missing_or_misspelt_or_no_number_are_all_named(play: Play) -> None:
    run = play("from_survey", {"survey_name": "batch", "survey_count": "two", "survey_core": 1, "survey_memory": 512})
    assert run.last["msg"] == (
        "unknown variable survey_core; did you mean survey_cores?; survey_cores is not set; survey_disk is not set; "
        "survey_count: expected a whole number of at least 1"
    )


def test_answers__of_another_type_are_refused_by_name(play: Play) -> None:
    answers = {"survey_name": "batch", "survey_cores": 1, "survey_memory": 512, "survey_disk": 8}
    run = play("from_survey", {**answers, "survey_count": 1.5, "survey_more": "pool=shop"})
    assert run.last["msg"] == (
        "survey_more: expected a mapping, such as {api_port: 8006}, got a text; "
        "survey_count: expected a whole number of at least 1"
    )


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("survey_bridge", "vmbr0,tag=99,firewall=0"),
        ("survey_bridge", "vmbr0,model=e1000"),
        ("survey_disk", "8,ssd=1"),
        ("survey_memory", "512,balloon=0"),
        ("survey_cores", "1,cpu=host"),
        ("survey_name", "web,tag=99"),
        ("survey_tags", "a;b=c,net0=x"),
    ],
)
def test_no_answer__adds_a_property_to_an_option(
    question: str, answer: str, cluster: SimulatedCluster, play: Play
) -> None:
    before = set(cluster.state()["guests"])
    answers = {"survey_name": "web", "survey_count": 1, "survey_cores": 1, "survey_memory": 512, "survey_disk": 8}
    run = play("from_survey", {**answers, question: answer})
    assert run.code != 0
    assert set(cluster.state()["guests"]) == before


def test_template__can_be_named_and_its_network_kept(cluster: SimulatedCluster, play: Play) -> None:
    answers = {"survey_name": "copy", "survey_count": "1", "survey_clone": "debian-13", "survey_cores": "1"}
    run = play("from_survey", {**answers, "survey_memory": "1024", "survey_disk": "8", "survey_bridge": ""})
    assert run.code == 0, run.output
    (config,) = (g["config"] for g in cluster.state()["guests"].values() if g["config"].get("name") == "copy-1")
    assert "bridge=vmbr0" in config["net0"]


def test_every_variable_of_the_credential__is_one_that_is_read() -> None:
    injected = read("awx_credential_type.yml")["awx_credential_injectors"]["env"]
    fallbacks = {option["fallback"][1][0] for option in connection_argument_spec().values() if "fallback" in option}
    assert {name for name in injected if name.startswith("PROXMOX_")} - {"PROXMOX_URL"} <= fallbacks


def test_every_field_of_the_credential__is_handed_over() -> None:
    type_ = read("awx_credential_type.yml")
    injectors = str(type_["awx_credential_injectors"])
    for field in type_["awx_credential_inputs"]["fields"]:
        assert "{{ " + field["id"] in injectors
    secrets = {field["id"] for field in type_["awx_credential_inputs"]["fields"] if field.get("secret")}
    assert secrets == {"token_secret", "ledger_password"}


@pytest.mark.parametrize(("fields", "path"), [({"ca": "-----BEGIN"}, "/runner/ca"), ({"ca": ""}, ""), ({}, "")])
def test_credential__names_a_ca_file_only_if_a_certificate_is_given(fields: dict[str, str], path: str) -> None:
    # AWX renders the injectors in a sandbox of this kind, in which a field left out is undefined.
    template = read("awx_credential_type.yml")["awx_credential_injectors"]["env"]["PROXMOX_CA_PATH"]
    tower = {"filename": {"ca": "/runner/ca"}}
    assert ImmutableSandboxedEnvironment().from_string(template).render(tower=tower, **fields) == path


def test_credential__requires_no_ca() -> None:
    assert "ca" not in read("awx_credential_type.yml")["awx_credential_inputs"]["required"]


def test_credential__keeps_its_secrets_on_a_second_run() -> None:
    (setup,) = yaml.load((PLAYBOOKS / "awx_setup.yml").read_text(encoding="utf-8"), Loader)
    tasks = yaml.load((PLAYBOOKS / "tasks" / "awx_setup.yml").read_text(encoding="utf-8"), Loader)
    (credential,) = (task["credential"] for task in tasks if "credential" in task)
    assert credential["update_secrets"] == "{{ awx_update_secrets }}"
    assert setup["vars"]["awx_update_secrets"] is False


def test_misspelt_variables_of_the_setup__are_refused(play: Play) -> None:
    # Without its ledger, jobs would not see each other's decisions.
    of_others = {"awx_host": "https://awx.example.com", "awx_password": "x"}
    given = {**REQUIRED, **of_others, "awx_ledgr": "postgresql://scheduler@db/scheduler", "awx_vms": "web-1"}
    run = play("awx_setup", given)
    assert run.last["msg"].startswith("unknown variable awx_ledgr; did you mean awx_ledger?; awx_vms: expected a list")


def test_credential_of_the_setup__has_fields_of_its_type(play: Play) -> None:
    run = play("awx_setup", {**REQUIRED, "awx_credential": {**REQUIRED["awx_credential"], "hosts": "also not-shown"}})
    assert run.last["msg"].startswith("awx_credential: unknown field hosts; known fields: host, port, user, token_id, ")
    assert "not-shown" not in run.output
    run = play("awx_setup", {**REQUIRED, "awx_credential": "token_secret=not-shown"})
    assert run.last["msg"].startswith("awx_credential: expected a mapping")
    assert "not-shown" not in run.output


@pytest.mark.parametrize(
    "ledger",
    [
        "postgresql://scheduler:not-shown@db/scheduler",
        "postgres://db/scheduler?user=x&password=not-shown",
        "postgresql://scheduler@db/scheduler?sslpassword=not-shown",
    ],
)
def test_password_of_the_ledger__is_refused_where_it_would_be_seen(play: Play, ledger: str) -> None:
    run = play("awx_setup", {**REQUIRED, "awx_ledger": ledger})
    assert run.last["msg"].startswith("awx_ledger contains a password, which AWX would show")
    assert "not-shown" not in run.output
    options = {"reservations": ledger}
    run = play("awx_setup", {**REQUIRED, "awx_maintenance": {"rolling_maintenance_options": options}})
    assert run.last["msg"].startswith("reservations in awx_maintenance contains a password, which AWX would show")
    assert "not-shown" not in run.output


Calls = dict[str, list[dict[str, Any]]]
SetUp = Callable[..., Calls]


@pytest.fixture
def set_up(tmp_path: Path) -> SetUp:
    """Run awx_setup with modules that check and note their options, as a collection of that name."""

    def run(collection: str, **variables: Any) -> Calls:
        folder = tmp_path / "ansible_collections" / collection.replace(".", "/") / "plugins" / "action"
        folder.mkdir(parents=True)
        for module in json.loads(MODULES.read_text(encoding="utf-8"))["modules"]:
            (folder / f"{module}.py").symlink_to(ACTION)
        noted = tmp_path / "calls.jsonl"
        file = tmp_path / "variables.json"
        file.write_text(json.dumps({**REQUIRED, **variables}), encoding="utf-8")
        environment = {
            "ANSIBLE_COLLECTIONS_PATH": f"{COLLECTIONS}:{tmp_path}",
            "AWX_MODULES": str(MODULES),
            "AWX_CALLS": str(noted),
        }
        run = run_playbook(tmp_path, "qemu_scheduler.proxmox.awx_setup", environment, "-e", f"@{file}")
        assert run.code == 0, run.output
        assert "not-shown" not in run.output
        calls: Calls = {}
        for line in noted.read_text(encoding="utf-8").splitlines():
            call = json.loads(line)
            calls.setdefault(call["module"], []).append(call["options"])
        return calls

    return run


def short(name: str) -> str:
    return name.removeprefix("Proxmox: ")


def named(calls: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {short(call["name"]): call for call in calls}


def test_setup_of_a_list__makes_what_fits_together(set_up: SetUp, cluster: SimulatedCluster, play: Play) -> None:
    calls = set_up(
        "ansible.controller",
        awx_vms=VMS["qemu_vms"],
        awx_vms_options=VMS["qemu_options"],
        awx_maintenance={"rolling_maintenance_tasks": "upgrade.yml", "rolling_maintenance_only_if": ["updates"]},
        awx_power={"cluster_shutdown_order": [{"tags": ["db"]}]},
        awx_ledger="postgresql://scheduler@db/scheduler",
        awx_balance_schedule="DTSTART:20260101T000000Z RRULE:FREQ=HOURLY;INTERVAL=1",
    )
    templates, workflows = named(calls["job_template"]), named(calls["workflow_job_template"])
    for template in templates.values():
        assert (PLAYBOOKS.parent / template["playbook"]).is_file()
        assert template["allow_simultaneous"] is True
    assert templates["remove the list"]["job_type"] == templates["shut the cluster down"]["job_type"] == "check"
    assert templates["start the cluster"]["job_type"] == "run"
    scheduled = {short(each["unified_job_template"]) for each in calls["schedule"]}
    assert scheduled == {"compare the list", "balance by use"} <= templates.keys()
    (source,) = calls["inventory_source"]
    path = PLAYBOOKS.parent / source["source_path"]
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["plugin"] == "qemu_scheduler.proxmox.cluster"

    # AWX links a node to one that exists.
    nodes: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in workflows}
    for node in calls["workflow_job_template_node"]:
        there = nodes[short(node["workflow_job_template"])]
        assert set(node.get("success_nodes", ())) <= there.keys()
        there[node["identifier"]] = node
    for workflow in nodes.values():
        assert {name: node.get("success_nodes") for name, node in workflow.items()} == {
            "apply": None, "approve": ["apply"], "plan": ["approve"],
        }  # fmt: skip
        assert workflow["approve"]["approval_node"].keys() == {"name", "description", "timeout"}
        plan, apply = (templates[short(workflow[name]["unified_job_template"])] for name in ("plan", "apply"))
        assert plan["playbook"] == apply["playbook"].replace("provision", "plan")
        assert "{{ qemu_scheduler_plan }}" in str(apply["extra_vars"])
    assert list(nodes)[-2:] == ["approve and maintain", "approve and provision the list"]
    maintain = templates["apply the plan of the maintenance"]["extra_vars"]
    assert maintain["rolling_maintenance_options"] == {"reservations": "postgresql://scheduler@db/scheduler"}
    assert templates["plan the maintenance"]["extra_vars"]["rolling_maintenance_plan_only"] is True

    # A workflow hands the artifacts of a job to the next one as variables. By then, another VMID would be chosen.
    local = {"qemu_options": {**plan["extra_vars"]["qemu_options"], "reservations": "none"}}
    planned = play("plan", {**plan["extra_vars"], **local})
    artifacts = planned.of("qemu_scheduler.proxmox.provision : Set the statistics")["ansible_stats"]["data"]
    approved = {vm["name"]: (vm["vmid"], vm["node"]) for vm in artifacts["qemu_scheduler_plan"]["vms"]}
    cluster.remove_guest(101)
    applied = play("provision", {**apply["extra_vars"], **local, **artifacts})
    assert applied.code == 0, applied.output
    made = {guest["config"].get("name"): (vmid, guest["node"]) for vmid, guest in cluster.state()["guests"].items()}
    assert {name: made[name] for name in approved} == approved


def test_setup__uses_credentials_and_gives_rights_and_notifications(set_up: SetUp) -> None:
    calls = set_up(
        "awx.awx",
        awx_vms=VMS["qemu_vms"],
        awx_project_credential="git",
        awx_image_credential="registry",
        awx_image_pull="always",
        awx_execute_teams=["operators"],
        awx_approve_teams=["leads"],
        awx_drift_notifications=["chat"],
        awx_job_timeout=600,
    )
    assert {call["credential"] for call in calls["project"]} == {"git"}
    assert {call["scm_branch"] for call in calls["project"]} == {"1.2.3"}
    assert [(call["credential"], call["pull"]) for call in calls["execution_environment"]] == [("registry", "always")]
    assert {call["timeout"] for call in calls["job_template"]} == {600}
    told = {call["name"]: call.get("notification_templates_error") for call in calls["job_template"]}
    assert told.pop("Proxmox: compare the list") == ["chat"]
    assert set(told.values()) == {None}
    workflows = {call["name"] for call in calls["workflow_job_template"]}
    execute, approve = calls["role"]
    assert (execute["role"], execute["teams"]) == ("execute", ["operators"])
    assert set(execute["job_templates"]) == {call["name"] for call in calls["job_template"]}
    assert set(execute["workflows"]) == set(approve["workflows"]) == workflows
    assert (approve["role"], approve["teams"]) == ("approval", ["leads"])


def test_setup_without_a_list__has_no_job_for_one_and_none_that_overlap(set_up: SetUp) -> None:
    calls = set_up("awx.awx", **SET_BY_AWX)
    assert "role" not in calls
    assert all("credential" not in call for call in (*calls["project"], *calls["execution_environment"]))
    assert not [name for name in named([*calls["job_template"], *calls["workflow_job_template"]]) if "list" in name]
    assert "schedule" not in calls
    # Without a shared ledger, jobs would not see each other's decisions.
    assert {template["allow_simultaneous"] for template in calls["job_template"]} == {False}
