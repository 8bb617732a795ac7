# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The event source of ansible-rulebook, run by its entry point against a simulated cluster that changes."""

from __future__ import annotations

import asyncio
import contextlib
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from simulated_cluster.client import SimulatedCluster
from support.waiting import PATIENCE

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.foreign_text import inert
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import Session
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import TaskFollower
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.capacity import count_capacity
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import ONE_VM_OPTIONS
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.watching import Watch
from ansible_collections.qemu_scheduler.proxmox.plugins.modules import capacity_info

from .proxmox.conftest import parameters

SOURCE = Path(__file__).parents[2] / "extensions" / "eda" / "plugins" / "event_source" / "cluster.py"
WEB = {
    "memory": 6144,
    "cores": 2,
    "status": "running",
    "tags": ["plb_anti_affinity_web"],
    "disks": {"scsi0": "ceph:8"},
}


def description(version: str) -> dict[str, Any]:
    """Two nodes of 16 GiB; each has a VM of 6 GiB that must be apart from the other."""
    return {
        "version": version,
        "nodes": [{"name": name, "cores": 8, "memory": 16384, "bridges": ["vmbr0"]} for name in ("pve1", "pve2")],
        "storages": [{"name": "ceph", "type": "rbd", "shared": True, "content": ["images"], "size": 500}],
        "guests": [
            {"vmid": 101, "name": "web-1", "node": "pve1", **WEB},
            {"vmid": 102, "name": "web-2", "node": "pve2", **WEB},
        ],
        # What the cluster shows is never older than this.
        "timing": {"pvestatd_seconds": 0.5},
    }


@pytest.fixture
def cluster(version: str, request: pytest.FixtureRequest) -> Iterator[SimulatedCluster]:
    """The cluster; a test may add to its description."""
    more: dict[str, Any] = dict(getattr(request, "param", {}))
    time_scale = more.pop("time_scale", 0.05)
    with SimulatedCluster.start({**description(version), **more}, time_scale=time_scale) as running:
        yield running


