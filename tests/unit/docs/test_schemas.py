# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON Schemas are up to date, and say of documents what the code says of them."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest
import yaml
from support.pages import CHECKOUT
from support.playbook import COLLECTIONS

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow import vm_plan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.documents import digest_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves import plan_document

SCHEMAS = CHECKOUT / "docs" / "schemas"
READERS: dict[str, Callable[[Any, str], Any]] = {
    plan_document.FORMAT: plan_document.plan_of,
    vm_plan.FORMAT: vm_plan.read_plan,
}
FILES = {plan_document.FORMAT: "plan-of-moves", vm_plan.FORMAT: "plan-of-vms"}


def validator(name: str) -> jsonschema.Draft7Validator:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def documented_plans() -> list[dict[str, Any]]:
    """The examples of the page about plan documents, with their digests."""
    page = (CHECKOUT / "docs" / "plan-document.md").read_text(encoding="utf-8")
    plans = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    return [{**plan, "digest": digest_of(plan)} for plan in plans if plan.get("format") in READERS]


def spoilt(value: Any) -> Iterator[Any]:
    """Yield copies of data, each with one value that is missing, renamed or of another type."""
    if isinstance(value, dict):
        for key in value:
            rest = {name: each for name, each in value.items() if name != key}
            yield rest
            yield {**rest, f"{key}x": value[key]}
            for each in spoilt(value[key]):
                yield {**value, key: each}
    elif isinstance(value, list):
        for number, item in enumerate(value):
            for each in spoilt(item):
                yield [*value[:number], each, *value[number + 1 :]]
    if value is not None:
        yield [[]] if isinstance(value, dict) else {"odd": value}


def test_schemas__are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "hack" / "generate_schemas.py"), "--check"],
        env={"PYTHONPATH": str(COLLECTIONS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"run hack/generate_schemas.py\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("plan", documented_plans(), ids=lambda plan: FILES[plan["format"]])
def test_schema_of_plans__accepts_what_the_code_accepts_and_refuses_what_it_refuses(plan: dict[str, Any]) -> None:
    checked = validator(FILES[plan["format"]])
    read = READERS[plan["format"]]
    read(copy.deepcopy(plan), "apply")
    assert checked.is_valid(plan), [error.message for error in checked.iter_errors(plan)]
    refused = 0
    for odd in spoilt(plan):
        if checked.is_valid(odd):
            continue
        refused += 1
        is_sealed = isinstance(odd, dict) and odd.get("digest") == plan["digest"]
        sealed = {**odd, "digest": digest_of(odd)} if is_sealed else odd
        with pytest.raises(InvalidRequest):
            read(sealed, "apply")
    assert refused > 50


@pytest.mark.parametrize("file", ["demo/vms.yml"])
def test_schema_of_lists__accepts_the_examples(file: str) -> None:
    text = (CHECKOUT / file).read_text(encoding="utf-8")
    assert "\n# yaml-language-server: $schema=" in f"\n{text}"
    assert [error.message for error in validator("vms").iter_errors(yaml.safe_load(text))] == []


@pytest.mark.parametrize(
    "text",
    [
        "qemu_vms: [{name: a, memroy: 2048}]",
        "qemu_vms: {name: a}",
        "{qemu_vms: [], qemu_options: {only_pol: lab}}",
        "{qemu_vms: [], provision_plan_fil: x}",
        "qemu_vms: [{name: a, cores: four}]",
        "qemu_vms: [{name: a, state: running}]",
        "qemu_vms: [{name: a, scsi: [x]}]",
    ],
)
def test_schema_of_lists__marks_mistakes(text: str) -> None:
    assert not validator("vms").is_valid(yaml.safe_load(text))


@pytest.mark.parametrize(
    "text",
    [
        "qemu_vms: '{{ vms }}'",
        "{qemu_vms: [{name: a, cores: '{{ cores }}', tags: 'a,b', onboot: yes, memory: 2G}], my_own: 1}",
        "{qemu_vms: [{name: 'web-{n}', count: 3}], provision_page: x.html, qemu_options: {state: started}}",
    ],
)
def test_schema_of_lists__accepts_what_ansible_accepts(text: str) -> None:
    assert [error.message for error in validator("vms").iter_errors(yaml.safe_load(text))] == []
