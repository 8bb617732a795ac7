# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is planned for a VM that exists, from its config as its node shows it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from support.small_cluster import guest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    DriftNotApplicable,
    GuestLocked,
    GuestVanished,
    InvalidRequest,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.recorded import RecordedReader
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.creations import BeingCreated
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.existing.comparison import Comparison
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.existing.growth import sizes_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.existing.plan import ExistingPlan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import ONE_VM_OPTIONS
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import (
    Entry,
    build_entries,
)

PATH = "/nodes/pve1/qemu/100"


def entry(**options: Any) -> Entry:
    return build_entries({"name": "web", **options}, ONE_VM_OPTIONS, 0.0)[0]


def converger(
    config: dict[str, Any], abandoned: Collection[int] = (), pools: Collection[str] = (), **more: Any
) -> Comparison:
    answers = {"/cluster/resources": [], f"{PATH}/config": {"name": "web", **config}, **more}
    return Comparison(RecordedReader(answers), abandoned, pools=pools)


def plan(asked: Entry, config: dict[str, Any] | None = None, status: str = "running") -> ExistingPlan:
    return converger(config or {}).plan(asked, guest(100, "pve1", name="web", status=status))


def told(found: ExistingPlan) -> list[str]:
    return found.warnings(found.pending_after)


@pytest.mark.parametrize(
    ("state", "status", "actions"),
    [
        ("present", "running", []),
        ("present", "stopped", []),
        ("started", "running", []),
        ("started", "stopped", ["start"]),
        ("started", "io-error", []),
        ("stopped", "running", ["stop"]),
        ("stopped", "paused", ["stop"]),
        ("stopped", "stopped", []),
        ("absent", "running", ["delete"]),
    ],
)
def test_power__is_changed_where_it_is_not_as_asked_for(state: str, status: str, actions: list[str]) -> None:
    assert plan(entry(state=state), status=status).actions == actions


def test_vm_that_stands_still__is_told_and_not_started() -> None:
    """Proxmox refuses to start it, as it runs; the list of the cluster has QEMU's word for it."""
    found = plan(entry(state="started"), status="io-error")
    assert found.actions == []
    assert told(found) == ['VM "web" runs, but its CPU is stopped (io-error): it is not resumed']
    assert told(plan(entry(), status="paused")) == []
    assert plan(entry(state="started"), status="paused").actions == ["resume"]


def test_drift__is_applied_only_where_that_is_asked_for() -> None:
    assert plan(entry(cores=4), {"cores": 2}).actions == []
    assert plan(entry(cores=4, update=True), {"cores": 2}).actions == ["update"]
    assert plan(entry(cores=2, update=True), {"cores": 2}).actions == []
    with pytest.raises(DriftNotApplicable):
        plan(entry(scsi={"scsi0": {"size": 4}}, update=True), {"scsi0": "local:vm-100-disk-0,size=8G"})


def test_vm__is_stopped_before_it_becomes_a_template() -> None:
    asked = {"template": True, "cores": 4, "update": True}
    found = plan(entry(state="stopped", **asked))
    assert found.actions == ["stop", "update"]
    assert found.status_after == "stopped"
    assert plan(entry(**asked), status="stopped").actions == ["update"]
    with pytest.raises(DriftNotApplicable, match="template: the VM runs; set state=stopped to stop it"):
        plan(entry(**asked))


@pytest.mark.parametrize("pool", [None, "lab"])
def test_another_pool__is_drift_that_an_update_applies(pool: str | None) -> None:
    for update, actions in ((False, []), (True, ["update"])):
        planner = converger({}, pools={"web"})
        found = planner.plan(entry(pool="web", update=update), guest(100, "pve1", name="web", pool=pool))
        assert found.drift == {"pool": {"old": pool, "new": "web"}}
        assert found.actions == actions
        assert (found.after or {}).get("pool") == ("web" if update else pool)
        assert bool(told(found)) is not update
    for same in (entry(pool=pool), entry()):
        assert not converger({}).plan(same, guest(100, "pve1", name="web", pool=pool)).drift


def test_pool__is_no_drift_where_neither_pool_can_be_seen() -> None:
    hidden = converger({}).plan(entry(pool="web", update=True), guest(100, "pve1", name="web"))
    assert (hidden.drift, hidden.actions) == ({}, [])
    elsewhere = converger({}).plan(entry(pool="web"), guest(100, "pve1", name="web", pool="lab"))
    assert elsewhere.drift == {"pool": {"old": "lab", "new": "web"}}


