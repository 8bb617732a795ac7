# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes are balanced by what they used: few moves, with the numbers, and none afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, ModuleServer
from support.endings import ENDINGS, playbook
from support.versions import both_versions
from support.waiting import until

from .conftest import container, on, writes

IDLE = {"cpu": [0.01], "memory": [0.5]}
BUSY = {"cpu": [0.95], "memory": [0.5]}
BY_USE = {"goals": ["balance"], "balance": {"by": "used"}}


def description() -> dict[str, Any]:
    """pve1 has two busy guests of 4 cores and two idle ones; pve2 and pve3 have one idle guest each."""
    guests = [(101, "pve1", BUSY), (102, "pve1", BUSY), (103, "pve1", IDLE), (104, "pve1", IDLE),
              (201, "pve2", IDLE), (301, "pve3", IDLE)]  # fmt: skip
    return {
        "nodes": [
            {"name": name, "cores": 8, "memory": 65536, "load": {"cpu": [0.02], "memory": [0.1]}}
            for name in ("pve1", "pve2", "pve3")
        ],
        "storages": [{"name": "shared", "type": "rbd", "shared": True, "size": 2000}],
        "guests": [
            {
                "vmid": vmid,
                "name": f"vm{vmid}",
                "node": node,
                "cores": 4,
                "memory": 4096,
                "status": "running",
                "disks": {"scsi0": "shared:8"},
                "load": load,
            }
            for vmid, node, load in guests
        ],
    }


@pytest.fixture
def cluster(version: str) -> Iterator[SimulatedCluster]:
    with SimulatedCluster.start(description(), version=version, time_scale=0.02) as running:
        yield running


def balance(controller: Controller, **more: Any) -> dict[str, Any]:
    result: dict[str, Any] = controller.run("cluster_rebalance", **{**BY_USE, **more})
    assert not result.get("failed"), result["msg"]
    return result


@both_versions
def test_busy_node__gives_away_one_guest_and_says_why(cluster: SimulatedCluster, controller: Controller) -> None:
    result = balance(controller)

    (move,) = result["moves"]
    assert on(cluster, move["to"]) >= {move["vmid"]}
    assert move["vmid"] in (101, 102)
    assert move["why"] == (
        f"pve1 used 98% CPU (p95 of 24 h); without vm{move['vmid']} 50%; {move['to']} goes from 2% to 50%"
    )
    assert result.get("warnings", []) == []


@both_versions
def test_second_run__moves_nothing_although_the_past_of_the_node_is_the_same(
    cluster: SimulatedCluster, control: Callable[[], Controller]
) -> None:
    moved = {move["vmid"] for move in balance(control())["moves"]}
    for wait in (30, 7200, 7200, 80_000):
        cluster.advance(wait)
        cluster.reset_requests()

        again = balance(control(), cooldown=0)

        assert (again["changed"], again["plan"]["moves"], writes(cluster)) == (False, [], [])
    assert len(moved) == 1


def test_clocks_that_differ__and_a_reboot_move_nothing_more(
    cluster: SimulatedCluster, control: Callable[[], Controller]
) -> None:
    cluster.set_node("pve1", clock_offset=300)
    cluster.set_node("pve3", clock_offset=-600)
    cluster.set_node("pve2", online=False)
    cluster.advance(3 * 3600)
    cluster.set_node("pve2", online=True)

    assert len(balance(control())["moves"]) == 1
    for wait in (60, 1700, 1800, 3600, 20_000):
        cluster.advance(wait)
        assert balance(control(), cooldown=0)["moves"] == []


