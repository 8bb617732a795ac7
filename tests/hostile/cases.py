# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is changed, and what must hold then. One integer makes one case, the same each time.

Whatever comes in, the collection does its work, or ends with an error of its own that has a code and a message. No
result contains a secret.
"""

from __future__ import annotations

import functools
import ipaddress
import json
import random
import re
import typing as t
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from support.recordings import VERSIONS
from support.whole_cluster import UPID, whole_cluster

from ansible_collections.qemu_scheduler.proxmox.plugins.action.qemu_schedule import line_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils import errors
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import CollectionError
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.recorded import (
    RecordedReader,
    Recorder,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import (
    Session,
    connection_argument_spec,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.freshness import read_config
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.mappings import DeviceNeeds
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.snapshot import (
    Needs,
    read_settled,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import TaskFollower
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.addresses import wait_for_addresses
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.progress import show_appended

from . import moves
from .changes import VALUES, changed, changed_bytes
from .modules import run_module, spec_of

SECRET = "Jx7-hostile-secret"
"""What stands for every secret; in no output."""

EVERYTHING = Needs(
    next_id=True,
    bridges=True,
    cpu_types=True,
    cpu_flags=True,
    pressure=True,
    ha_rules=True,
    volumes=frozenset({"local:iso/a.iso", "shared:import/a.raw"}),
    devices=DeviceNeeds(),
)
"""More than one task reads."""

CONNECTION: Mapping[str, t.Any] = {
    "api_host": ["pve1.example"],
    "api_user": "root@pam",
    "api_token_id": "tests",
    "api_token_secret": SECRET,
    "api_timeout": 5,
}

VM: Mapping[str, t.Any] = {
    "cores": 2,
    "memory": 512,
    "scsi": {"scsi0": {"size": 4, "storage": "vmdata"}, "scsi1": "shared:2"},
    "net": {"net0": "virtio,bridge=vmbr0"},
    "tags": ["web", "blue"],
    "cipassword": SECRET,
}

TASKS: Mapping[str, Mapping[str, t.Any]] = {
    "qemu_schedule": {
        **CONNECTION,
        "all_or_nothing": False,
        "nodes": {
            "pve1": {"labels": {"rack": "a"}, "taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]},
            "pve2": {"overcommit": {"cpu": 2}},
        },
        "storage_classes": {"fast": {"storages": ["vm.*"], "reserved": 0.1}},
        "priority_classes": {"high": 10},
        "plugin_config": {"filters": {"MemoryOvercommit": {"config": {"ratio": 1.5}}}},
        "vms": [
            {"name": "web-1", "cores": 2, "memory": 512, "scsi": {"scsi0": {"size": 4, "storage_class": "fast"}}},
            {
                "name": "web-2",
                "clone": "tpl",
                "full": True,
                "storage": "shared",
                "tags": ["web"],
                "node_regex": "pve.*",
            },
            {"name": "web01", "cores": 2, "update": True, "net": {"net0": "virtio,bridge=vmbr0"}},
            {"name": "runner", "state": "started"},
            {"vmid": 103, "state": "absent"},
            {"name": "db-1", "vmid_range": "500-600", "cipassword": SECRET, "ha": {"state": "started"}},
        ],
    },
    "capacity_info": {**CONNECTION, "shapes": [{"name": "app", "cores": 2, "memory": 1024}], "n_plus_one": True},
    "vmid_pick": {**CONNECTION, "count": 3, "vmid_range": "100-200", "exclude": [101]},
}
"""A task of each module that reads a recording."""

MOVES: Mapping[str, Mapping[str, t.Any]] = {
    "node_drain": {
        **CONNECTION,
        "name": ["pve1"],
        "parallel": {"cluster": 2, "per_node_in": 1},
        "max_moves": 5,
        "max_transfer": 1.5,
        "rules": [{"type": "anti-affinity", "name": "web-.*"}],
        "stays": [{"name": "db-[0-9]", "tags": ["big"], "status": "stopped", "type": "qemu"}],
        "move_pinned": True,
    },
    "cluster_rebalance": {
        **CONNECTION,
        "goals": ["repair", "balance"],
        "threshold": 0.2,
        "margin": 0.02,
        "cooldown": 600,
    },
}
"""A task of each module that moves guests. These read no recording."""

SPECS = {module: spec_of(module) for module in (*TASKS, *MOVES)}
CODES = {kind.code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CollectionError)}


def check(result: Mapping[str, t.Any]) -> None:
    """A result is a success, or a failure that is told; in neither is a secret."""
    assert SECRET not in json.dumps(result)
    assert not result.get("failed") or result["msg"], result
    assert result.get("error_code") is None or isinstance(result["error_code"], str)


@functools.cache
def answers_read(version: str) -> dict[str, t.Any]:
    """Those of the recorded answers that are read: a change in another one is none."""
    recorder = Recorder(RecordedReader(whole_cluster(version)))
    read_settled(recorder, EVERYTHING, patience=0)
    others = re.compile(rf"/nodes/[^/]+/(qemu/(101|104|120|9000)/|tasks/{re.escape(UPID)}/)|/version|/nodes/[^/]+/cert")
    return {p: a for p, a in whole_cluster(version).items() if p in recorder.answers or others.match(p)}


def answers(rng: random.Random, folder: Path) -> None:
    """What the cluster answers."""
    given = changed(answers_read(rng.choice(VERSIONS)), rng, rng.randint(1, 3))
    file = folder / "answers.json"
    file.write_text(json.dumps(given), encoding="utf-8")
    check(run_module("qemu_schedule", {**TASKS["qemu_schedule"], "snapshot": str(file)}))
    with suppress(CollectionError):
        reader = RecordedReader(given)
        with suppress(CollectionError):
            read_settled(reader, EVERYTHING, patience=0)
        with suppress(CollectionError):
            read_config(reader, "pve1", 104)
        with suppress(CollectionError):
            TaskFollower(reader, timeout=0).wait(UPID)


def options(rng: random.Random, folder: Path) -> None:
    """The options of a task: those that a good one has, and any other that the module knows."""
    module = rng.choices(list(TASKS), weights=[6, 3, 1])[0]
    given = changed(dict(TASKS[module]), rng, rng.randint(0, 2))
    for _other in range(rng.randint(0 if given != TASKS[module] else 1, 3)):
        of = given
        if "vms" in SPECS[module] and isinstance(given.get("vms"), list) and rng.random() < 0.5:
            of = next((body for body in given["vms"] if isinstance(body, dict)), given)
        name = rng.choice(list(SPECS[module]))
        of[name] = _value(SPECS[module][name], rng)
    given["snapshot"] = _recording(folder)
    check(run_module(module, given))


def move_options(rng: random.Random, folder: Path) -> None:
    """The options of a task that moves guests, as far as they are checked before the first request."""
    module = rng.choice(list(MOVES))
    given = changed(dict(MOVES[module]), rng, rng.randint(0, 2))
    for _other in range(rng.randint(0, 3)):
        name = rng.choice(list(SPECS[module]))
        given[name] = _value(SPECS[module][name], rng)
    try:
        arguments = ArgumentSpecValidator(SPECS[module]).validate(given)
    except Exception:  # noqa: BLE001 - Ansible's own, in which none of our code takes part
        return
    try:
        told = "" if arguments.error_messages else moves.check_options(arguments.validated_parameters)
    except CollectionError as error:
        told = f"{error.message}{error.details}"
    assert SECRET not in told


def survey(rng: random.Random, folder: Path) -> None:
    """Options that are answers of a survey: texts, whatever they should be."""
    given = changed(_as_texts(dict(TASKS["qemu_schedule"])), rng, rng.randint(0, 3))
    check(run_module("qemu_schedule", {**given, "snapshot": _recording(folder)}))


def _as_texts(value: t.Any) -> t.Any:
    if isinstance(value, dict):
        return {key: _as_texts(item) for key, item in value.items()}
    return [_as_texts(item) for item in value] if isinstance(value, list) else str(value)


def vm_plan(rng: random.Random, folder: Path) -> None:
    """The plan of a task that creates VMs, as the option C(apply) reads it."""
    task, file = {**TASKS["qemu_schedule"], "snapshot": _recording(folder)}, folder / "vms.json"
    if not file.exists():
        check(run_module("qemu_schedule", {**task, "plan_file": str(file)}))
        (folder / "whole.json").write_bytes(file.read_bytes())
    given = changed({"plan": json.loads((folder / "whole.json").read_bytes())}, rng, rng.randint(1, 3)).get("plan")
    file.write_bytes(moves.sealed(given, rng))
    check(run_module("qemu_schedule", {**task, "apply": str(file)}))


def _recording(folder: Path) -> str:
    file = folder / "cluster.json"
    if not file.exists():
        file.write_text(json.dumps(whole_cluster("9.2")), encoding="utf-8")
    return str(file)


def _value(spec: Mapping[str, t.Any], rng: random.Random) -> t.Any:
    """A value that the option may have, one with a change in it, or any other."""
    if rng.random() < 0.2:
        return rng.choice(VALUES)
    kind = spec.get("type", "str")
    if "choices" in spec:
        return rng.choice(spec["choices"])
    if kind == "list":
        return [_value({**spec, "type": spec.get("elements", "str")}, rng) for _item in range(rng.randint(0, 2))]
    if kind == "dict":
        keys = list(spec.get("options") or ("scsi0", "net0", "pve1", "web"))
        return {key: _value((spec.get("options") or {}).get(key, {}), rng) for key in rng.sample(keys, k=1)}
    plain: dict[str, list[t.Any]] = {"int": [1, 100, "7"], "bool": [True, "no"], "float": [0.5]}
    return rng.choice(plain.get(kind, ["web", "pve1", "local:4", "100-200", "enabled=1"]))


def connection(rng: random.Random, folder: Path) -> None:
    """Where the cluster is and who asks: refused before anything is sent, or taken."""
    given = changed({**CONNECTION, "api_port": 8006, "validate_certs": True, "ca_path": None}, rng, rng.randint(1, 3))
    try:
        arguments = ArgumentSpecValidator(connection_argument_spec()).validate(given)
    except ArithmeticError:
        return  # Ansible makes an integer of infinity
    # A password would be sent at once.
    if arguments.error_messages or arguments.validated_parameters.get("api_password"):
        return
    told = ""
    try:
        Session.connect(arguments.validated_parameters).close()
    except CollectionError as error:
        told = f"{error.message}{error.details}"
    assert SECRET not in told


def recording(rng: random.Random, folder: Path) -> None:
    """The file that the option snapshot names."""
    file = folder / "recording.json"
    file.write_bytes(changed_bytes(json.dumps(whole_cluster("9.2")).encode(), rng))
    check(run_module("vmid_pick", {**TASKS["vmid_pick"], "snapshot": str(file)}))


def progress(rng: random.Random, folder: Path) -> None:
    """The file in which a module tells how far it is."""
    if rng.random() < 0.3:
        moves.progress(rng, folder)
        return
    good = {"done": 1, "total": 2, "name": "a", "vmid": 1, "node": "b", "actions": ["create"], "seconds": 4.0}
    waiting = {"waiting": ["a"], "rejected_by": ["b"], "waited": 1, "patience": 2}
    line = json.dumps(changed({"line": {**good, "error": None} if rng.random() < 0.5 else waiting}, rng, 2).get("line"))
    file, shown = folder / "progress", list[str]()
    with show_appended(file, shown.append, line_of):
        lines = (changed_bytes(line.encode(), rng), line.encode(), json.dumps(waiting).encode())
        file.write_bytes(b"".join(each + b"\n" for each in lines))
    assert shown[-1].startswith("qemu_schedule: waiting for capacity: a")


def guest_agent(rng: random.Random, folder: Path) -> None:
    """What the agent in a guest answers: whoever is root there decides."""
    address = {"ip-address": "192.0.2.7%eth0", "ip-address-type": "ipv4", "prefix": 24}
    interfaces = [{"name": "eth0", "hardware-address": "bc:24:11:00:00:01", "ip-addresses": [address]}]
    path = "/nodes/pve1/qemu/104/agent/network-get-interfaces"
    given = {"/cluster/resources": [], path: {"result": interfaces}}
    rows = whole_cluster("9.2")["/cluster/resources?type=vm"]
    with suppress(CollectionError):
        reader = RecordedReader({**changed(given, rng, rng.randint(1, 3)), "/cluster/resources?type=vm": rows})
        (found,) = wait_for_addresses(reader, [104], [], 0)
        for text in found["addresses"]:
            ipaddress.ip_address(text)


KINDS: Mapping[str, Callable[[random.Random, Path], None]] = {
    "answers": answers,
    "options": options,
    "connection": connection,
    "recording": recording,
    "progress": progress,
    "guest agent": guest_agent,
    "plan": moves.plan_file,
    "VM plan": vm_plan,
    "move options": move_options,
    "survey": survey,
    "ledger": moves.ledger_rows,
}