@pytest.fixture
def args(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The arguments of the source: the connection is in the environment."""
    for name, value in cluster.environment().items():
        monkeypatch.setenv(name, value)
    return lambda **more: {"interval": 0.05, **more}


@pytest.fixture
def session(cluster: SimulatedCluster) -> Iterator[Session]:
    """Another user of the cluster."""
    with contextlib.closing(Session.connect(parameters(cluster))) as session:
        yield session


def create(session: Session, node: str, vmid: int, name: str) -> None:
    TaskFollower(session).wait(session.post(f"/nodes/{node}/qemu", vmid=vmid, name=name, memory=512))


def remove(session: Session, node: str, vmid: int) -> None:
    TaskFollower(session).wait(session.delete(f"/nodes/{node}/qemu/{vmid}"))


def told(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(event["type"], event["vmid"]) for event in events]


def test_source__sends_what_begins_and_what_ends(
    cluster: SimulatedCluster, args: Callable[..., dict[str, Any]]
) -> None:
    shape = {"cores": 1, "memory": 8192}
    source = runpy.run_path(str(SOURCE))["main"]

    async def story() -> list[dict[str, Any]]:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        task = asyncio.create_task(source(queue, args(capacity={"shape": shape, "at_least": 2})))
        try:
            await asyncio.sleep(0.5)
            assert queue.empty()
            await asyncio.to_thread(cluster.set_node, "pve2", online=False)
            events = [await asyncio.wait_for(queue.get(), PATIENCE) for _ in range(2)]
            await asyncio.to_thread(cluster.set_node, "pve2", online=True)
            events.append(await asyncio.wait_for(queue.get(), PATIENCE))
            await asyncio.to_thread(cluster.add_guest, vmid=103, name="web-3", node="pve1", **WEB)
            events += [await asyncio.wait_for(queue.get(), PATIENCE) for _ in range(2)]
            return events
        finally:
            task.cancel()

    offline, capacity, back, *broken = asyncio.run(story())
    assert offline == {"type": "node_offline", "node": "pve2"}
    assert (capacity["type"], capacity["fit"], capacity["at_least"], capacity["limited_by"]) == (
        "capacity_below", 1, 2, "memory",
    )  # fmt: skip
    assert back == {"type": "node_back", "node": "pve2"}
    assert {(event["type"], event["vmid"], event["node"]) for event in broken} == {
        ("rule_broken", 101, "pve1"),
        ("rule_broken", 103, "pve1"),
    }
    assert "apart from" in broken[0]["reason"]


def test_watch__costs_one_request_and_compares_the_list_now_and_then(
    cluster: SimulatedCluster, args: Callable[..., dict[str, Any]]
) -> None:
    vms = [{"name": "web-1", "cores": 4}, {"name": "web-2", "cores": 2}, {"name": "web-3"}]
    watch = Watch(args(vms=vms, drift_interval=900))
    first = watch.look(0.0)
    assert [(event["type"], event["name"], event["state"]) for event in first] == [
        ("drift", "web-1", "drifted"),
        ("drift", "web-3", "missing"),
    ]
    assert first[0]["drift"]["cores"] == {"old": 2, "new": 4}
    cluster.reset_requests()
    assert watch.look(30.0) == []
    assert [request["path"] for request in cluster.requests()] == ["/cluster/resources"]
    cluster.remove_guest(102)
    assert watch.look(60.0) == []
    assert [(event["name"], event["state"]) for event in watch.look(901.0)] == [("web-2", "missing")]
    watch.close()


def test_watch__tells_once_of_a_cluster_that_does_not_answer(
    cluster: SimulatedCluster, args: Callable[..., dict[str, Any]]
) -> None:
    watch = Watch(args(events=["node_back"]))
    assert watch.look() == []
    cluster.fault(method="GET", path="/cluster/resources", status=595, count=1000)
    (event,) = watch.look()
    assert (event["type"], event["error_code"]) == ("cluster_unreachable", "ConnectionFailed")
    assert watch.look() == []
    cluster.clear_faults()
    assert watch.look() == [{"type": "cluster_back"}]
    watch.close()


def test_watch__logs_in_again_when_the_ticket_was_revoked(
    cluster: SimulatedCluster, args: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PROXMOX_TOKEN_ID", "PROXMOX_TOKEN_SECRET"):
        monkeypatch.delenv(name)
    watch = Watch(args(api_user="root@pam", api_password=cluster.password))
    assert watch.look() == []
    cluster.revoke_tickets()
    assert watch.look() == []
    cluster.fault(method="GET", path="/cluster/resources", status=401, count=1000)
    (event,) = watch.look()
    assert (event["type"], event["error_code"]) == ("cluster_unreachable", "AuthenticationFailed")
    watch.close()


def test_watch__tells_of_nodes_before_it_checks_the_rest(
    cluster: SimulatedCluster, args: Callable[..., dict[str, Any]]
) -> None:
    watch = Watch(args(vms=[{"name": "web-2", "cores": 4}], drift_interval=0.001))
    cluster.set_node("pve2", online=False)
    cluster.reset_requests()
    parts = watch.parts(0.0)
    assert next(parts) == [{"type": "node_offline", "node": "pve2"}]
    assert [request["path"] for request in cluster.requests()] == ["/cluster/resources"]
    assert list(parts) == [[]]
    cluster.set_node("pve2", online=True)
    parts = watch.parts(30.0)
    assert next(parts) == [{"type": "node_back", "node": "pve2"}]
    assert [event["type"] for event in next(parts)] == ["drift"]
    watch.close()


def test_watch__sends_no_event_again_because_its_text_is_another(
    cluster: SimulatedCluster, args: Callable[..., dict[str, Any]]
) -> None:
    watch = Watch(args(vms=[{"name": "web-2", "cores": 4}], drift_interval=0.001))
    cluster.add_guest(vmid=103, name="web-3", node="pve1", **WEB)
    cluster.advance(30)
    assert told(watch.look(0.0)) == [("rule_broken", 101), ("rule_broken", 103), ("drift", 102)]
    # The reasons of the others name this VM now, and web-2 differs by another number.
    cluster.add_guest(vmid=100, name="web-0", node="pve1", **{**WEB, "memory": 1024})
    cluster.set_guest(102, config={"cores": 3})
    cluster.advance(30)
    assert told(watch.look(30.0)) == [("rule_broken", 100)]
    cluster.set_guest(102, config={"cores": 3, "onboot": 1})
    assert watch.look(60.0) == []
    watch.close()


def test_watch__sends_events_again_until_their_condition_has_ended(
    cluster: SimulatedCluster, args: Callable[..., dict[str, Any]]
) -> None:
    vms = [{"name": "web-1", "cores": 4}, {"name": "web-2", "cores": 4}]
    watch = Watch(args(vms=vms, drift_interval=1, repeat_interval=100))
    cluster.set_node("pve2", online=False)
    first = watch.look(0.0)
    assert [(event["type"], event.get("name")) for event in first] == [("node_offline", None), ("drift", "web-1")]
    assert watch.look(99.0) == []
    assert watch.look(100.0) == [{**event, "repeated": True} for event in first]
    cluster.set_node("pve2", online=True)
    # A VM that differs later has a time of its own.
    assert [event.get("name") for event in watch.look(150.0)] == [None, "web-2"]
    assert [event["name"] for event in watch.look(200.0)] == ["web-1"]
    cluster.set_guest(101, config={"cores": 4})
    assert [(event["name"], event["repeated"]) for event in watch.look(300.0)] == [("web-2", True)]
    watch.close()


def test_watch__sends_no_event_again_if_that_is_not_wanted(
    cluster: SimulatedCluster, args: Callable[..., dict[str, Any]]
) -> None:
    watch = Watch(args(repeat_interval=0))
    cluster.set_node("pve2", online=False)
    assert len(watch.look(0.0)) == 1
    assert watch.look(1e9) == []
    watch.close()


def test_rulebook__starts_no_playbook_for_each_event_and_drops_none() -> None:
    rulebook = SOURCE.parents[2] / "rulebooks" / "keep_cluster.yml"
    (ruleset,) = yaml.safe_load(rulebook.read_text(encoding="utf-8"))
    starting = [rule for rule in ruleset["rules"] if "run_playbook" in str(rule)]
    assert len(starting) == 3
    assert all(set(rule["throttle"]) == {"once_after", "group_by_attributes"} for rule in starting)


@pytest.mark.parametrize("cluster", [{"ha": {"resources": [{"sid": "vm:101"}]}}], indirect=True)
def test_watch__goes_on_with_the_other_checks_when_one_fails(
    cluster: SimulatedCluster, args: Callable[..., dict[str, Any]]
) -> None:
    cluster.add_guest(vmid=103, name="web-3", node="pve1", **WEB)
    cluster.advance(30)
    watch = Watch(args(vms=[{"name": "web-4"}], drift_interval=0.001))
    first = watch.look(0.0)
    assert [(event["type"], event["name"]) for event in first] == [
        ("rule_broken", "web-1"),
        ("rule_broken", "web-3"),
        ("drift", "web-4"),
    ]
    cluster.fault(method="GET", path="/cluster/ha/rules", status=403, message="no Sys.Audit", count=1000)
    cluster.fault(method="GET", path="/cluster/tasks", status=500, message="no tasks", count=1000)
    rules, drift = watch.look(30.0)
    assert {key: rules[key] for key in ("type", "check", "error_code")} == {
        "type": "check_failed",
        "check": "rule_broken",
        "error_code": "PermissionDenied",
    }
    assert "no Sys.Audit" in rules["message"]
    assert {key: drift[key] for key in ("type", "check", "error_code")} == {
        "type": "check_failed",
        "check": "drift",
        "error_code": "ApiError",
    }
    cluster.set_node("pve2", online=False)
    assert watch.look(60.0) == [{"type": "node_offline", "node": "pve2"}]
    cluster.clear_faults()
    assert watch.look(90.0) == [
        {"type": "check_back", "check": "rule_broken"},
        {"type": "check_back", "check": "drift"},
    ]
    watch.close()


def test_watch__keeps_what_it_knew_of_vms_on_a_node_that_does_not_answer(
    args: Callable[..., dict[str, Any]], cluster: SimulatedCluster
) -> None:
    watch = Watch(args(vms=[{"name": "web-1"}, {"name": "web-2", "cores": 3}], drift_interval=0.001, events=["drift"]))
    (drifted,) = watch.look(0.0)
    assert (drifted["name"], drifted["state"]) == ("web-2", "drifted")
    for vm, message in (("101", "no route to host"), ("102", "connection refused")):
        cluster.fault(method="GET", path=f"/qemu/{vm}/pending", status=595, message=message, count=1000)
        assert watch.look(30.0 + int(vm)) == []
    watch.close()


LATE: dict[str, Any] = {
    "time_scale": 0.2,
    # Statistics are made anew only when a test lets the time pass.
    "timing": {"pvestatd_seconds": 3600},
    "guests": [
        {"vmid": 201, "name": "db-1", "node": "pve1", "memory": 512},
        {"vmid": 202, "name": "db-2", "node": "pve2", "memory": 512},
    ],
}


@pytest.mark.parametrize("cluster", [LATE], indirect=True)
def test_watch__is_not_misled_by_names_that_are_outdated(
    cluster: SimulatedCluster, args: Callable[..., dict[str, Any]], session: Session
) -> None:
    watch = Watch(args(rules=[{"type": "anti-affinity", "name": "db-.*"}]))
    assert watch.look() == []
    # Another VM gets the VMID of db-1, on the node of db-2.
    remove(session, "pve1", 201)
    create(session, "pve2", 201, "batch")
    assert {row["vmid"]: row["name"] for row in session.get("/cluster/resources", type="vm")}[201] == "db-1"
    assert watch.look() == []
    cluster.advance(3600)
    assert watch.look() == []
    watch.close()


@pytest.mark.parametrize("cluster", [LATE], indirect=True)
def test_watch__sends_no_event_again_because_a_name_is_not_shown_yet(
    cluster: SimulatedCluster, args: Callable[..., dict[str, Any]], session: Session
) -> None:
    cluster.add_guest(vmid=203, name="db-3", node="pve2", memory=512)
    cluster.advance(3600)
    watch = Watch(args(rules=[{"type": "anti-affinity", "name": "db-.*"}]))
    assert told(watch.look()) == [("rule_broken", 202), ("rule_broken", 203)]
    cluster.reset_requests()
    assert watch.look() == []
    assert [request["path"] for request in cluster.requests()] == ["/cluster/resources"]
    remove(session, "pve2", 203)
    create(session, "pve2", 204, "db-3")
    assert told(watch.look()) == [("rule_broken", 204)]
    watch.close()


FULL: dict[str, Any] = {
    "nodes": [
        {
            "name": "pve1",
            "cores": 8,
            "memory": 16384,
            "bridges": ["vmbr0"],
            "pci": [{"id": "0000:41:00.0", "class": "0x030000", "vendor": "0x10de", "device": "0x2684"}],
        },
        {"name": "pve2", "cores": 8, "memory": 16384, "bridges": ["vmbr0"]},
    ],
    "storages": [
        {"name": "ceph", "type": "rbd", "shared": True, "content": ["images"], "size": 200},
        {"name": "local", "type": "dir", "content": ["iso", "import"], "size": 50},
    ],
    "mappings": {"pci": [{"id": "gpu", "map": ["node=pve1,path=0000:41:00.0,id=10de:2684"]}], "usb": [], "dir": []},
    "guests": [{"vmid": 900, "name": "tpl", "node": "pve1", "template": True, "disks": {"scsi0": "ceph:60"}}],
}
SHAPES: list[tuple[dict[str, Any], int]] = [
    ({"memory": 4096}, 1),
    ({"memory": 512, "clone": "tpl", "full": True}, 2),
    ({"memory": 512, "scsi": {"scsi0": {"size": 30}}}, 1),
    ({"memory": 512, "machine": "q35", "devices": [{"name": "g", "mapping": "gpu"}]}, 4),
    ({"memory": 512, "ide": {"ide2": "local:iso/none.iso,media=cdrom"}}, 3),
    ({"memory": 512, "tags": ["plb_pin_pve2"], "devices": [{"name": "g", "mapping": "gpu"}]}, 4),
]
"""Shapes, each with the number of requests of a reading that finds nothing new."""


@pytest.mark.parametrize("cluster", [FULL], indirect=True)
def test_watch__counts_capacity_as_capacity_info_does(
    cluster: SimulatedCluster, args: Callable[..., dict[str, Any]]
) -> None:
    for shape, requests in SHAPES:
        given = ArgumentSpecValidator(capacity_info.argument_spec()).validate({**shape, "reservations": "none"})
        assert not given.error_messages
        counted = count_capacity(given.validated_parameters, ONE_VM_OPTIONS)
        total = counted["total"]
        assert counted["limited_by"] is not None
        watch = Watch(args(capacity={"shape": shape, "at_least": total}, events=["capacity_below"]))
        assert watch.look() == [], shape
        cluster.reset_requests()
        assert watch.look() == [], shape
        assert len(cluster.requests()) == requests, (shape, cluster.requests())
        watch.close()
        watch = Watch(args(capacity={"shape": shape, "at_least": total + 1}, events=["capacity_below"]))
        (event,) = watch.look()
        assert (event["fit"], event["limited_by"]) == (total, counted["limited_by"]), shape
        assert event["reason"] == inert(counted["reason"])
        watch.close()


@pytest.mark.parametrize("cluster", [FULL], indirect=True)
def test_watch__tells_of_a_shape_that_the_cluster_cannot_have(
    cluster: SimulatedCluster, args: Callable[..., dict[str, Any]]
) -> None:
    watch = Watch(args(capacity={"shape": {"clone": "golden"}}))
    (event,) = watch.look()
    assert (event["check"], event["error_code"]) == ("capacity_below", "TemplateNotFound")
    assert "no VM 'golden' exists" in event["message"]
    assert watch.look() == []
    cluster.add_guest(vmid=901, name="golden", node="pve2", template=True, disks={"scsi0": "ceph:8"})
    cluster.advance(30)
    assert watch.look() == [{"type": "check_back", "check": "capacity_below"}]
    watch.close()


def test_watch__tells_of_a_node_that_only_the_options_have(
    cluster: SimulatedCluster, args: Callable[..., dict[str, Any]]
) -> None:
    watch = Watch(args(nodes={"pve9": {"labels": {"rack": "r1"}}}, events=["node_offline", "rule_broken"]))
    (event,) = watch.look()
    assert (event["type"], event["check"], event["error_code"]) == ("check_failed", "rule_broken", "InvalidRequest")
    assert "'pve9' matches no node" in event["message"]
    cluster.set_node("pve2", online=False)
    assert watch.look() == [{"type": "node_offline", "node": "pve2"}]
    watch.close()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"interval": 0}, "interval: 0 is not possible, expected a number of seconds above 0"),
        ({"events": ["node_of"]}, "node_offline"),
        ({"capacity": {"at_least": 2}}, "shape"),
        ({"capacity": {"shape": {"memory": "lots"}}}, "capacity.shape: memory: 'lots' is not valid"),
        ({"capacity": {"shape": {"profile": "nope"}}}, "capacity.shape: profile: unknown profile 'nope'"),
        ({"capacity": {"shape": {"state": "absent"}}}, "capacity.shape: state: 'absent' has no capacity"),
        ({"vm": []}, "vm"),
        ({"vms": [{"name": "a"}, {"name": "a"}]}, "name: 'a' is set in 2 entries of vms"),
        ({"vms": [{"name": "a", "memory": "lots"}]}, r"vms\[0\].memory: 'lots' is not valid"),
        ({"vms": [{"name": "a", "net": {"netX": "virtio"}}]}, r"vms\[0\].net.netX: 'virtio' is not valid"),
        ({"vms": [{"cores": 2}]}, r"vms\[0\].name: is missing"),
        ({"vms": [{"name": "a", "profile": "nope"}]}, "unknown profile 'nope'"),
        ({"rules": [{"type": "anti-affinity"}]}, r"rules\[0\]: selects no VMs"),
        ({"nodes": {"pve1": {"reserved": {"memory": "some"}}}}, "nodes.pve1.reserved.memory: 'some' is not valid"),
    ],
)
def test_watch__refuses_wrong_options(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        Watch(wrong)


def test_source__ends_without_the_options_of_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROXMOX_HOST", raising=False)
    source = runpy.run_path(str(SOURCE))["main"]
    with pytest.raises(InvalidRequest, match="api_host is missing"):
        asyncio.run(asyncio.wait_for(source(asyncio.Queue(), {"api_user": "root@pam", "api_password": "x"}), 10))
