# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan of VMs survives its way through a file; what is none, or is for other requests, is refused by name."""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import replace
from pathlib import Path

import pytest
from support.identities import identity

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest, PlanStale
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Identity
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Load, Move, NodeCourse
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow import vm_plan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.applying import Approved, deviations
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.documents import SEAL, digest_of, seal
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves import plan_document
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.premises import (
    GuestPremise,
    Premises,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import (
    Entry,
    Guard,
    build_entries,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.task import Series
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.vm_plan import (
    HIDDEN,
    Change,
    PlannedDevice,
    PlannedTemplate,
    PlannedVM,
    VMPlan,
    as_document,
    read_plan,
    requested_options,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "plan-document.md"
POOLS = {"lan": {"network": "192.0.2.0/24"}}
WEB = {"name": "web-1", "memory": 2048, "scsi": {"scsi0": {"size": 8}}, "cipassword": "correct-horse",
       "host_vars": {"password": "correct-horse"}, "addresses": {"ipconfig0": "lan"}}  # fmt: skip
OLD = {"name": "old-1", "vmid": 105, "state": "absent"}
COUNTED = Series("surplus-{n}", "absent", frozenset(), None, Guard(pool="ci"))


def entries(*bodies: dict[str, t.Any]) -> list[Entry]:
    options = {key for body in (WEB, OLD, *bodies) for key in body}
    return build_entries({"vms": list(bodies), "address_pools": POOLS}, options, 0.0)


def plan() -> VMPlan:
    web, old = (requested_options(entry) for entry in entries(WEB, OLD))
    return VMPlan(
        (
            PlannedVM(
                "web-1", 104, "pve2", why="there is room", actions=("clone", "start"), storages={"scsi0": "fast"},
                devices=(PlannedDevice("gpu", "hostpci0", "mapping=gpu"),),
                template=PlannedTemplate(9000, "pve1", identity(9)),
                addresses={"ipconfig0": "ip=192.0.2.5/24", "nameserver": "192.0.2.53"}, request=web,
                after=(1,),
            ),
            PlannedVM(
                "old-1", 105, "pve1", actions=("delete",), status="running", changes={"cores": Change(2, None)},
                pending={"memory": Change(512, 1024)}, request=old, identity=identity(5, "old-1"),
            ),
            PlannedVM("surplus-3", 106, "pve1", actions=("delete",), status="stopped"),
        ),
        Premises("ca:1", {300: GuestPremise("db-1", "pve2", True, 2, GIB, identity(1, "db-1", "pve2"))}),
        (Move(1, 300, "db-1", "pve2", "pve3", "makes room on pve2 for web-1", memory=GIB),),
        {"pve3": NodeCourse(*(Load(2, 4 * GIB, 1) for _each in range(4)))},
    )  # fmt: skip


def document() -> dict[str, t.Any]:
    """A plan as it comes out of a file."""
    found: dict[str, t.Any] = json.loads(json.dumps(as_document(plan())))
    return found


def test_plan__comes_back_as_it_was_and_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(document()), encoding="utf-8")

    assert read_plan(str(file), "apply") == read_plan(document(), "apply") == plan()
    assert document()["vms"][0]["request"]["cipassword"] == HIDDEN
    assert "correct-horse" not in file.read_text(encoding="utf-8")


def test_plan__has_the_keys_that_its_page_tells() -> None:
    page = PAGE.read_text(encoding="utf-8").partition("## Plans of VMs")[2]
    for name in ("PLAN", "VM", "DEVICE", "TEMPLATE", "CHANGE"):
        for key in getattr(vm_plan, name):
            assert f"`{key}`" in page, key
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    written = json.loads(example)
    read_plan({**written, "digest": digest_of(written)}, "apply")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ((), None, "apply: None is not possible, expected a plan"),
        ((), {"vms": []}, "apply: is not a plan for this module: format is None"),
        (("format",), plan_document.FORMAT, "apply: is not a plan for this module: format is 'qemu_scheduler"),
        (("version",), 1, "apply.version: 1 is not possible, expected 2"),
        (("vms",), {}, "apply.vms: {} is not possible, expected a list"),
        (("vms", 0), "web-1", "apply.vms[0]: 'web-1' is not possible, expected a mapping"),
        (("vms", 0, "vmid"), 99, "apply.vms[0].vmid: 99 is not possible, expected a VMID from 100"),
        (("vms", 0, "vmid"), None, 'apply.vms[0]: VM "web-1" has actions, but no VMID or no node'),
        (("vms", 0, "vmid"), 105, 'apply.vms[1]: VM "old-1" is listed twice'),
        (("vms", 0, "actions"), ["destroy"], "apply.vms[0].actions[0]: 'destroy' is not possible, expected"),
        (("vms", 0, "addresses"), {"args": "-x"}, "apply.vms[0].addresses: ['args'] is not possible, expected ip"),
        (("vms", 0, "template", "node"), 5, "apply.vms[0].template.node: 5 is not possible, expected a text"),
        (("vms", 0, "speed"), 5, "apply.vms[0].speed: is not a key of this version"),
        (("vms", 1, "changes", "cores"), 5, "apply.vms[1].changes.cores: 5 is not possible, expected a mapping"),
        (("vms", 0, "after"), [2], "apply.vms[0].after: 2 is not a move of the plan"),
        (("moves", 0, "after"), [1], "apply.moves: [1] wait for each other"),
        (("moves", 0, "together"), [301], "apply.assumes.guests: lacks 301, which is moved"),
        (("vms", 0, "node"), "pve3", "apply.digest: does not match: the plan was changed after it was made"),
    ],
)  # fmt: skip
def test_plan__what_is_wrong_is_named(path: tuple[t.Any, ...], value: t.Any, message: str) -> None:
    broken = {"": document()}
    inner: t.Any = broken
    for step in ("", *path)[:-1]:
        inner = inner[step]
    inner[("", *path)[-1]] = value

    with pytest.raises(InvalidRequest) as caught:
        read_plan(broken[""], "apply")

    assert caught.value.message.startswith(message)