def test_vm_that_is_called_otherwise_by_now__is_not_touched() -> None:
    with pytest.raises(GuestVanished, match="'precious'"):
        plan(entry(), {"name": "precious"})


@pytest.mark.parametrize("lock", ["create", "clone"])
def test_plan__a_vm_that_is_being_created_cannot_be_planned_for(lock: str) -> None:
    found = guest(100, "pve1", name="web", status="running")
    with pytest.raises(BeingCreated, match="still being created") as raised:
        converger({"lock": lock}).plan(entry(), found)
    assert raised.value.guests == [found]
    with pytest.raises(GuestLocked, match="no task is working on it"):
        converger({"lock": lock}, abandoned={100}).plan(entry(), found)
    assert plan(entry(), {"lock": "backup"}).actions == []


def test_vm_that_the_list_does_not_show_whole__has_its_status_read() -> None:
    asked = entry(state="started")
    for status, actions in (("running", []), ("stopped", ["start"])):
        current = {f"{PATH}/status/current": {"status": status}}
        found = converger({}, **current).plan(asked, guest(100, "pve1", name="web", status="assumed"))
        assert found.actions == actions


@pytest.mark.parametrize("update", [False, True])
def test_vm_on_another_node_than_asked_for__is_told_and_not_moved(update: bool) -> None:
    found = plan(entry(node="pve2", update=update))
    assert found.actions == []
    assert found.drift == {"node": {"old": "pve1", "new": "pve2"}}
    assert told(found) == [
        'VM "web" is on pve1, requested on pve2: it is not moved; migrate it with Proxmox VE, or request node pve1'
    ]


def test_template__is_not_started() -> None:
    with pytest.raises(InvalidRequest, match="is a template, which cannot be started"):
        converger({}).plan(entry(state="started"), guest(100, "pve1", name="web", template=True))


def test_warning_of_drift__calls_what_is_not_set_unset() -> None:
    assert told(plan(entry(cores=4))) == [
        'VM "web" has drifted: cores is unset, requested 4. Set update=true to apply.'
    ]


def test_drift_that_cannot_be_updated__is_not_promised() -> None:
    asked = entry(cores=4, scsi={"scsi0": {"size": 4}, "scsi1": {"storage": "fast", "size": 8}})
    config = {"scsi0": "local:vm-100-disk-0,size=8G", "scsi1": "slow:vm-100-disk-1,size=8G"}
    changeable, smaller = told(plan(asked, config))
    assert changeable.endswith(
        "cores is unset, requested 4, scsi1 is slow:vm-100-disk-1,size=8G, requested fast:8. Set update=true to apply."
    )
    assert smaller.endswith("It cannot be updated: it has 8G and cannot shrink to 4G; request at least its size")


DISK = {"scsi0": "slow:vm-100-disk-0,size=8G"}


@pytest.mark.parametrize(
    ("drive", "config", "status", "reason"),
    [
        ({}, {**DISK, "template": 1}, "stopped", "it is a template, whose disks are not moved"),
        ({}, {"scsi0": "slow:base-9-disk-0/vm-100-disk-0,size=8G"}, "stopped", "a linked clone of base-9-disk-0"),
        ({}, {"scsi0": "slow:9/base-9-disk-0.raw/100/vm-100-disk-0.raw"}, "stopped", "a linked clone of base-9"),
        ({}, {**DISK, "parent": "before"}, "stopped", "the VM has snapshots"),
        ({}, {**DISK, "pending": True}, "running", "it has pending changes"),
        ({"scsi0": "fast:cloudinit"}, {"scsi0": "slow:vm-100-cloudinit,media=cdrom"}, "running", "the VM runs"),
    ],
)
@pytest.mark.parametrize("update", [False, True])
def test_disk_that_cannot_be_moved__says_why_and_stays(
    drive: dict[str, str], config: dict[str, Any], status: str, reason: str, update: bool
) -> None:
    asked = entry(scsi={"scsi0": {"storage": "fast", "size": 8}, **drive}, update=update)
    rows = [{"key": key, "value": value} for key, value in {**config, "name": "web"}.items()]
    if config.get("pending"):
        rows[0]["pending"] = f"{DISK['scsi0']},ssd=1"
    planner = converger(config, **{f"{PATH}/pending": rows})
    found = guest(100, "pve1", name="web", status=status)
    if update:
        with pytest.raises(DriftNotApplicable, match=f"scsi0: .*{reason}"):
            planner.plan(asked, found)
    else:
        (warning,) = (text for text in told(planner.plan(asked, found)) if "drifted" in text)
        assert reason in warning.partition("It cannot be updated: ")[2]


