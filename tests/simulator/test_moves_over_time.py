# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What others see while a guest moves, and what is left when a move is cut off."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from simulator.lab import Lab, in_lab
from simulator.moves_lab import ARCHIVE, description, finished
from simulator.preparations import managed, node_rule, offline, on, resource_rule, rules, running
from support.recordings import recording

SCALE = 0.02
PATIENCE = 400.0


def in_moves_lab(work: Callable[[Lab], Awaitable[Any]], time_scale: float = SCALE, **timing: float) -> Any:
    described = {**description(), "timing": timing}
    return in_lab("9.2", work, time_scale=time_scale, described=described)


async def begin(lab: Lab, path: str, **params: Any) -> str:
    response = await lab.ask("POST", path, params)
    assert response.status == 200, await response.text()
    return str((await response.json())["data"])


async def move(lab: Lab, vmid: int, target: str, **params: Any) -> str:
    return await begin(lab, f"/nodes/{lab.cluster.guests[vmid].node}/qemu/{vmid}/migrate", target=target, **params)


async def until(lab: Lab, condition: Callable[[], bool]) -> None:
    """Wait for the cluster itself, in its own time."""
    end = lab.cluster.clock.now() + PATIENCE
    while not condition():
        assert lab.cluster.clock.now() < end
        await asyncio.sleep(0.005)


async def row(lab: Lab, vmid: int) -> dict[str, Any]:
    data = (await (await lab.ask("GET", "/cluster/resources", {"type": "vm"})).json())["data"]
    return next(dict(found) for found in data if found["vmid"] == vmid)


async def disks(lab: Lab, node: str, vmid: int) -> list[str]:
    answer = await lab.ask("GET", f"/nodes/{node}/storage/fast/content", {"vmid": vmid})
    return [volume["volid"] for volume in (await answer.json())["data"]]


def steps(rows: list[dict[str, Any]], key: str) -> list[Any]:
    return [value for value, _group in itertools.groupby(found.get(key) for found in rows)]


@pytest.mark.parametrize("name", ["offline-shared", "online-shared", "online-local"])
def test_row_of_a_guest__changes_node_in_one_step_under_its_lock(name: str) -> None:
    record = recording("9.2", f"move-timeline-{name}")
    vmid = int(record["request"]["path"].split("/")[4])
    recorded = [
        found for event in record["events"] if event["probe"] == f"resources({record['request']['path'].split('/')[2]})"
        for found in event["value"]
    ]

    async def work(lab: Lab) -> list[dict[str, Any]]:
        await on(vmid, record["request"]["path"].split("/")[2])(lab)
        seen = [await row(lab, vmid)]
        upid = await begin(lab, record["request"]["path"], **record["request"]["params"])
        task = lab.cluster.tasks.find(upid)
        assert task is not None
        while task.running:
            seen.append(await row(lab, vmid))
            await asyncio.sleep(0.002)
        seen.append(await row(lab, vmid))
        assert task.exitstatus == "OK"
        return seen

    seen = in_moves_lab(work)
    for key in ("node", "lock"):
        assert steps(seen, key) == steps(recorded, key)
    under_lock = [(found["node"], found.get("lock")) for found in seen]
    assert (record["request"]["params"]["target"], "migrate") in under_lock


def test_qmpstatus_of_a_running_guest__is_postmigrate_before_it_arrives() -> None:
    async def work(lab: Lab) -> None:
        upid = await move(lab, 101, "pve2", online=1)
        await until(lab, lambda: lab.cluster.guests[101].qmpstatus == "postmigrate")
        await asyncio.sleep(5 * SCALE)
        shown = await row(lab, 101)
        assert (shown["node"], shown["status"]) == ("pve1", "postmigrate")
        assert (await lab.finish(upid))["exitstatus"] == "OK"
        assert lab.cluster.guests[101].qmpstatus == "running"

    in_moves_lab(work, pvestatd_seconds=0.1, worker_cache_seconds=0.0, migrate_switch_seconds=60.0)


def test_status_just_after_the_switch__may_hold_nothing_but_ha() -> None:
    async def work(lab: Lab) -> None:
        upid = await move(lab, 102, "pve2")
        await until(lab, lambda: lab.cluster.guests[102].node == "pve2")
        data = (await (await lab.ask("GET", "/nodes/pve2/qemu/102/status/current")).json())["data"]
        assert data == {"ha": {"managed": 0}}
        await lab.finish(upid)

    in_moves_lab(work, switched_seconds=60.0)