@both_versions
def test_guests_of_one_size__are_not_balanced_by_what_is_allocated(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    result = balance(controller, goals=["balance"], balance={"by": "allocated", "threshold": 0.4})

    assert not result["changed"]


def test_balance__sets_the_goal(cluster: SimulatedCluster, controller: Controller) -> None:
    result = controller.run("cluster_rebalance", check=True, balance={"by": "used"})

    assert result["plan"]["goal"] == "repair, balance by what is used"
    assert len(result["plan"]["moves"]) == 1


def test_requests__are_one_for_each_node_and_each_guest_of_a_busy_node(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    controller.run("cluster_rebalance", check=True, **BY_USE)
    asked = sorted(r["path"] for r in cluster.requests() if r["path"].endswith("/rrddata"))

    guests = [f"/nodes/pve1/qemu/{vmid}/rrddata" for vmid in (101, 102, 103, 104)]
    assert asked == sorted([*guests, *(f"/nodes/{name}/rrddata" for name in ("pve1", "pve2", "pve3"))])


@both_versions
def test_peak_of_an_hour__moves_nothing(cluster: SimulatedCluster, controller: Controller) -> None:
    for vmid in (101, 102):
        cluster.set_guest(vmid, load={"cpu": [0.01] * 23 + [0.95]})

    assert not balance(controller)["changed"]


@both_versions
def test_load_that_is_over__moves_nothing(cluster: SimulatedCluster, controller: Controller) -> None:
    for vmid in (101, 102):
        cluster.set_guest(vmid, load={"cpu": [0.95] * 20 + [0.01] * 4})

    assert not balance(controller)["changed"]


def test_peaks_at_different_times__fit_on_one_node(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.set_guest(101, load={"cpu": [0.95, 0.01]})
    cluster.set_guest(102, load={"cpu": [0.01, 0.95]})

    assert not balance(controller)["changed"]


@both_versions
def test_node_without_statistics__takes_no_part(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.set_node("pve2", load={"cpu": [None] * 20 + [0.02] * 4})

    result = balance(controller)

    assert [move["to"] for move in result["moves"]] == ["pve3"]
    assert any("is not known of pve2" in text for text in result["warnings"])


def test_user_who_may_not_read_what_nodes_used__moves_nothing(
    modules: ModuleServer, tmp_path: Path, version: str
) -> None:
    privileges = ["VM.Audit", "VM.Migrate", "Datastore.Audit", "Pool.Audit"]
    rights = {
        "roles": {"Mover": privileges, "Auditor": ["Sys.Audit"]},
        "users": [{"name": "mover@pve"}],
        "tokens": [{"id": "mover@pve!ci", "secret": "11111111-2222-3333-4444-555555555555"}],
        "acl": [
            {"path": "/", "user": "mover@pve", "role": "Mover"},
            {"path": "/", "token": "mover@pve!ci", "role": "Mover"},
        ],
    }
    with SimulatedCluster.start({**description(), **rights}, time_scale=0.02) as cluster:
        environment = {
            **cluster.environment(),
            "PROXMOX_USER": "mover@pve",
            "PROXMOX_TOKEN_ID": "ci",
            "PROXMOX_TOKEN_SECRET": "11111111-2222-3333-4444-555555555555",
        }
        result = balance(Controller(modules, tmp_path, environment))

        assert result["moves"] == []
        assert any("is not known of pve1, pve2, pve3" in text for text in result["warnings"])


@both_versions
def test_containers__are_measured(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.add_guest(**{**container(), "cores": 4, "load": BUSY})
    for vmid in (101, 102):
        cluster.set_guest(vmid, load={"cpu": [0.5]})

    result = balance(controller, containers="restart")

    assert [move["vmid"] for move in result["moves"]] == [101, 102]
    assert result["usage"]["nodes"]["pve1"]["cpu"]["before"] == pytest.approx(0.995, abs=0.01)
    assert result["usage"]["nodes"]["pve1"]["cpu"]["after"] == pytest.approx(0.495, abs=0.01)


def test_pressure__moves_the_guest_that_causes_it(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.set_node("pve1", load={"cpu": [0.02], "memory": [0.1], "pressure_cpu": [60]})

    result = balance(controller, balance={"by": "pressure"})

    (move,) = result["moves"]
    assert move["vmid"] in (101, 102)
    assert move["why"].startswith("pve1 had 60% cpu pressure (p95 of 24 h)")


@both_versions
def test_advice__has_sizes_and_the_options_that_would_apply_them(
    cluster: SimulatedCluster, controller: Controller, version: str
) -> None:
    cluster.set_guest(101, load={"cpu": [0.05], "memory": [0.1], "over": 604_800})
    cluster.set_node("pve3", load={"memory": [0.5 + 0.01 * day for day in range(7)], "over": 604_800})
    cluster.set_node("pve1", load={"cpu": [0.02], "over": 604_800})
    for vmid in (102, 103, 104):
        cluster.set_guest(vmid, load={"cpu": [0.05], "memory": [0.5], "over": 604_800})

    result = controller.run("capacity_info", memory=1024, advice=True)

    (size,) = (each for each in result["right_sizes"] if (each["vmid"], each["resource"]) == (101, "cpu"))
    assert (size["configured"], size["suggested"]) == (4, 1)
    assert size["options"] == {"vmid": 101, "cores": 1, "sockets": 1}
    assert [(each["node"], each["resource"]) for each in result["full_in_days"]] == [("pve3", "memory")]
    ratios = {(each["node"], each["resource"]): each for each in result["overcommit"]}
    # 16 vCPUs of 8 use 0.96: at a ratio of 11.6 they would use 70 %.
    assert ratios["pve1", "cpu"]["allocated"] == 2
    assert ratios["pve1", "cpu"]["suggested"] == pytest.approx(11.6, abs=0.2)
    assert ("pve2", "cpu") not in ratios, "less than half of its week is known"
    used = {each["node"]: each["fit"] for each in result["as_used"]["nodes"]}
    assert result["as_used"]["total"] == sum(used.values())
    assert used["pve2"] >= used["pve1"] > 0
    assert 25 <= result["full_in_days"][0]["days"] <= 35

    changed = controller.run("qemu_schedule", name="vm101", update=True, check=True, **size["options"])
    assert changed["vms"][0]["actions"] == ["update"], changed
    cluster.reset_requests()
    assert "right_sizes" not in controller.run("capacity_info", memory=1024)
    assert not [r for r in cluster.requests() if r["path"].endswith("/rrddata")]


def test_guests_that_the_ha_manager_balances__are_left_to_it(
    modules: ModuleServer, tmp_path: Path, version: str
) -> None:
    crs = {"ha": "dynamic", "ha-auto-rebalance": 1}
    ha = {"resources": [{"sid": "vm:101"}, {"sid": "vm:102"}]}
    with SimulatedCluster.start({**description(), "options": {"crs": crs}, "ha": ha}, time_scale=0.02) as cluster:
        result = balance(Controller(modules, tmp_path, cluster.environment()))

        assert result["moves"] == []
        assert on(cluster, "pve1") == {101, 102, 103, 104}
        assert any("the guests that it manages are left to it" in text for text in result["warnings"])


def test_metrics_of_the_site__are_used_instead_of_statistics(cluster: SimulatedCluster, controller: Controller) -> None:
    nodes = {
        "pve1": {"cpu": 0.3},
        "pve2": {"cpu": [0.9, 0.95]},
        "pve3": {"cpu": 0.1, "memory": 6000},
        "other": {"cpu": 1},
    }
    guests = {"vm201": {"cpu": [0.9]}, "999": {"cpu": 1}}

    result = balance(controller, balance={"by": "used", "metrics": {"nodes": nodes, "guests": guests}})

    (move,) = result["moves"]
    assert (move["vmid"], move["to"]) == (201, "pve3")
    assert move["why"] == "pve2 used 95% CPU (p95 of 24 h); without vm201 50%; pve3 goes from 10% to 55%"
    assert not {r["path"] for r in cluster.requests()} & {f"/nodes/{name}/rrddata" for name in nodes}


@pytest.mark.parametrize("lists", [False, True])
def test_metrics_of_the_site__move_nothing_in_a_later_run(
    cluster: SimulatedCluster, controller: Controller, lists: bool
) -> None:
    def metrics(*loads: tuple[float, float]) -> dict[str, Any]:
        """The loads of the nodes before the move and after it, of which three hours of a day are seen."""
        curves = ([before] * 42 + [after] * 6 if lists else before for before, after in loads)
        nodes = {name: {"cpu": curve} for name, curve in zip(("pve1", "pve2", "pve3"), curves, strict=True)}
        return {"nodes": nodes, "guests": {"201": {"cpu": 0.9}, "101": {"cpu": 0.5}, "102": {"cpu": 0.5}}}

    before = metrics((0.3, 0.3), (0.95, 0.95), (0.1, 0.1))
    (move,) = balance(controller, cooldown=0, balance={"by": "used"}, metrics=before)["moves"]
    cluster.advance(3 * 3600)
    after = metrics((0.3, 0.3), (0.95, 0.5), (0.1, 0.55))
    second = balance(controller, cooldown=0, balance={"by": "used"}, metrics=after)

    assert (move["vmid"], move["to"], second["moves"]) == (201, "pve3", [])
    aside = [text.split()[0] for text in second["usage"]["waits"] if "takes no part" in text]
    assert aside == ([] if lists else ["pve2", "pve3"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"balance": {"window": 60}}, "balance.window: 60 is not possible, expected 600 to 604800"),
        ({"balance": {"by": "used", "percentile": 0}}, "balance.percentile: 0"),
        ({"balance": {"by": "used", "hold": 90_000}}, "balance.hold: 90000 is more than the window"),
        ({"balance": {"margin": 0.1}, "margin": 0.1}, "balance.margin: is also given as margin"),
        (
            {"balance": {"by": "used", "metrics": {"nodes": {"pve1": {"cpu": [0.5, "much"]}}}}},
            "balance.metrics.nodes.pve1.cpu[1]: 'much' is not valid, expected a number of at least 0",
        ),
        (
            {"balance": {"by": "used", "metrics": {"guests": {"101": {"cpu": 93}}}}},
            "balance.metrics.guests.101.cpu: 93 is not valid, expected a fraction from 0 to 1, not a percentage",
        ),
        (
            {"balance": {"by": "used", "metrics": {"nodes": {"pve1": {"load": 1}}}}},
            "balance.metrics.nodes.pve1.load: is not possible, expected cpu, memory, cpu_pressure",
        ),
        ({"balance": {"hold": 600}}, "balance.hold: has no effect with by: allocated"),
    ],
)
def test_options__that_are_not_possible(
    cluster: SimulatedCluster, controller: Controller, options: dict[str, Any], message: str
) -> None:
    result = controller.run("cluster_rebalance", **options)

    assert (result["failed"], result["error_code"]) == (True, "InvalidRequest")
    assert message in result["msg"]
    assert not cluster.requests()


def test_guests__are_read_once_an_hour(cluster: SimulatedCluster, controller: Controller) -> None:
    asked = []
    for wait in (0, 600, 3600):
        cluster.advance(wait)
        cluster.reset_requests()
        result = controller.run("cluster_rebalance", check=True, **BY_USE)
        assert len(result["plan"]["moves"]) == 1
        asked.append(sum(r["path"].endswith("/rrddata") for r in cluster.requests()))

    assert asked == [7, 3, 7], "the nodes each time, and four guests"


def test_run_that_is_killed__leaves_nothing_that_another_controller_moves_again(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    for vmid in (101, 102, 103):
        cluster.set_guest(vmid, load={"cpu": [0.6]})
    cluster.fault(method="POST", path="/migrate$", task_held=True)
    task = {"qemu_scheduler.proxmox.cluster_rebalance": {**BY_USE, "parallel": {"cluster": 1}}}
    killed = "`SIGKILL` to `ansible-playbook`"
    with playbook(killed, task, cluster.environment(), "direct") as running:
        running.wait_for(lambda: writes(cluster))
        ENDINGS[killed](running)
        running.wait()
    cluster.clear_faults()
    until(lambda: len(on(cluster, "pve1")) == 3)

    second, third = balance(controller), balance(controller, cooldown=0)

    assert len(second["moves"]) == 1
    assert third["moves"] == []
    moved = [call for call in writes(cluster) if call.endswith("/migrate")]
    assert len(moved) == len(set(moved)) == 2, "no guest twice"
