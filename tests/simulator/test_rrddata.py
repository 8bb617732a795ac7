# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The statistics of nodes and guests have the form of recorded ones, and the values of the description."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.build import build
from simulated_cluster.cluster import Cluster
from simulated_cluster.load import guest_rows, node_rows
from simulator.lab import Lab, in_lab

RECORDED = Path(__file__).parents[1] / "recordings/9.2"


def made(version: str = "9.2") -> Cluster:
    return build({
        "version": version,
        "nodes": [{"name": name, "cores": 8, "memory": 8192, "load": {"cpu": [0.1]}} for name in ("pve1", "pve2")],
        "storages": [{"name": "shared", "type": "rbd", "shared": True, "size": 100}],
        "guests": [{"vmid": 101, "node": "pve1", "cores": 4, "memory": 1024, "status": "running",
                    "load": {"cpu": [None, 0.2, 0.8], "over": 3 * 3600}}],
    })  # fmt: skip


def recorded(name: str) -> list[dict[str, Any]]:
    body = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))["body"]
    rows: list[dict[str, Any]] = (json.loads(body) if isinstance(body, str) else body)["data"]
    return rows


@pytest.mark.parametrize("kind", ["node", "vm"])
def test_rows__have_the_keys_and_times_of_recorded_ones(kind: str) -> None:
    cluster = made()
    rows = node_rows(cluster, cluster.nodes["pve1"], "hour")
    if kind == "vm":
        rows = guest_rows(cluster, cluster.guests[101], "hour")
    expected = recorded(f"move/move-{kind}-rrddata-hour")

    assert set(expected[-1]) <= set(rows[-1])
    assert [row["time"] - rows[0]["time"] for row in rows] == [row["time"] - expected[0]["time"] for row in expected]


@pytest.mark.parametrize(
    ("version", "timeframe", "step", "count"),
    [("9.2", "day", 60, 1440), ("9.2", "week", 1800, 336), ("8.4", "day", 1800, 70), ("8.4", "week", 10_800, 70)],
)
def test_periods__have_the_steps_of_the_release(version: str, timeframe: str, step: int, count: int) -> None:
    cluster = made(version)
    rows = guest_rows(cluster, cluster.guests[101], timeframe)

    assert len(rows) == count
    assert rows[1]["time"] - rows[0]["time"] == step
    assert ("memhost" in rows[-1], "pressurecpusome" in rows[-1]) == ((version == "9.2"),) * 2


def test_values__are_those_of_the_description_and_unknown_before() -> None:
    cluster = made()
    values = [row.get("cpu") for row in guest_rows(cluster, cluster.guests[101], "day")]

    assert values[-1] == 0.8
    assert values[-90] == 0.2
    assert values[-150] is None
    assert values[0] is None


def test_node__includes_the_guests_that_were_there_at_each_time() -> None:
    cluster = made()
    guest = cluster.guests[101]
    guest.left.append((cluster.clock.now() - 1800, "pve1"))
    guest.node = "pve2"

    old = [row["cpu"] for row in node_rows(cluster, cluster.nodes["pve1"], "hour")]
    new = [row["cpu"] for row in node_rows(cluster, cluster.nodes["pve2"], "hour")]

    # The first row may be older than the hour for which the guest's load is 0.8.
    assert (old[2], old[-1]) == (pytest.approx(0.5), pytest.approx(0.1))
    assert (new[2], new[-1]) == (pytest.approx(0.1), pytest.approx(0.5))


def test_guest_that_is_off__has_only_its_size() -> None:
    cluster = made()
    cluster.guests[101].status = "stopped"

    assert set(guest_rows(cluster, cluster.guests[101], "hour")[-1]) == {"time", "maxcpu", "maxmem", "maxdisk"}


def test_time_of_a_sample__is_when_it_ends() -> None:
    cluster = made()
    now, guest = cluster.clock.now(), cluster.guests[101]
    guest.load.until, guest.load.over, guest.load.values = now, 240.0, {"cpu": [None, 0.2, 0.4, 0.6]}

    last = guest_rows(cluster, guest, "hour")[-1]

    assert now - 60 < last["time"] <= now
    assert last["cpu"] in (0.4, 0.6)


@pytest.mark.parametrize("version", ["9.2", "8.4"])
def test_time_in_which_a_node_was_off__has_no_values(version: str) -> None:
    cluster = made(version)
    node, now = cluster.nodes["pve1"], int(cluster.clock.now())
    node.down.append((now - 1500, now - 600))

    for rows in (node_rows(cluster, node, "hour"), guest_rows(cluster, cluster.guests[101], "hour")):
        assert all((len(row) == 1) == (now - 1500 <= row["time"] - 30 < now - 600) for row in rows)


def test_guest__is_not_known_before_it_existed() -> None:
    cluster = made()
    guest = cluster.guests[101]
    guest.load.values, guest.measured_since = {"cpu": [0.8]}, cluster.clock.now() - 600

    rows = guest_rows(cluster, guest, "hour")

    assert {len(row) for row in rows[:-11]} == {1}
    assert rows[-5]["cpu"] == 0.8
    assert node_rows(cluster, cluster.nodes["pve1"], "hour")[10]["cpu"] == pytest.approx(0.1)


def test_newest_sample__is_left_out_while_it_is_empty() -> None:
    for version, count in (("9.2", 59), ("8.4", 60)):
        cluster = made(version)
        cluster.nodes["pve1"].down.append((cluster.clock.now() - 120, cluster.clock.now()))
        rows = node_rows(cluster, cluster.nodes["pve1"], "hour")
        assert len(rows) == count


@pytest.mark.parametrize(("version", "folder"), [("9.2", "pve-vm-9.0"), ("8.4", "pve2-vm")])
def test_statistics_of_a_guest__are_the_same_on_every_node_and_need_no_config(version: str, folder: str) -> None:
    async def work(lab: Lab) -> None:
        async def answer(node: str, vmid: int) -> tuple[int, str]:
            response = await lab.ask("GET", f"/nodes/{node}/qemu/{vmid}/rrddata", {"timeframe": "hour"})
            return response.status, str(response.reason if response.status != 200 else await response.text())

        assert await answer("pve2", 101) == await answer("pve1", 101)
        status, reason = await answer("pve1", 9999)
        assert (status, reason.rpartition("opening ")[2]) == (
            500, f"'/var/lib/rrdcached/db/{folder}/9999': No such file or directory")

    in_lab(version, work)
