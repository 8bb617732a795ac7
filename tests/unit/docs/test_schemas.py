# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON Schemas are up to date, and say of documents what the code says of them."""

from __future__ import annotations

import copy
import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest
import yaml
from support.pages import CHECKOUT, examples
from support.playbook import COLLECTIONS

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options import table
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow import vm_plan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.documents import digest_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves import plan_document

SCHEMAS = CHECKOUT / "docs" / "schemas"
READERS: dict[str, Callable[[Any, str], Any]] = {
    plan_document.FORMAT: plan_document.plan_of,
    vm_plan.FORMAT: vm_plan.read_plan,
}
FILES = {plan_document.FORMAT: "plan-of-moves", vm_plan.FORMAT: "plan-of-vms"}


@functools.cache
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
        "qemu_vms: web-1",
        "{qemu_vms: [{name: a}], qemu_options: cores=2}",
        "qemu_vms: [{name: web_1}]",
        "qemu_vms: [{name: yes}]",
        "qemu_vms: [{name: 1.10}]",
        "qemu_vms: [{name: -web}]",
        "qemu_vms: [{name: web, count: 2}]",
        "qemu_vms: [{name: 'web-{n}'}]",
        "qemu_vms: [{name: a, vmid: 99}]",
        "qemu_vms: [{name: a, vmid_range: 500..599}]",
        "qemu_vms: [{name: a, net: {net32: virtio}}]",
    ],
)
def test_schema_of_lists__marks_mistakes(text: str) -> None:
    assert not validator("vms").is_valid(yaml.safe_load(text))


OPTIONS = [
    *({"memory": each} for each in ("4GB", "4 GiB", 4.5, -1, 15, True, "2048", 2048.0)),
    *({"cores": each} for each in (0, 2)),
    *({"cpulimit": each} for each in (129, -1, 0.5, "1.5")),
    *({"agent": each} for each in (True, 1, "enabled=1,type=isa", "enable=1", {"enabled": True}, {"enable": True}, "")),
    *({"net": {"net0": each}} for each in ("virtio", "virtoi", "virtio,bridg=a", "e1000=BC:24:11:00:00:01,tag=7")),
    *({"net": {"net0": each}} for each in ("virtio=01:24:11:00:00:01", "virtio,tag=x", {"model": "virtio", "mtu": 0})),
    *({"net": {"net0": each}} for each in ({"virtio": "BC:24:11:00:00:01", "link_down": "yes"}, {"model": "virtoi"})),
    *({"scsi": {"scsi0": each}} for each in (":32", 32, "local:32", ":32G", "local:32G,ssd=1", "none", ":cloudinit")),
    *({"scsi": {"scsi0": each}} for each in ("x.iso", {"size": "32GB"}, {"size": "0.5t"}, {"remove": "unused"})),
    *({"scsi": {"scsi0": each}} for each in ({"size": 4, "storge": "a"}, {"size": 4, "storage": "a"})),
    *({"ide": {each: "none"}} for each in ("ide3", "ide4", "scsi0")),
    *({"machine": each} for each in ("q35", "q53", {"type": "pc-q35-9.0", "viommu": "intel"}, "pc-q35-9.2+pve1")),
    *({"boot": each} for each in ("order=scsi0;net0", "cdn", "scsi0", {"order": "net0"})),
    *({"tags": each} for each in (["a", "B"], ["größe"], ["a b"])),
    *({"nameservers": each} for each in (["192.0.2.1"], ["192.0.2.1 192.0.2.2"])),
    *({"startup": each} for each in ("order=1,up=30", "order=first", {"order": 1})),
    *({"startdate": each} for each in ("now", "2026-01-31", "31.1.2026")),
    *({"serial": {"serial0": each}} for each in ("socket", {}, "/dev/ttyS0")),
    *({"hugepages": each} for each in (2, 1024, "1024", 4, "any")),
    *({"onboot": each} for each in ("Yes", "True", " OFF ", "maybe", 1, 2)),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_schema_of_options__refuses_what_the_table_refuses(options: dict[str, Any]) -> None:
    try:
        table.to_api(options)
        is_valid = True
    except InvalidRequest:
        is_valid = False
    found = list(validator("vms").iter_errors({"qemu_vms": [{"name": "a", **options}]}))
    assert (not found) is is_valid, [error.message for error in found]


def test_schema_of_lists__accepts_the_tasks_of_the_pages() -> None:
    """Their plays run in tests of their own."""
    checked = validator("vms")
    tasks = [
        task["qemu_scheduler.proxmox.qemu_schedule"]
        for page in (CHECKOUT / "README.md", *(CHECKOUT / "docs").glob("*.md"))
        for example in examples(page)
        for play in (example.plays if "qemu_schedule:" in example.text and not example.skipped else [])
        for task in play.get("tasks", ())
        if isinstance(task.get("qemu_scheduler.proxmox.qemu_schedule"), dict)
    ]
    assert len(tasks) > 50
    for task in tasks:
        data = {"qemu_options": {**task, "vms": None}, "qemu_vms": task.get("vms", [])}
        del data["qemu_options"]["vms"]
        assert [error.message for error in checked.iter_errors(data)] == [], task


@pytest.mark.parametrize(
    "text",
    [
        "qemu_vms: '{{ vms }}'",
        "{qemu_vms: [{name: a, cores: '{{ cores }}', tags: 'a,b', onboot: 1, memory: '2048'}], my_own: 1}",
        "{qemu_vms: [{name: 7, net: {net0: 'virtio,bridge={{ bridge }}'}, numa: {numa0: '{{ numa }}'}}]}",
        "{qemu_vms: [{name: 'web-{n}', count: 3}], provision_page: x.html, qemu_options: {state: started}}",
        "{qemu_vms: [{name: a, count: null, memory: null, onboot: null, net: null}], qemu_options: {pool: null}}",
        "{qemu_vms: [{name: a, tpmstate0: {version: 2.0, storage: null}}], provision_page: null}",
        "qemu_vms: [{name: 'web-{{n}}'}]",
    ],
)
def test_schema_of_lists__accepts_what_ansible_accepts(text: str) -> None:
    assert [error.message for error in validator("vms").iter_errors(yaml.safe_load(text))] == []