@pytest.mark.parametrize(("params", "exitstatus", "left"), [
    ({"online": 1, "with-local-disks": 1}, "migration problems", []),
    ({}, "migration aborted", ["fast:150/vm-150-disk-0.raw"]),
])
def test_a_move_that_is_stopped__leaves_the_guest_alone(
    params: dict[str, int], exitstatus: str, left: list[str]
) -> None:
    """A live copy is cleaned up on the target, an offline copy is not."""

    async def work(lab: Lab) -> None:
        if not params:
            lab.cluster.guests[150].status = lab.cluster.guests[150].qmpstatus = "stopped"
        upid = await move(lab, 150, "pve2", bwlimit=64, **params)
        await until(lab, lambda: len(lab.cluster.volumes.of_guest(150)) == 2)
        await asyncio.sleep(0.05)
        await lab.ask("DELETE", f"/nodes/pve1/tasks/{upid}")
        assert (await lab.finish(upid))["exitstatus"] == exitstatus
        guest = lab.cluster.guests[150]
        assert (guest.node, guest.config_lock, guest.running) == ("pve1", None, bool(params))
        assert await disks(lab, "pve2", 150) == left
        again = await move(lab, 150, "pve2", **params)
        assert (await lab.finish(again))["exitstatus"] == "OK"
        assert f"disk-{len(left)}.raw" in guest.config["scsi0"]

    in_moves_lab(work)


def test_a_worker_that_is_killed__leaves_its_lock_and_half_a_disk() -> None:
    async def work(lab: Lab) -> None:
        lab.cluster.faults.add({"path": "/migrate$", "task_killed": True, "task_seconds": 1, "count": 1})
        params = {"online": 1, "with-local-disks": 1}
        upid = await move(lab, 150, "pve2", **params)
        assert (await lab.finish(upid))["exitstatus"] == "unexpected status"
        guest = lab.cluster.guests[150]
        assert (guest.node, guest.config_lock, guest.running) == ("pve1", "migrate", True)
        assert await disks(lab, "pve2", 150) == ["fast:150/vm-150-disk-0.raw"]
        unlock = {"delete": "lock", "skiplock": 1}
        assert (await lab.ask("PUT", "/nodes/pve1/qemu/150/config", unlock)).status == 200
        ended = [(await lab.finish(await move(lab, 150, "pve2", **params)))["exitstatus"] for _ in range(2)]
        assert ended == ["migration problems", "migration problems"]
        await lab.finish(await begin(lab, "/nodes/pve1/qemu/150/status/stop"))
        await lab.finish(await begin(lab, "/nodes/pve1/qemu/150/status/start"))
        assert (await lab.finish(await move(lab, 150, "pve2", **params)))["exitstatus"] == "OK"

    in_moves_lab(work)


def test_a_target_that_dies__costs_time_and_nothing_else() -> None:
    async def work(lab: Lab) -> None:
        upid = await move(lab, 152, "pve3", online=1, bwlimit=64, **{"with-local-disks": 1})
        await until(lab, lambda: len(lab.cluster.volumes.of_guest(152)) == 2)
        await offline("pve3", seconds=0)(lab)
        died = lab.cluster.clock.now()
        await until(lab, lambda: lab.cluster.guests[152].config_lock is None)
        assert 15 < lab.cluster.clock.now() - died < 45
        assert (await lab.finish(upid))["exitstatus"] == "migration problems"
        assert lab.cluster.clock.now() - died > 55
        guest = lab.cluster.guests[152]
        assert (guest.node, guest.running) == ("pve1", True)

    in_moves_lab(work)


def test_ha__moves_a_guest_some_rounds_later() -> None:
    async def work(lab: Lab) -> None:
        await managed(140)(lab)
        upid = await move(lab, 140, "pve2", online=1)
        assert (await lab.finish(upid))["exitstatus"] == "OK"
        assert lab.cluster.guests[140].node == "pve1"
        await until(lab, lambda: lab.cluster.ha.service_state("vm:140") == "migrate")
        assert (await row(lab, 140))["hastate"] == "migrate"
        await until(lab, lambda: lab.cluster.guests[140].node == "pve2")
        assert lab.cluster.ha.service_state("vm:140") == "migrate"
        await until(lab, lambda: lab.cluster.ha.service_state("vm:140") == "started")

    in_moves_lab(work)


