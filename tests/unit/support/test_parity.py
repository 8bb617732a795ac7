# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The comparison of plays that ran in the worker process with the same plays run as modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.parity import differences, keep
from support.playbook import TaskRun

RESULT: dict[str, Any] = {"changed": True, "msg": "created in 3.2 s", "vms": [{"vmid": 100, "node": "pve1"}]}


def kept(folder: Path, *results: dict[str, Any], failed: bool = False) -> Path:
    """A folder with the results of a play for each of the results."""
    folder.mkdir()
    for result in results:
        keep(folder, [TaskRun("localhost", "create", failed, result)])
    return folder


def test_parity__does_not_compare_figures(tmp_path: Path) -> None:
    later = {**RESULT, "msg": "created in 14.7 s", "seconds": 14.7}
    assert differences(kept(tmp_path / "a", {**RESULT, "seconds": 3.2}), kept(tmp_path / "b", later)) == []


@pytest.mark.parametrize(
    ("other", "where"),
    [
        ({**RESULT, "changed": False}, "[0].result.changed: True and False"),
        ({**RESULT, "warnings": []}, "[0].result: only one has ['warnings']"),
        ({**RESULT, "vms": []}, "[0].result.vms: [{'vmid': 100, 'node': 'pve1'}] and []"),
        ({**RESULT, "vms": [{"vmid": "100", "node": "pve1"}]}, "[0].result.vms[0].vmid: 100 and '100'"),
    ],
)
def test_parity__names_what_differs(tmp_path: Path, other: dict[str, Any], where: str) -> None:
    (found,) = differences(kept(tmp_path / "a", RESULT), kept(tmp_path / "b", other))
    assert found.endswith(f".0.json: {where}")


def test_parity__does_not_compare_what_the_cluster_forgets_of_an_offline_node(tmp_path: Path) -> None:
    known = {**RESULT, "nodes": [{"node": "pve5", "online": False, "storages": [{"storage": "local"}]}]}
    warning = "pve5 cannot be reached, and the names of the VMs there are not known (126): one is treated as missing"
    forgotten = {**RESULT, "nodes": [{"node": "pve5", "online": False, "storages": []}], "warnings": [warning]}
    assert differences(kept(tmp_path / "a", known), kept(tmp_path / "b", forgotten)) == []


@pytest.mark.parametrize(("vms", "differ"), [([{"vmid": 100, "node": "pve2"}], 0), ([{"vmid": "100"}], 1)])
def test_parity__compares_keys_and_types_of_hosts_that_race(tmp_path: Path, vms: list[Any], differ: int) -> None:
    for name, result, hosts in (("a", RESULT, ("web-1", "web-2")), ("b", {**RESULT, "vms": vms}, ("web-2", "web-1"))):
        (tmp_path / name).mkdir()
        keep(tmp_path / name, [TaskRun(host, "create", False, result) for host in hosts])
    assert len(differences(tmp_path / "a", tmp_path / "b")) == differ


def test_parity__reports_plays_that_ran_one_way_only(tmp_path: Path) -> None:
    (found,) = differences(kept(tmp_path / "a", RESULT, RESULT), kept(tmp_path / "b", RESULT))
    assert found.endswith(".1.json: ran one way only")
