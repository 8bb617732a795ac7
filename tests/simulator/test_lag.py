# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``/cluster/resources`` shows, and when: the lag that real clusters have and that clients go wrong on."""

from __future__ import annotations

from typing import Any

from simulator.lab import Lab, in_lab

ROUND = 10.0


def in_slow_lab(work: Any, version: str = "9.2") -> Any:
    """A lab whose time passes only when told to, but for the seconds that tasks take."""

    async def prepared(lab: Lab) -> Any:
        for name in ("create_seconds", "disk_seconds", "clone_seconds", "clone_seconds_per_gib", "delete_seconds"):
            setattr(lab.cluster.timing, name, 0.0)
        return await work(lab)

    return in_lab(version, prepared, time_scale=1.0)


async def row(lab: Lab, vmid: int) -> dict[str, Any] | None:
    answer = await (await lab.ask("GET", "/cluster/resources", {"type": "vm"})).json()
    return next((entry for entry in answer["data"] if entry["vmid"] == vmid), None)


async def done(lab: Lab, method: str, path: str, params: dict[str, Any] | None = None) -> None:
    answer = await (await lab.ask(method, path, params)).json()
    if answer["data"]:
        assert (await lab.finish(answer["data"]))["exitstatus"] == "OK"


NEW = {"vmid": 150, "name": "new", "memory": 1024, "tags": "a", "pool": "lab"}


def test_new_vm__has_no_name_and_no_sizes_until_the_next_round() -> None:
    async def work(lab: Lab) -> None:
        await done(lab, "POST", "/nodes/pve1/qemu", NEW)
        assert await row(lab, 150) == {
            "id": "qemu/150", "type": "qemu", "vmid": 150, "node": "pve1", "status": "unknown", "tags": "a",
            "pool": "lab",
        }
        lab.cluster.clock.skip(ROUND)
        seen = await row(lab, 150)
        assert seen is not None
        assert (seen["name"], seen["maxmem"], seen["status"]) == ("new", 1024 * 1024**2, "stopped")

    in_slow_lab(work)


def test_list__shows_what_qemu_says_of_a_vm_that_stands_still() -> None:
    async def work(lab: Lab) -> None:
        await done(lab, "POST", "/nodes/pve1/qemu", NEW)
        for action in ("start", "suspend"):
            await done(lab, "POST", f"/nodes/pve1/qemu/150/status/{action}")
        lab.cluster.clock.skip(ROUND)
        seen = await row(lab, 150)
        assert seen is not None
        assert (seen["status"], seen["mem"] > 0) == ("paused", True)
        current = await (await lab.ask("GET", "/nodes/pve1/qemu/150/status/current")).json()
        assert (current["data"]["status"], current["data"]["qmpstatus"]) == ("running", "paused")

    in_slow_lab(work)


def test_vm_under_creation__exists_with_a_lock_everywhere_at_once() -> None:
    async def work(lab: Lab) -> None:
        lab.cluster.timing.create_seconds = 0.3
        answer = await (await lab.ask("POST", "/nodes/pve1/qemu", NEW)).json()
        seen = await row(lab, 150)
        assert seen is not None
        assert (seen["status"], seen["lock"], "tags" in seen) == ("unknown", "create", False)
        listed = (await (await lab.ask("GET", "/nodes/pve1/qemu")).json())["data"]
        fresh = next(entry for entry in listed if entry["vmid"] == 150)
        assert (fresh["name"], fresh["maxmem"], fresh["cpus"], fresh["lock"]) == ("VM 150", 512 * 1024**2, 1, "create")
        taken = await lab.ask("GET", "/cluster/nextid", {"vmid": 150})
        assert (await taken.json())["errors"] == {"vmid": "VM 150 already exists"}
        await lab.finish(answer["data"])
        config = (await (await lab.ask("GET", "/nodes/pve1/qemu/150/config")).json())["data"]
        assert (config["name"], "lock" in config) == ("new", False)

    in_slow_lab(work)


def test_round_in_the_middle_of_a_create__leaves_the_placeholder_for_another_round() -> None:
    async def work(lab: Lab) -> None:
        lab.cluster.timing.create_seconds = 0.3
        answer = await (await lab.ask("POST", "/nodes/pve1/qemu", NEW)).json()
        lab.cluster.clock.skip(ROUND)
        await row(lab, 150)
        await lab.finish(answer["data"])
        seen = await row(lab, 150)
        assert seen is not None
        assert (seen["name"], seen["maxcpu"], seen["maxdisk"]) == ("VM 150", 1, 0)

    in_slow_lab(work)