def test_ha__brings_a_guest_back_from_where_a_strict_rule_forbids_it() -> None:
    async def work(lab: Lab) -> None:
        await managed(141)(lab)
        await on(141, "pve3")(lab)
        await rules(only=node_rule("vm:141", "pve1,pve3", strict=1))(lab)
        assert (await lab.finish(await move(lab, 141, "pve2", online=1)))["exitstatus"] == "OK"
        await until(lab, lambda: lab.cluster.guests[141].node == "pve2")
        await until(lab, lambda: lab.cluster.guests[141].node != "pve2")
        await until(lab, lambda: lab.cluster.ha.service_state("vm:141") == "started")
        assert lab.cluster.guests[141].node in ("pve1", "pve3")

    in_moves_lab(work)


def test_ha__looks_at_a_guest_that_became_its_own_on_the_way() -> None:
    async def work(lab: Lab) -> None:
        await on(141, "pve3")(lab)
        upid = await move(lab, 141, "pve2", online=1)
        await until(lab, lambda: lab.cluster.guests[141].config_lock == "migrate")
        await managed(141)(lab)
        await rules(only=node_rule("vm:141", "pve1,pve3", strict=1))(lab)
        assert (await lab.finish(upid))["exitstatus"] == "OK"
        await until(lab, lambda: lab.cluster.guests[141].node in ("pve1", "pve3"))
        assert [task.kind for task in lab.cluster.tasks.recent() if task.kind == "qmigrate"] == ["qmigrate"] * 2

    in_moves_lab(work, ha_seconds=0.1)


def test_ha__forgets_a_move_to_a_node_that_is_down() -> None:
    async def work(lab: Lab) -> None:
        await managed(140)(lab)
        await offline("pve3")(lab)
        assert (await lab.finish(await move(lab, 140, "pve3", online=1)))["exitstatus"] == "OK"
        await until(lab, lambda: lab.cluster.ha.manager.service("vm:140").request is None)
        await asyncio.sleep(30 * SCALE)
        assert lab.cluster.guests[140].node == "pve1"
        assert not [task for task in lab.cluster.tasks.recent() if task.kind == "qmigrate"]

    in_moves_lab(work)


def test_ha__forgets_a_move_of_a_guest_that_was_removed() -> None:
    async def work(lab: Lab) -> None:
        await managed(140)(lab)
        upid = await move(lab, 140, "pve3", online=1)
        lab.cluster.ha.remove("vm:140")
        assert (await lab.finish(upid))["exitstatus"] == "OK"
        assert "vm:140" not in lab.cluster.ha.manager.services

    in_moves_lab(work)


def test_ha__starts_the_guests_of_a_lost_node_elsewhere() -> None:
    """One that was being moved from there loses the lock that its worker has left behind."""

    async def work(lab: Lab) -> None:
        await managed(140, 142)(lab)
        await rules(only=node_rule("vm:142", "pve1", strict=1))(lab)
        guests, ha = lab.cluster.guests, lab.cluster.ha
        upid = await move(lab, 140, "pve2", online=1)
        await until(lab, lambda: guests[140].config_lock == "migrate")
        await offline("pve1", seconds=0)(lab)
        await until(lab, lambda: ha.service_state("vm:140") == "fence")
        await until(lab, lambda: guests[140].node != "pve1" and guests[140].running)
        assert guests[140].config_lock is None
        assert ":hamigrate:" in upid
        assert (ha.service_state("vm:142"), guests[142].node) == ("recovery", "pve1")
        lab.cluster.nodes["pve1"].online = True
        ha.manager.nudge()
        await until(lab, lambda: guests[142].running and ha.service_state("vm:142") == "started")

    in_moves_lab(work, fence_after_seconds=8.0, fence_seconds=8.0)


