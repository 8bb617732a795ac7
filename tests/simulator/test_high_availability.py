# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HA manager: its slow hand, groups of release 8, and the gap between asked and done."""

from __future__ import annotations

import asyncio

import pytest
from simulator.lab import Lab, in_lab
from simulator.preparations import managed, running


def test_start_under_ha__is_done_long_before_the_vm_runs() -> None:
    async def work(lab: Lab) -> None:
        await managed(104, state="stopped")(lab)
        answer = await (await lab.ask("POST", "/nodes/pve1/qemu/104/status/start")).json()
        assert ":hastart:" in answer["data"]
        assert (await lab.finish(answer["data"]))["exitstatus"] == "OK"
        assert lab.cluster.guests[104].status == "stopped"
        for _ in range(200):
            await asyncio.sleep(0.01)
            if lab.cluster.guests[104].running:
                break
        assert lab.cluster.guests[104].running
        assert lab.cluster.ha.resources["vm:104"]["state"] == "started"

    in_lab("9.2", work, time_scale=0.01)


def test_ha_managed_at_creation__adds_the_resource_and_starts_the_vm() -> None:
    async def work(lab: Lab) -> None:
        answer = await (await lab.ask("POST", "/nodes/pve1/qemu", {"vmid": 150, "ha-managed": 1, "start": 1})).json()
        await lab.finish(answer["data"])
        assert lab.cluster.ha.resources["vm:150"]["state"] == "started"
        assert not lab.cluster.guests[150].running
        await asyncio.sleep(0.25)
        assert lab.cluster.guests[150].running

    in_lab("9.2", work, time_scale=0.01)


def test_removing_a_resource__takes_it_out_of_the_rules() -> None:
    async def work(lab: Lab) -> None:
        await managed(101, 104)(lab)
        rule = {"type": "resource-affinity", "rule": "apart", "resources": "vm:101,vm:104", "affinity": "negative"}
        assert (await lab.ask("POST", "/cluster/ha/rules", rule)).status == 200
        await lab.ask("DELETE", "/cluster/ha/resources/vm:101")
        row = (await (await lab.ask("GET", "/cluster/ha/rules/apart")).json())["data"]
        assert row["resources"] == "vm:104"
        assert row["errors"] == {"resources": ["rule is ineffective as there are less than two resources"]}

    in_lab("9.2", work)


def test_resource_that_is_removed_and_added_again__is_no_longer_in_state_error() -> None:
    async def work(lab: Lab) -> None:
        lab.cluster.set_config(lab.cluster.guests[104], vcpus=99)
        await lab.ask("POST", "/cluster/ha/resources", {"sid": "vm:104"})
        ha = lab.cluster.ha
        for _ in range(200):
            await asyncio.sleep(0.01)
            if ha.manager_state("vm:104") == "error":
                break
        assert ha.manager_state("vm:104") == "error"
        await lab.ask("DELETE", "/cluster/ha/resources/vm:104")
        await lab.ask("POST", "/cluster/ha/resources", {"sid": "vm:104"})
        assert ha.manager_state("vm:104") == "started"

    in_lab("9.2", work, time_scale=0.01)


def test_start_under_ha__fails_if_the_resource_is_removed_meanwhile() -> None:
    async def work(lab: Lab) -> None:
        await managed(104, state="stopped")(lab)
        answer = await (await lab.ask("POST", "/nodes/pve1/qemu/104/status/start")).json()
        await lab.ask("DELETE", "/cluster/ha/resources/vm:104")
        failed = "command 'ha-manager set vm:104 --state started' failed: exit code 255"
        assert (await lab.finish(answer["data"]))["exitstatus"] == failed

    in_lab("9.2", work, time_scale=0.1)


def test_disable_0__does_not_switch_a_rule_on() -> None:
    async def work(lab: Lab) -> None:
        await managed(101)(lab)
        rule = {"type": "node-affinity", "rule": "off", "resources": "vm:101", "nodes": "pve1", "disable": 1}
        await lab.ask("POST", "/cluster/ha/rules", rule)
        await lab.ask("PUT", "/cluster/ha/rules/off", {"type": "node-affinity", "disable": 0})
        assert (await (await lab.ask("GET", "/cluster/ha/rules/off")).json())["data"]["disable"] == 1
        await lab.ask("PUT", "/cluster/ha/rules/off", {"type": "node-affinity", "delete": "disable"})
        assert "disable" not in (await (await lab.ask("GET", "/cluster/ha/rules/off")).json())["data"]

    in_lab("9.2", work)