def test_recycled_vmid__shows_the_old_vm_until_the_next_round() -> None:
    async def work(lab: Lab) -> None:
        await done(lab, "DELETE", "/nodes/pve1/qemu/104")
        assert await row(lab, 104) is None
        await done(lab, "POST", "/nodes/pve2/qemu", {"vmid": 104, "name": "reborn", "memory": 2048})
        seen = await row(lab, 104)
        assert seen is not None
        assert (seen["name"], seen["maxmem"], seen["node"]) == ("slow", 256 * 1024**2, "pve2")
        lab.cluster.clock.skip(ROUND)
        seen = await row(lab, 104)
        assert seen is not None
        assert (seen["name"], seen["maxmem"]) == ("reborn", 2048 * 1024**2)

    in_slow_lab(work)


def test_rename__is_late_and_new_tags_are_not() -> None:
    async def work(lab: Lab) -> None:
        await done(lab, "PUT", "/nodes/pve1/qemu/101/config", {"name": "renamed", "tags": "Z;a;a"})
        seen = await row(lab, 101)
        assert seen is not None
        assert (seen["name"], seen["tags"]) == ("web01", "a;z")
        current = (await (await lab.ask("GET", "/nodes/pve1/qemu/101/status/current")).json())["data"]
        assert current["name"] == "renamed"
        lab.cluster.clock.skip(ROUND)
        seen = await row(lab, 101)
        assert seen is not None
        assert seen["name"] == "renamed"

    in_slow_lab(work)


def test_two_workers__can_contradict_each_other_for_two_seconds() -> None:
    async def work(lab: Lab) -> None:
        statistics = lab.cluster.statistics
        statistics.view(0)
        await done(lab, "POST", "/nodes/pve1/qemu", NEW)
        # Right after the round one worker has looked already, the other still holds what it read before.
        lab.cluster.timing.worker_cache_seconds = 1000.0
        lab.cluster.clock.skip(ROUND)
        assert statistics.view(0).guests.get(150) is None
        statistics._workers[1].taken_at = float("-inf")
        assert statistics.view(1).guests[150].name == "new"
        lab.cluster.timing.worker_cache_seconds = 2.0
        assert statistics.view(0).guests[150].name == "new"

    in_slow_lab(work)


def test_used_space_of_storages__is_late_in_resources_and_fresh_at_the_node() -> None:
    async def work(lab: Lab) -> None:
        async def used(fresh: bool) -> int:
            path = "/nodes/pve1/storage/vmdata/status" if fresh else "/cluster/resources"
            data = (await (await lab.ask("GET", path)).json())["data"]
            if fresh:
                return int(data["used"])
            return int(next(entry["disk"] for entry in data if entry["id"] == "storage/pve1/vmdata"))

        before = await used(fresh=True)
        assert await used(fresh=False) == before
        await done(lab, "POST", "/nodes/pve1/qemu", {"vmid": 150, "scsi0": "vmdata:7"})
        assert await used(fresh=True) == before + 7 * 1024**3
        assert await used(fresh=False) == before
        lab.cluster.clock.skip(ROUND)
        assert await used(fresh=False) == before + 7 * 1024**3

    in_slow_lab(work)


def test_dead_nodes_rows__stay_until_they_expire() -> None:
    async def work(lab: Lab) -> None:
        node = lab.cluster.nodes["pve2"]
        node.online, node.offline_since = False, lab.cluster.clock.now()

        async def rows() -> dict[str, Any]:
            data = (await (await lab.ask("GET", "/cluster/resources")).json())["data"]
            return {entry["id"]: entry for entry in data}

        assert (await rows())["node/pve2"]["status"] == "online"
        lab.cluster.clock.skip(9)
        later = await rows()
        assert (later["node/pve2"]["status"], "cpu" in later["node/pve2"]) == ("offline", False)
        assert (later["qemu/103"]["name"], later["storage/pve2/vmdata"]["status"]) == ("remote", "available")
        lab.cluster.clock.skip(300)
        last = await rows()
        assert (last["qemu/103"]["status"], "name" in last["qemu/103"]) == ("unknown", False)
        assert last["storage/pve2/vmdata"]["status"] == "unknown"

    in_slow_lab(work)


def test_maintenance__shows_as_hastate_while_the_node_stays_online() -> None:
    async def work(lab: Lab) -> None:
        node = lab.cluster.nodes["pve3"]
        node.maintenance, node.maintenance_since = True, lab.cluster.clock.now()

        async def shown() -> tuple[str, str]:
            data = (await (await lab.ask("GET", "/cluster/resources", {"type": "node"})).json())["data"]
            entry = next(entry for entry in data if entry["node"] == "pve3")
            return entry["status"], entry["hastate"]

        assert await shown() == ("online", "online")
        lab.cluster.clock.skip(12)
        assert await shown() == ("online", "maintenance")
        assert (await lab.ask("POST", "/nodes/pve3/qemu", {"vmid": 150})).status == 200

    in_slow_lab(work)