def test_disk_of_a_template__is_not_grown() -> None:
    asked = {"scsi": {"scsi0": {"size": 9}}}
    config = {"template": 1, "scsi0": "local:base-100-disk-0,size=8G"}
    (warning,) = told(plan(entry(**asked), config, status="stopped"))
    assert "It cannot be updated: it is a template, whose disks cannot be grown" in warning
    with pytest.raises(DriftNotApplicable, match="scsi0: it is a template, whose disks cannot be grown"):
        plan(entry(update=True, **asked), config, status="stopped")


# --- pending changes ---

PENDING: list[dict[str, Any]] = [
    {"key": "name", "value": "web"},
    {"key": "memory", "value": "1024", "pending": "2048"},
    {"key": "cores", "pending": 4},
    {"key": "vga", "value": "qxl", "delete": 1},
    {"key": "cipassword", "value": "**********", "pending": "********** "},
]


def pending_plan(status: str = "running", **options: Any) -> ExistingPlan:
    answers = {f"{PATH}/pending": PENDING}
    return converger({"memory": "2048"}, **answers).plan(
        entry(**options), guest(100, "pve1", name="web", status=status)
    )


def test_pending_changes__are_told_in_every_run_and_are_no_drift() -> None:
    found = pending_plan(memory=2048, cores=4, update=True)
    assert (found.drift, found.actions) == ({}, [])
    assert found.pending_after == {
        "memory": {"old": 1024, "new": 2048},
        "cores": {"old": None, "new": 4},
        "vga": {"old": "qxl", "new": None},
        "cipassword": {"old": "********", "new": "********"},
    }
    (warning,) = told(found)
    assert "cores from unset to 4, memory from 1024 to 2048, vga from qxl to unset" in warning
    assert "Set apply_pending=reboot" in warning


def test_pending_changes__of_a_stopped_vm_are_none() -> None:
    assert pending_plan("stopped").pending_after == {}
    stopping = pending_plan(state="stopped")
    assert (stopping.actions, stopping.pending_after, told(stopping)) == (["stop"], {}, [])


@pytest.mark.parametrize(
    ("status", "options", "actions"),
    [
        ("running", {}, ["reboot"]),
        ("running", {"state": "started"}, ["reboot"]),
        ("running", {"state": "stopped"}, ["stop"]),
        ("running", {"state": "absent"}, ["delete"]),
        ("running", {"cores": 8, "update": True}, ["update", "reboot"]),
        ("paused", {}, []),
        ("stopped", {"state": "started"}, ["start"]),
    ],
)
def test_apply_pending__reboots_a_running_vm(status: str, options: dict[str, Any], actions: list[str]) -> None:
    found = pending_plan(status, apply_pending="reboot", **options)
    assert found.actions == actions
    if "reboot" in actions:
        assert (found.pending_after, found.status_after) == ({}, "running")
        assert "pending" in (found.before or {})
        assert "pending" not in (found.after or {})


@pytest.mark.parametrize(
    ("options", "actions"),
    [
        ({"description": "x", "tags": ["a"]}, ["update"]),
        ({"description": "x", "cores": 2}, ["update", "reboot"]),
        ({}, []),
    ],
)
def test_apply_pending__foresees_which_updates_may_wait(options: dict[str, Any], actions: list[str]) -> None:
    found = plan(entry(update=True, apply_pending="reboot", **options))
    assert found.actions == actions


@pytest.mark.parametrize(
    ("config", "cores"),
    [({}, 1), ({"cores": 4, "sockets": 2}, 8), ({"cores": 4, "sockets": 2, "vcpus": 3}, 3), ({"vcpus": "x"}, 1)],
)
def test_config__says_how_many_vcpus_count(config: dict[str, Any], cores: int) -> None:
    assert sizes_of({**config, "memory": "512"}) == (float(cores), 512 * 1024**2)