def test_ha__moves_partners_along() -> None:
    async def work(lab: Lab) -> None:
        await managed(140, 142)(lab)
        await on(140, "pve2")(lab)
        await rules(together=resource_rule("positive", "vm:140,vm:142"))(lab)
        await lab.finish(await move(lab, 140, "pve3", online=1))
        await until(lab, lambda: {lab.cluster.guests[vmid].node for vmid in (140, 142)} == {"pve3"})

    in_moves_lab(work)


def test_maintenance__moves_ha_guests_off_a_few_at_a_time_and_home_again() -> None:
    async def work(lab: Lab) -> None:
        vmids, cluster = (101, 117, 121, 140, 141, 142), lab.cluster
        await managed(*vmids)(lab)
        node = cluster.nodes["pve1"]
        node.maintenance, node.maintenance_since = True, cluster.clock.now()
        cluster.ha.manager.nudge()
        together = 0
        while any(cluster.guests[vmid].node == "pve1" for vmid in vmids):
            moving = [task for task in cluster.tasks.recent() if task.running and task.kind == "qmigrate"]
            together = max(together, len(moving))
            await asyncio.sleep(0.005)
        assert together == 4
        assert {cluster.guests[vmid].node for vmid in (102, 104)} == {"pve1"}
        await until(lab, lambda: all(cluster.ha.service_state(f"vm:{vmid}") == "started" for vmid in vmids))
        node.maintenance, node.maintenance_since = False, None
        cluster.ha.manager.nudge()
        await until(lab, lambda: all(cluster.guests[vmid].node == "pve1" for vmid in vmids))

    in_moves_lab(work)


def test_pending_values__are_shown_by_config_and_applied_by_a_stop() -> None:
    async def work(lab: Lab) -> None:
        async def memory(**params: Any) -> str:
            data = (await (await lab.ask("GET", "/nodes/pve1/qemu/160/config", params)).json())["data"]
            return str(data["memory"])

        assert (await lab.ask("PUT", "/nodes/pve1/qemu/160/config", {"memory": 48})).status == 200
        assert (await memory(), await memory(current=1)) == ("48", "32")
        await lab.finish(await begin(lab, "/nodes/pve1/qemu/160/status/reset"))
        assert await memory(current=1) == "32"
        lab.cluster.guests[160].acpi = False
        failed = await lab.finish(await begin(lab, "/nodes/pve1/qemu/160/status/reboot", timeout=6))
        assert failed["exitstatus"] == "VM quit/powerdown failed - got timeout"
        assert await memory(current=1) == "32"
        lab.cluster.guests[160].acpi = True
        await lab.finish(await begin(lab, "/nodes/pve1/qemu/160/status/reboot"))
        await until(lab, lambda: lab.cluster.guests[160].running)
        assert await memory(current=1) == "48"

    in_moves_lab(work, shutdown_seconds=1.0)


def test_restore__has_no_lock_and_leaves_a_stub_when_it_fails() -> None:
    async def work(lab: Lab) -> None:
        archive = {"archive": f"shared:backup/{ARCHIVE}"}
        upid = await begin(lab, "/nodes/pve2/qemu", vmid=171, storage="fast", unique=1, memory=64, **archive)
        stub = lab.cluster.guests[171]
        assert (stub.config_lock, stub.name) == (None, "VM 171")
        assert (await lab.finish(upid))["exitstatus"] == "OK"
        config = lab.cluster.guests[171].config
        assert (config["memory"], config["tags"], config["onboot"]) == ("64", "web", 1)
        assert (config["scsi0"], config["scsi1"]) == (
            "fast:171/vm-171-disk-0.qcow2,size=32M", "fast:171/vm-171-disk-1.raw,size=16M")
        assert "BC:24:11:AA:BB:01" not in config["net0"]
        failed = await begin(lab, "/nodes/pve3/qemu", vmid=172, **archive)
        assert "'only12' is not available on node 'pve3'" in (await lab.finish(failed))["exitstatus"]
        assert 172 in lab.cluster.guests
        assert lab.cluster.volumes.of_guest(172) == []
        again = await lab.ask("POST", "/nodes/pve3/qemu", {"vmid": 172, "storage": "fast", **archive})
        assert again.status == 500

    async def prepared(lab: Lab) -> None:
        await finished(lab)
        await running(101)(lab)
        await work(lab)

    in_moves_lab(prepared)