def test_entries__are_held_to_the_plan() -> None:
    web, old, surplus = Approved(plan()).hold(entries(WEB, OLD), [COUNTED])

    assert (web.request.node, web.request.vmid, web.request.disks[0].storage) == ("pve2", 104, "fast")
    assert (web.request.options["ipconfig0"], web.request.options["nameserver"]) == ("ip=192.0.2.5/24", "192.0.2.53")
    assert (web.request.addresses, web.addresses) == ({"ipconfig0": "ip=192.0.2.5/24"}, {})
    assert web.request.options["cipassword"] == "correct-horse"
    assert (old.request.vmid, old.request.node) == (105, None)
    assert (surplus.request.name, surplus.request.vmid, surplus.state) == ("surplus-3", 106, "absent")
    assert surplus.guard.pool == "ci"


@pytest.mark.parametrize(
    ("bodies", "message"),
    [
        ([{**WEB, "memory": 4096}, OLD], 'apply: memory of VM "web-1" is 4096, but the plan was made for 2048'),
        ([{**WEB, "tags": ["x"]}, OLD], """apply: tags of VM "web-1" is ['x'], but the plan was made for unset"""),
        ([WEB, {**OLD, "state": "present"}], 'apply: state of VM "old-1" is present, but the plan was made for absent'),
        ([WEB], 'apply: VM "old-1" is in the plan, but not in this task'),
        ([WEB, OLD, {"name": "new"}], 'apply: VM "new" is not in the plan'),
        ([WEB, OLD, {"name": "surplus-3"}], 'apply: VM "surplus-3" is not in the plan'),
    ],
)
def test_other_requests__are_named(bodies: list[dict[str, t.Any]], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Approved(plan()).hold(entries(*bodies), [COUNTED])

    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("series", [[], [replace(COUNTED, surplus="keep")], [replace(COUNTED, pattern="web-{n}")]])
def test_surplus__that_the_task_does_not_remove_is_named(series: list[Series]) -> None:
    with pytest.raises(InvalidRequest, match='apply: VM "surplus-3" is in the plan, but not in this task'):
        Approved(plan()).hold(entries(WEB, OLD), series)


def test_addresses__cannot_be_added_to_a_plan_by_hand() -> None:
    changed = document()
    changed["vms"][0]["addresses"]["ipconfig1"] = "ip=dhcp"
    changed = seal(vm_plan.FORMAT, {key: value for key, value in changed.items() if key not in SEAL})

    with pytest.raises(InvalidRequest, match='apply: the addresses of VM "web-1" differ from those in the task'):
        Approved(read_plan(changed, "apply")).hold(entries(WEB, OLD), [COUNTED])


def test_action_that_is_not_planned__is_named() -> None:
    planned = PlannedVM("web-1", 104, "pve2", actions=("update",), status="running", identity=identity(1))
    created = PlannedVM("web-1", 104, "pve2", actions=("create", "start"))
    unfinished = PlannedVM("web-1", 104, "pve2", actions=("finish",), status="running", identity=identity(1))

    assert list(deviations(planned, unfinished)) == ["finish is not planned"]
    assert list(deviations(created, unfinished)) == []


def test_another_cluster__is_named() -> None:
    Approved(plan()).check_cluster("ca:1")

    with pytest.raises(PlanStale, match=r"it was made for cluster ca:1, and this is ca:2"):
        Approved(plan()).check_cluster("ca:2")


UNMARKED = Identity("web", "pve1", digest="1")


@pytest.mark.parametrize(
    ("before", "found", "text"),
    [
        (identity(1), identity(1), None),
        (identity(1), identity(2), "another guest has its VMID"),
        (identity(1), identity(2, "payroll"), 'found VM "payroll" on pve1'),
        (UNMARKED, UNMARKED, None),
        (UNMARKED, replace(UNMARKED, digest="2"), "it may be another guest"),
        (None, identity(1), "it is not known which guest was planned"),
    ],
)
def test_vm_that_is_another_one_than_planned__deviates(
    before: Identity | None, found: Identity, text: str | None
) -> None:
    planned = PlannedVM("web", 104, "pve1", actions=("delete",), status="running", identity=before)
    told = list(deviations(planned, replace(planned, identity=found)))
    assert told == [] if text is None else text in told[0]
    new = PlannedVM("new", 105, "pve1", actions=("clone",), template=PlannedTemplate(104, "pve1", before))
    told = list(deviations(new, replace(new, template=PlannedTemplate(104, "pve1", found))))
    assert bool(told) is (text is not None)
