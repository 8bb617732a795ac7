# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judge of writes knows which guests a run may write to, whatever has got their VMIDs since."""

from __future__ import annotations

import typing as t

import pytest
from simulated_cluster.build import build
from simulated_cluster.cluster import Cluster
from simulated_cluster.identity import created
from simulated_cluster.model import Guest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.identity import identity_of

from .permits import Exchange, Permits
from .tasks import Task
from .wishes import TEMPLATE, TENANT
from .wishes import cluster as description

START = "/nodes/pve1/qemu/210/status/start"
CONFIG = "/nodes/pve1/qemu/210/config"
LIST = "/cluster/resources"
TASKS = "/nodes/pve1/tasks"
WEB = Task(names=("web-1", "web-2"))


class Judged:
    """A cluster, and the judge of what runs do there."""

    def __init__(self, task: Task = WEB) -> None:
        self.cluster: Cluster = build(description(roomy=True))
        self.permits = Permits(self.cluster, [TEMPLATE])
        self.permits.begin(1, task)

    def put(self, name: str, vmid: int = 210, pool: str | None = None, **config: t.Any) -> Guest:
        """A guest, in place of the one that had its VMID."""
        config = {"name": name, "memory": "16", **config}
        guest = Guest(vmid, "pve1", config=created(self.cluster, config))
        self.cluster.add_guest(guest)
        if pool is not None:
            self.cluster.access.pools[pool]["vms"].add(vmid)
            self.cluster.access.changed()
        return guest

    def plan(self, pid: int = 1, thread: str = "a") -> None:
        """Read the config of the guest with the VMID, and plan what to do with it."""
        self.send("GET", CONFIG, pid=pid, thread=thread)
        self.permits.meant(pid, 210, identity_of(self.cluster.guests[210].config, "pve1"))

    def send(
        self, method: str, path: str, *, pid: int = 1, thread: str = "a", status: int = 200, **sent: t.Any
    ) -> None:
        vmid = int(path.split("/")[4]) if path.startswith("/nodes") and path.count("/") > 3 else 0
        reached = {vmid: self.cluster.guests[vmid].birth} if vmid in self.cluster.guests else {}
        self.permits.note(Exchange(method, path, sent, status, reached, pid, thread))


def test_guest_that_a_plan_is_about__may_be_written_to() -> None:
    judged = Judged()
    judged.put("web-1")
    judged.plan()
    judged.send("GET", LIST)
    judged.send("POST", START)
    assert judged.permits.broken == []


@pytest.mark.parametrize("name", ["payroll", "web-1"])
def test_guest_that_has_the_vmid_since__may_not(name: str) -> None:
    judged = Judged()
    judged.put("web-1")
    judged.plan()
    judged.put(name)
    judged.send("GET", LIST)
    judged.send("GET", CONFIG)
    judged.send("POST", START)
    assert judged.permits.broken == [
        f"run 1 (qemu_schedule web-1 web-2) writes to another guest: POST {START} reaches {name!r} (210)"
    ]


@pytest.mark.parametrize(
    ("between", "is_forgiven"),
    [
        ((), True),
        ((("GET", "/version", "b"),), True),
        ((("GET", "/version", "a"),), False),
        ((("GET", LIST, "a"),), False),
        ((("POST", START, "a"),), False),
    ],
)
def test_vmid_that_changes_hands_between_the_proof_and_the_write__is_forgiven(
    between: t.Sequence[tuple[str, str, str]], is_forgiven: bool
) -> None:
    judged = Judged()
    judged.put("web-1")
    judged.plan()
    for method, path, thread in between:
        judged.send(method, path, thread=thread)
    judged.put("payroll")
    judged.send("POST", START)
    assert (judged.permits.broken == []) == is_forgiven


def test_vmid_that_changes_hands_before_a_write_with_a_digest__is_not_forgiven() -> None:
    judged = Judged()
    judged.put("web-1")
    judged.plan()
    judged.put("payroll")
    judged.send("PUT", CONFIG)
    assert len(judged.permits.broken) == 1


def test_what_proxmox_refuses__does_not_count() -> None:
    judged = Judged()
    judged.put("payroll")
    judged.send("POST", START, status=500)
    assert judged.permits.broken == []


def test_namesake_of_a_tenant__is_not_asked_for() -> None:
    judged = Judged()
    judged.put("web-1", pool=TENANT)
    judged.plan()
    judged.send("GET", LIST)
    judged.send("POST", START)
    assert len(judged.permits.broken) == 1


def test_what_a_run_has_made__it_may_write_to_and_others_only_under_that_name() -> None:
    judged = Judged()
    judged.permits.begin(2, Task(names=("db-1",)))
    judged.put("web-1")
    judged.send("POST", "/nodes/pve1/qemu", vmid=210, name="web-1")
    judged.send("POST", START)
    assert judged.permits.broken == []
    judged.send("POST", START, pid=2)
    assert len(judged.permits.broken) == 1


