# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AWX is set up with: the survey's answers make VMs, and the credential's fields reach the modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.sandbox import ImmutableSandboxedEnvironment
from simulated_cluster.client import SimulatedCluster

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.login import connection_argument_spec

from .conftest import Play

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"


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


def test_template__can_be_named_and_its_network_kept(cluster: SimulatedCluster, play: Play) -> None:
    answers = {"survey_name": "copy", "survey_count": "1", "survey_clone": "debian-13", "survey_cores": "1"}
    run = play("from_survey", {**answers, "survey_memory": "1024", "survey_disk": "8", "survey_bridge": ""})
    assert run.code == 0, run.output
    (config,) = (g["config"] for g in cluster.state()["guests"].values() if g["config"].get("name") == "copy-1")
    assert "bridge=vmbr0" in config["net0"]


def test_every_variable_of_the_credential__is_one_that_is_read() -> None:
    injected = read("awx_credential_type.yml")["awx_credential_injectors"]["env"]
    fallbacks = {option["fallback"][1][0] for option in connection_argument_spec().values() if "fallback" in option}
    assert {name for name in injected if name.startswith("PROXMOX_")} <= fallbacks


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


@pytest.mark.parametrize(
    ("ledger", "simultaneous"),
    [("default", False), ("/var/lib/ledger.db", False), ("postgresql://scheduler@db/scheduler", True)],
)
def test_job_templates__run_simultaneously_only_with_a_shared_ledger(
    ledger: str, simultaneous: bool, play: Play
) -> None:
    (setup,) = yaml.load((PLAYBOOKS / "awx_setup.yml").read_text(encoding="utf-8"), Loader)
    templates = [task["awx.awx.job_template"] for task in setup["tasks"] if "awx.awx.job_template" in task]
    (expression,) = {template["allow_simultaneous"] for template in templates}
    show = {"ansible.builtin.debug": {"msg": {"simultaneous": expression}}}
    run = play([{"hosts": "localhost", "gather_facts": False, "tasks": [show]}], {"awx_ledger": ledger})
    assert f'"simultaneous": {str(simultaneous).lower()}' in run.output


def test_job_templates__run_playbooks_that_exist() -> None:
    (setup,) = yaml.load((PLAYBOOKS / "awx_setup.yml").read_text(encoding="utf-8"), Loader)
    (of_the_list,) = (task for task in setup["tasks"] if task["name"] == "Create the job templates of the list")
    for item in of_the_list["loop"]:
        assert (PLAYBOOKS / f"{item['playbook']}.yml").is_file()
        assert item["type"] == ("check" if item["playbook"] == "teardown" else "run")
    (source,) = (task["awx.awx.inventory_source"] for task in setup["tasks"] if "awx.awx.inventory_source" in task)
    path = PLAYBOOKS.parent / source["source_path"]
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["plugin"] == "qemu_scheduler.proxmox.cluster"


def test_credential__keeps_its_secrets_on_a_second_run() -> None:
    (setup,) = yaml.load((PLAYBOOKS / "awx_setup.yml").read_text(encoding="utf-8"), Loader)
    (credential,) = (task["awx.awx.credential"] for task in setup["tasks"] if "awx.awx.credential" in task)
    assert credential["update_secrets"] == "{{ awx_update_secrets }}"
    assert setup["vars"]["awx_update_secrets"] is False
