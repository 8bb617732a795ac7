# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the cluster's list shows late is corrected; replayed from what real clusters showed moment by moment."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import PermissionDenied
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Guest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.failures import NodeUnreachable
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.freshness import (
    KnownGuest,
    settle,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.snapshot import (
    Needs,
    read_settled,
    read_snapshot,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import Upid

NODES = [{"type": "node", "node": name, "status": "online", "maxcpu": 8, "maxmem": 2**35} for name in ("pve1", "pve2")]
FULL = {"mac_prefix": "BC:24:11"}
MADE = KnownGuest("web", whole=True)
BINDING = KnownGuest("web", whole=False)
PROVEN = KnownGuest("web", whole=True, proven=True)


class Answers:
    """Answers calls from a mapping, raises what is an exception in it, and remembers the calls."""

    def __init__(self, answers: Mapping[str, t.Any], time: float | None = 1000.0) -> None:
        self.answers = {"/cluster/options": FULL, **answers}
        self.time = time
        self.calls: list[str] = []

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        self.calls.append(path)
        answer = self.answers[path]
        if isinstance(answer, list) and answer and isinstance(answer[0], list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def server_time(self) -> float | None:
        return self.time


class Timeline:
    """Answers as a recorded cluster did at one moment around a create or clone; other guests are left out."""

    def __init__(self, recorded: dict[str, t.Any], view: str, at_ms: int) -> None:
        self.upid = Upid.parse(recorded["post_body"].split('"')[3])
        self._latest: dict[str, t.Any] = {}
        for event in recorded["events"]:
            if event["t_resp_ms"] <= at_ms:
                self._latest[event["probe"]] = event["value"]
        self._view = view
        self._time = self.upid.started + (at_ms - recorded["post_sent_ms"]) / 1000

    @property
    def listed(self) -> dict[str, t.Any] | None:
        """The row of the guest in its node's own list."""
        row: dict[str, t.Any] | None = self._latest.get("qemu-list")
        return row

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        if path == "/cluster/resources":
            row = self._latest.get(f"resources({self._view})")
            return [*NODES, *([row] if row else [])]
        if path == "/cluster/tasks":
            return [{**task, "node": self.upid.node} for task in self._latest.get("cluster-tasks") or []]
        if path == f"/nodes/{self.upid.node}/qemu":
            return [self.listed] if self.listed else []
        return FULL

    def server_time(self) -> float:
        return self._time


def row(vmid: int, node: str = "pve1", **fields: t.Any) -> dict[str, t.Any]:
    settled = {"name": f"vm{vmid}", "maxmem": 2**30, "maxcpu": 2, "status": "stopped"}
    return {"type": "qemu", "vmid": vmid, "node": node, **settled, **fields}


def unknown(vmid: int, node: str = "pve1", **fields: t.Any) -> dict[str, t.Any]:
    return {"type": "qemu", "vmid": vmid, "node": node, "status": "unknown", **fields}


def listed(vmid: int, **fields: t.Any) -> dict[str, t.Any]:
    return {"vmid": vmid, "name": f"vm{vmid}", "maxmem": 2**30, "cpus": 2, "status": "stopped", **fields}


def task(type: str, vmid: int, node: str = "pve1", ended: float | None = 990, **fields: t.Any) -> dict[str, t.Any]:
    end = {} if ended is None else {"endtime": ended, "status": "OK"}
    return {"type": type, "id": str(vmid), "node": node, "starttime": 900, **end, **fields}


def settled(reader: Answers, **options: t.Any) -> dict[int, Guest]:
    snapshot = settle(reader, read_snapshot(reader), sleep=lambda seconds: None, **options)
    return {guest.vmid: guest for guest in snapshot.guests}


def cluster(rows: list[t.Any], tasks: list[t.Any], time: float | None = 1000.0, **lists: t.Any) -> Answers:
    answers = {f"/nodes/{node}/qemu": answer for node, answer in lists.items()}
    return Answers({"/cluster/resources": [*NODES, *rows], "/cluster/tasks": tasks, **answers}, time)


@pytest.mark.parametrize("view", ["pve1", "pve2"])
@pytest.mark.parametrize(
    ("name", "real"),
    [
        ("timeline-create-fresh-vmid-disk", "fresh1"),
        ("timeline-recreate-of-recently-deleted-vmid-disk", "web01"),
        ("timeline-create-slow-import", "slow"),
        ("timeline-clone-full", "cl"),
    ],
)
def test_guest_in_a_recorded_create__is_at_every_moment_as_its_node_lists_it(recording, name, real, view):
    recorded = recording("8.4", name)
    named = 0
    for at_ms in sorted({event["t_resp_ms"] for event in recorded["events"]}):
        timeline = Timeline(recorded, view, at_ms)
        guests = settle(timeline, read_snapshot(timeline), patience=0).guests

        names = {guest.name for guest in guests}
        assert names <= {None, real}
        if timeline.listed and timeline.listed["name"] == real and guests:
            assert names == {real}
            assert {guest.memory for guest in guests} == {timeline.listed["maxmem"]}
            named += 1
    assert named


def test_quiet_cluster__has_only_its_tasks_read():
    reader = cluster([row(100)], [task("qmcreate", 100, ended=900), task("vzdump", 100)])

    assert settled(reader)[100].name == "vm100"
    assert reader.calls == ["/cluster/resources", "/cluster/tasks"]


def test_vmid_in_use_again__gets_the_name_of_its_new_guest():
    reader = cluster([row(100, name="old"), row(101, "pve2")], [task("qmdestroy", 100)], pve1=[listed(100, name="new")])

    assert settled(reader)[100].name == "new"
    assert reader.calls[2:] == ["/nodes/pve1/qemu"]


class Slow(Answers):
    """Answers as a process sees them that is stopped for a minute before it asks for the tasks."""

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        if path == "/cluster/tasks" and self.time is not None:
            self.time += 60
        return super().get(path, params, **more)


def test_list_that_was_read_long_before_the_tasks__is_as_old_as_it_was_then():
    listing = [*NODES, row(100, name=None, maxmem=2**29)]
    tasks = [task("qmrestore", 100)]
    reader = Slow({"/cluster/resources": listing, "/cluster/tasks": tasks, "/nodes/pve1/qemu": [listed(100)]})

    assert settled(reader)[100].name == "vm100"


def test_guest_that_was_just_started__runs():
    reader = cluster([row(100)], [task("qmstart", 100)], pve1=[listed(100, status="running")])

    assert settled(reader)[100].running


@pytest.mark.parametrize(
    ("shown", "tasks", "status"),
    [
        ("running", [task("qmpause", 100)], "paused"),
        ("running", [task("qmpause", 100), task("qmstart", 100)], "paused"),
        ("running", [task("qmpause", 100), task("qmstart", 100, starttime=2000)], "running"),
        ("paused", [task("qmpause", 100, starttime=900), task("qmresume", 100, starttime=901)], "running"),
    ],
)
def test_guest_that_was_just_paused__is_paused_though_its_node_lists_it_as_running(shown, tasks, status):
    reader = cluster([row(100, status=shown)], tasks, pve1=[listed(100, status="running")])

    assert settled(reader)[100].status == status


def test_what_a_clone_made__is_read_though_its_task_names_the_source_only():
    reader = cluster([row(100), row(105)], [task("qmclone", 100)], pve1=[listed(100), listed(105, maxmem=2**33)])

    assert settled(reader)[105].memory == 2**33


def test_guest_made_since_the_first__read_is_added():
    reader = cluster([], [task("qmcreate", 107)], pve1=[listed(107, tags="a;b")])

    added = settled(reader)[107]
    assert (added.name, added.node, added.kind, added.tags) == ("vm107", "pve1", "qemu", frozenset("ab"))


def test_guest_whose_create_failed_meanwhile__is_dropped():
    reader = cluster([row(100), unknown(101, lock="create")], [], pve1=[listed(100)])

    assert list(settled(reader, auditor=True)) == [100]


def test_clone_that_was_moved_to_its_node_meanwhile__is_found_there():
    reader = cluster([], [task("qmclone", 9000)], pve1=[listed(9000)], pve2=[listed(103, name="web")])
    before, after = [*NODES, unknown(103, lock="clone")], [unknown(103, "pve2")]
    reader.answers["/cluster/resources"] = [before, after]

    guest = settled(reader)[103]
    assert (guest.name, guest.node, guest.lock) == ("web", "pve2", None)


def test_clone_that_was_seen_before_it_had_a_name__is_read_where_it_is():
    rows = [row(103, "pve2", name="VM 103"), row(9000)]
    reader = cluster(rows, [task("qmclone", 9000)], pve1=[listed(9000)], pve2=[listed(103, name="web")])

    assert settled(reader)[103].name == "web"


def test_guest_that_vanished_without_any_doubt_about_it__is_kept():
    reader = cluster([row(100), unknown(101)], [task("qmstop", 7)], pve1=[listed(101)])

    assert sorted(settled(reader)) == [100, 101]


def test_pool_and_ha__are_kept_as_a_nodes_list_lacks_them():
    reader = cluster([row(100, pool="lab", hastate="started")], [task("qmstart", 100)], pve1=[listed(100)])

    guest = settled(reader)[100]
    assert (guest.pool, guest.ha_managed) == ("lab", True)


@pytest.mark.parametrize("late", [0, 2])
def test_guest_that_the_cluster_did_not_list_yet__has_its_pool_read(late):
    cluster = [*[NODES] * (1 + late), [*NODES, unknown(105, pool="tenant", hastate="started")]]
    found = settled(Answers({
        "/cluster/resources": cluster,
        "/cluster/tasks": [task("qmcreate", 105)],
        "/nodes/pve1/qemu": [listed(105, name="web")],
    }))  # fmt: skip
    assert (found[105].name, found[105].pool, found[105].ha_managed) == ("web", "tenant", True)


def test_guest_that_the_cluster_does_not_list_in_time__is_kept():
    reader = Answers({
        "/cluster/resources": NODES, "/cluster/tasks": [task("qmcreate", 105)], "/nodes/pve1/qemu": [listed(105)],
    })  # fmt: skip
    assert settled(reader, patience=1)[105].name == "vm105"
    assert reader.calls.count("/cluster/resources") < 10


def test_container__is_read_from_the_list_of_containers():
    reader = cluster([unknown(200, type="lxc")], [task("vzcreate", 200)])
    reader.answers["/nodes/pve1/lxc"] = [{**listed(200, name="ct"), "vmid": "200"}]

    assert settled(reader)[200].name == "ct"


def test_guest_still_being_made__is_waited_for():
    making, made = [listed(100, name="VM 100", lock="create")], [listed(100, name="web")]
    reader = cluster([unknown(100, lock="create")], [task("qmcreate", 100, ended=None)], pve1=[making, making, made])

    assert settled(reader)[100].name == "web"


def test_vm_that_never_had_a_name__costs_nothing():
    reader = cluster([row(100, name="VM 100")], [task("vzdump", 100)])

    assert settled(reader)[100].name is None
    assert reader.calls == ["/cluster/resources", "/cluster/tasks"]


def test_guest_that_takes_long__keeps_no_name_after_a_bounded_wait():
    pauses: list[float] = []
    making = [listed(100, name="VM 100", lock="create")]
    reader = cluster([unknown(100, lock="create")], [task("qmcreate", 100, ended=None)], pve1=making)

    snapshot = settle(reader, read_snapshot(reader), patience=2, sleep=pauses.append)

    assert snapshot.guests[0].name is None
    assert sum(pauses) == 2


def test_guest_that_the_caller_knows__is_neither_read_nor_waited_for():
    reader = cluster([unknown(100, lock="create")], [task("qmcreate", 100, ended=None)])

    assert settled(reader, known={100: BINDING})[100].name is None
    assert reader.calls == ["/cluster/resources", "/cluster/tasks"]


@pytest.mark.parametrize(
    ("shown", "tasks", "known"),
    [
        # Deleted, and its VMID used again: the list shows the former guest, or already the new one.
        (row(100, name="web"), [task("qmdestroy", 100)], MADE),
        (row(100, name="other"), [], MADE),
        (row(100, name="other"), [], BINDING),
        (unknown(100, lock="create"), [task("qmcreate", 100, ended=None)], MADE),
        # Started since: the list still shows it as stopped.
        (row(100, name="web"), [task("qmstart", 100)], MADE),
    ],
)
def test_settle__a_guest_that_the_caller_knows_is_read_where_something_speaks_against_it(shown, tasks, known):
    reader = cluster([shown], tasks, pve1=[listed(100, name="new")])

    assert settled(reader, known={100: known})[100].name == "new"


def test_settle__who_does_not_see_all_tasks_reads_what_it_knows_to_be_made():
    reader = cluster([row(100, name="web")], [], pve1=[listed(100, name="new")])

    assert settled(reader, auditor=False, known={100: MADE})[100].name == "new"


def test_settle__a_guest_that_another_is_making_is_not_read_by_who_does_not_see_all_tasks():
    reader = cluster([unknown(100, lock="create")], [], pve1=[listed(100, name="new")])

    assert settled(reader, auditor=False, known={100: BINDING})[100].name is None


CREATED = task("qmcreate", 100, starttime=900)


@pytest.mark.parametrize(
    ("shown", "tasks", "status"),
    [
        (unknown(100), [CREATED], "stopped"),
        (row(100, name="web"), [CREATED], "stopped"),
        # The creation ends in the second in which its start begins, or later.
        (unknown(100), [task("qmstart", 100, starttime=900, ended=991), CREATED], "running"),
        (unknown(100), [task("qmstart", 100, starttime=901), task("qmstop", 100, starttime=905)], "stopped"),
        # The task of a clone does not name it.
        (unknown(100), [task("qmclone", 9000, "pve2")], "stopped"),
        # Its tasks are over for so long that its row is up to date.
        (row(100, name="web", status="running"), [task("qmcreate", 100, ended=900)], "running"),
    ],
)
def test_settle__a_vm_whose_config_will_prove_it_has_the_status_in_which_its_tasks_left_it(shown, tasks, status):
    reader = cluster([shown], tasks, pve2=[])

    assert settled(reader, known={100: PROVEN})[100].status == status
    assert "/nodes/pve1/qemu" not in reader.calls


@pytest.mark.parametrize(
    ("shown", "tasks"),
    [
        # It was started by the creation, and stopped by itself; or its row is not up to date.
        (row(100, name="web"), [task("qmstart", 100, starttime=901), CREATED]),
        (unknown(100), [CREATED, task("qmstart", 100, ended=None)]),
        (unknown(100), [CREATED, task("qmstart", 100, status="start failed")]),
        (unknown(100), [CREATED, task("qmstart", 100, starttime=905), task("qmstop", 100, starttime=905)]),
        (unknown(100), [CREATED, task("qmtemplate", 100)]),
        (unknown(100), [CREATED, task("qmdestroy", 100)]),
        (unknown(100), []),
        (row(100, name="other"), [CREATED]),
        (unknown(100, lock="create"), [CREATED]),
    ],
)
def test_settle__a_vm_whose_config_will_prove_it_is_read_where_its_tasks_do_not_tell_its_status(shown, tasks):
    reader = cluster([shown], tasks, pve1=[listed(100, name="web", status="paused")])

    assert settled(reader, known={100: PROVEN}, auditor=True)[100].status == "paused"


@pytest.mark.parametrize("known", [{}, {100: MADE}, {100: PROVEN}])
def test_vm_that_became_a_template__is_one_before_the_cluster_shows_it(known):
    tasks = [CREATED, task("qmtemplate", 100)]
    reader = cluster([row(100, name="web")], tasks, pve1=[listed(100, name="web", template=1)])
    assert settled(reader, known=known)[100].template
    shown = cluster([row(100, name="web", template=1)], tasks)
    assert settled(shown, known={100: MADE})[100].template
    assert "/nodes/pve1/qemu" not in shown.calls


def test_missing_clock__takes_the_time_of_the_newest_task():
    tasks = [task("qmdestroy", 100, ended=5000), task("vzdump", 9, ended=5010)]
    reader = cluster([row(100, name="old")], tasks, time=None, pve1=[listed(100, name="new")])

    assert settled(reader)[100].name == "new"


def test_guests_of_a_node_that_is_offline__are_not_asked_for():
    reader = cluster([unknown(100, "pve3")], [task("qmcreate", 100, "pve3")])

    assert settled(reader)[100].name is None


def test_guests_of_a_node_that_does_not_answer__stay_as_they_were():
    reader = cluster([unknown(100, tags="a")], [task("qmcreate", 100)], pve1=NodeUnreachable("595"))

    assert settled(reader)[100].tags == {"a"}


@pytest.mark.parametrize("options", [{"allowed-tags": []}, PermissionDenied("403")])
def test_who_sees_no_tasks__asks_every_node_with_guests(options):
    reader = cluster([row(100, name="old"), row(101)], [], pve1=[listed(100, name="new"), listed(101)])
    reader.answers["/cluster/options"] = options

    assert settled(reader)[100].name == "new"
    assert "/nodes/pve2/qemu" not in reader.calls


def test_who_may_see_all_tasks_and_sees_none__asks_no_node():
    reader = cluster([row(100)], [])

    assert settled(reader)[100].name == "vm100"
    assert reader.calls[2:] == ["/cluster/options"]


def test_options__read_for_the_bounds_also_tell_whether_tasks_are_seen():
    reader = cluster([row(100)], [])
    snapshot = read_settled(reader, Needs(next_id=True))

    assert snapshot.guests[0].name == "vm100"
    assert reader.calls == ["/cluster/resources", "/cluster/options", "/cluster/tasks"]
