# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vmid_pick in all its forms."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, [103]),
        ({"count": 3}, [103, 104, 105]),
        ({"count": 8}, [103, 104, 105, 106, 107, 108, 109, 111]),
        ({"exclude": [103, 105], "count": 2}, [104, 106]),
        ({"vmid_range": "500-600"}, [500]),
        ({"vmid_range": "100-104,200", "count": 3}, [103, 104, 200]),
        ({"vmid_regex": "(12[0-9]|130)", "count": 2}, [120, 121]),
        ({"vmid_regex": "1.3"}, [103]),
        ({"vmid_regex": "9[0-9]{8}", "exclude": [900000000]}, [900000001]),
        ({"vmid_range": "100-199", "vmid_regex": ".*7"}, [107]),
        ({"context": {"vmid.qemu-scheduler/range": "110-120"}}, [111]),
        ({"context": {"vmid.qemu-scheduler/regex": "10[0-3]"}}, [103]),
    ],
)
def test_lowest_free_vmids__are_picked(planner: Controller, asked: dict[str, Any], expected: list[int]) -> None:
    picked = planner.run("vmid_pick", **asked)
    assert (picked["vmids"], picked["vmid"], picked["changed"]) == (expected, expected[0], False)
    assert [type(vmid) for vmid in picked["vmids"]] == [int] * len(expected)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"vmid_range": "100-102"}, "NoVMIDAvailable"),
        ({"vmid_range": "100-104", "count": 3}, "NoVMIDAvailable"),
        ({"vmid_range": "103-103", "exclude": [103]}, "NoVMIDAvailable"),
        ({"vmid_regex": "10[0-2]"}, "NoVMIDAvailable"),
        ({"vmid_range": "abc"}, "InvalidRequest"),
        ({"vmid_range": "150-100"}, "InvalidRequest"),
        ({"vmid_regex": "("}, "InvalidRequest"),
        ({"count": 0}, "InvalidRequest"),
        ({"context": {"vmid.qemu-scheduler/range": "1-5"}, "vmid_range": "100-200"}, "InvalidRequest"),
    ],
)
def test_what_cannot_be_picked__is_told(planner: Controller, asked: dict[str, Any], code: str) -> None:
    assert planner.fail(code, module="vmid_pick", **asked)["msg"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"vmid_range": "100-102"}, "no free VMID in VMID range 100-102: all 3 are taken"),
        (
            {"vmid_range": "100-104", "count": 3},
            "only 2 of 3 VMIDs are available; once these are taken, there is "
            "no free VMID in VMID range 100-104: all 5 are taken",
        ),
    ],
)
def test_that_too_few_are_free__is_told_of_no_vm(planner: Controller, asked: dict[str, Any], told: str) -> None:
    assert planner.fail("NoVMIDAvailable", module="vmid_pick", **asked)["msg"] == told


@pytest.mark.parametrize("regex", ["(1*)*0", "(.*)*.*3", "(1|11|111)*[0-9]{2}"])
def test_pattern_made_to_backtrack__is_answered_or_refused(planner: Controller, regex: str) -> None:
    result = planner.run("vmid_pick", vmid_regex=regex)
    assert result.get("error_code") in (None, "InvalidRequest", "NoVMIDAvailable")


@both_versions
def test_picking__creates_and_reserves_nothing(controller: Controller, cluster: SimulatedCluster) -> None:
    first, second = (controller.run("vmid_pick", count=2) for _run in range(2))
    assert first["vmids"] == second["vmids"]
    assert {r["method"] for r in cluster.requests()} == {"GET"}


def test_datacenters_bounds__hold_where_nothing_else_is_said(start: Any, control: Any) -> None:
    cluster = start(
        {
            "next_id": {"lower": 5000, "upper": 5002},
            "nodes": [{"name": "pve1", "cores": 4, "memory": 8192}],
            "guests": [{"vmid": 5000, "name": "a", "node": "pve1", "memory": 512}],
        }
    )
    controller = control(cluster)
    assert controller.run("vmid_pick")["vmids"] == [5001]
    assert controller.run("vmid_pick", vmid_range="100-200")["vmids"] == [100]
    controller.fail("NoVMIDAvailable", module="vmid_pick", count=2)