def test_vm_that_is_to_start_on_a_node_in_maintenance__is_moved_off_first() -> None:
    async def work(lab: Lab) -> None:
        node = lab.cluster.nodes["pve1"]
        node.maintenance, node.maintenance_since = True, 0.0
        await lab.ask("POST", "/cluster/ha/resources", {"sid": "vm:140", "state": "started"})
        await asyncio.sleep(0.3)
        moved = lab.cluster.guests[140]
        assert (moved.node, moved.running) == ("pve2", True)

    in_lab("9.2", work, time_scale=0.01)


def test_hastate__is_null_on_release_8_until_the_manager_has_looked() -> None:
    async def work(lab: Lab) -> None:
        await running(120)(lab)
        await lab.ask("POST", "/cluster/ha/resources", {"sid": "vm:120"})

        async def hastate() -> object:
            data = (await (await lab.ask("GET", "/cluster/resources", {"type": "vm"})).json())["data"]
            return next(row["hastate"] for row in data if row["vmid"] == 120)

        assert await hastate() is None
        lab.cluster.clock.skip(10)
        assert await hastate() == "started"

    in_lab("8.4", work, time_scale=1.0)


def test_vm_that_is_to_start_on_a_node_that_its_group_prefers_less__is_moved_first() -> None:
    async def work(lab: Lab) -> None:
        for name, stays in (("back", 0), ("stay", 1)):
            group = {"group": name, "nodes": "pve2:2,pve1:1", "nofailback": stays}
            assert (await lab.ask("POST", "/cluster/ha/groups", group)).status == 200
        for vmid, name in ((104, "back"), (120, "stay")):
            await lab.ask("POST", "/cluster/ha/resources", {"sid": f"vm:{vmid}", "group": name})
        guests = lab.cluster.guests
        for _ in range(500):
            await asyncio.sleep(0.01)
            if guests[104].running and guests[120].running:
                break
        kinds = [task.kind for task in lab.cluster.tasks.recent() if str(task.id) == "104"]
        assert (guests[104].node, sorted(kinds)) == ("pve2", ["qmigrate", "qmstart"])
        assert guests[120].node == "pve1"

    in_lab("8.4", work, time_scale=0.01)


def test_groups_and_resources__are_checked_as_release_8_does() -> None:
    async def work(lab: Lab) -> None:
        async def answer(method: str, path: str, **params: object) -> str:
            response = await lab.ask(method, f"/cluster/ha/{path}", params)
            return str(response.reason)

        assert await answer("POST", "groups", group="g1", nodes="pve1:2,pve2", restricted=1) == "OK"
        assert await answer("POST", "resources", sid="vm:120", group="none", state="stopped") == "OK"
        listed = (await (await lab.ask("GET", "/cluster/ha/resources")).json())["data"]
        alone = (await (await lab.ask("GET", "/cluster/ha/resources/vm:120")).json())["data"]
        assert listed[0]["errors"] == {"group": "group 'none' does not exist"}
        assert "errors" not in alone
        failed = "update ha group failed:"
        assert [
            await answer("PUT", "resources/vm:120", group="none"),
            await answer("PUT", "groups/none", restricted=0),
            await answer("PUT", "groups/g1", delete="nodes"),
            await answer("PUT", "groups/g1", delete="colour"),
            await answer("DELETE", "resources/vm:101"),
        ] == [
            "HA group 'none' does not exist",
            f"{failed} no such ha group 'none'",
            f"{failed} unable to delete required option 'nodes'",
            f"{failed} no such option 'colour'",
            "cannot delete service 'vm:101', not HA managed!",
        ]
        group = (await (await lab.ask("GET", "/cluster/ha/groups/g1")).json())["data"]
        assert (group["restricted"], set(group["nodes"].split(","))) == (1, {"pve1:2", "pve2"})

    in_lab("8.4", work)


@pytest.mark.parametrize(("version", "seconds"), [("9.2", 18), ("8.4", 105)])
def test_end_of_maintenance__shows_late_and_later_on_release_8(version: str, seconds: int) -> None:
    async def work(lab: Lab) -> None:
        async def maintained() -> tuple[str, bool]:
            told = (await (await lab.ask("GET", "/cluster/ha/status/manager_status")).json())["data"]
            rows = (await (await lab.ask("GET", "/cluster/ha/status/current")).json())["data"]
            state = next(row["status"] for row in rows if row["id"] == "lrm:pve3")
            return told["manager_status"]["node_status"]["pve3"], "(maintenance mode" in state

        await managed(120)(lab)
        for on in (True, False):
            body = {"maintenance": on, "known": on}
            assert (await lab.client.put("/sim/nodes/pve3", json=body)).status == 200
        lab.cluster.clock.skip(seconds - 2)
        assert await maintained() == ("maintenance", True)
        lab.cluster.clock.skip(4)
        assert await maintained() == ("online", False)

    in_lab(version, work, time_scale=1.0)