@pytest.mark.parametrize("name", ["web-1", "payroll"])
def test_what_has_the_vmid_of_what_a_run_has_made__may_not_be_written_to(name: str) -> None:
    judged = Judged()
    judged.put("web-1")
    judged.send("POST", "/nodes/pve1/qemu", vmid=210, name="web-1")
    judged.put(name)
    judged.send("GET", CONFIG)
    judged.send("GET", TASKS)
    judged.send("POST", START)
    assert len(judged.permits.broken) == 1


@pytest.mark.parametrize(("late", "is_forgiven"), [(True, True), (False, False)])
def test_list_of_tasks__proves_that_a_guest_is_still_the_one_whose_config_was_read(
    late: bool, is_forgiven: bool
) -> None:
    judged = Judged()
    judged.put("web-1")
    judged.send("POST", "/nodes/pve1/qemu", vmid=210, name="web-1")
    judged.send("GET", CONFIG)
    if late:
        judged.send("GET", TASKS)
    judged.put("web-1")
    if not late:
        judged.send("GET", TASKS)
    judged.send("POST", START)
    assert (judged.permits.broken == []) == is_forgiven


def test_remains_of_a_creation_by_others__may_be_removed() -> None:
    judged = Judged()
    judged.permits.begin(2, Task(names=("db-1",)))
    guest = judged.put("web-1", lock="create")
    judged.send("POST", "/nodes/pve1/qemu", vmid=210, name="web-1")
    del guest.config["name"]
    judged.send("DELETE", "/nodes/pve1/qemu/210", pid=2)
    assert judged.permits.broken == []


@pytest.mark.parametrize(("template", "is_meant"), [(9000, True), (700, False)])
def test_template__is_the_one_that_was_there_from_the_beginning(template: int, is_meant: bool) -> None:
    judged = Judged()
    judged.put(TEMPLATE, vmid=700, pool=TENANT, template=1)
    judged.send("POST", f"/nodes/pve1/qemu/{template}/clone", newid=220)
    assert (judged.permits.broken == []) == is_meant


@pytest.mark.parametrize("sent", [{"net5": "virtio"}, {"delete": "description,scsi7"}])
def test_options_of_forged_notes__are_nobodys_wish(sent: dict[str, str]) -> None:
    judged = Judged()
    judged.put("web-1")
    judged.plan()
    judged.send("PUT", CONFIG, **sent)
    assert [reason.partition(":")[0] for reason in judged.permits.broken] == ["run 1 writes what nobody asked for"]


@pytest.mark.parametrize(("reused", "is_planned"), [(False, True), (True, False)])
def test_guest__is_moved_if_it_is_the_one_that_was_planned_to_move(reused: bool, is_planned: bool) -> None:
    judged = Judged(Task("node_drain", ("pve1",)))
    judged.put("app")
    judged.send("GET", LIST)
    judged.permits.planned(1, [210], {})
    if reused:
        judged.put("payroll")
        judged.send("GET", LIST)
    judged.send("POST", "/nodes/pve1/qemu/210/migrate")
    assert (judged.permits.broken == []) == is_planned


@pytest.mark.parametrize("module", ["node_drain", "maintenance_tour"])
@pytest.mark.parametrize(("reused", "is_home"), [(False, True), (True, False)])
def test_guest__comes_back_to_a_node_if_it_was_there_as_that_was_drained(
    module: str, reused: bool, is_home: bool
) -> None:
    judged = Judged(Task(module, ("pve1",)))
    judged.put("app")
    judged.send("GET", LIST)
    if reused:
        judged.put("payroll").node = "pve2"
    judged.permits.begin(2, Task("node_drain", ("pve1",), {"state": "active"}))
    judged.send("GET", LIST, pid=2)
    judged.permits.planned(2, [210], {210: "pve1"})
    judged.send("POST", "/nodes/pve2/qemu/210/migrate", pid=2)
    assert (judged.permits.broken == []) == is_home


def test_plan_that_is_applied__goes_on_with_what_controllers_have_made_since() -> None:
    judged = Judged(WEB.keeping("plan.json"))
    judged.send("GET", LIST)
    judged.permits.begin(2, WEB.applying("plan.json"))
    judged.permits.begin(3, WEB)
    judged.put("web-1")
    judged.send("POST", "/nodes/pve1/qemu", vmid=210, name="web-1", pid=3)
    judged.plan(pid=2)
    judged.send("POST", START, pid=2)
    assert judged.permits.broken == []


@pytest.mark.parametrize("reused", [False, True])
def test_plan_that_is_applied__is_about_the_guests_of_when_it_was_made(reused: bool) -> None:
    judged = Judged(WEB.keeping("plan.json"))
    judged.put("web-1")
    judged.plan()
    judged.permits.begin(2, WEB.applying("plan.json"))
    if reused:
        judged.put("web-1")
    judged.plan(pid=2)
    judged.send("GET", LIST, pid=2)
    judged.send("POST", START, pid=2)
    assert (judged.permits.broken == []) != reused
