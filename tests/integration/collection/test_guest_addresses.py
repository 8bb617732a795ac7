# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The addresses of guests, through the module, while agents and the cluster answer oddly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hostile.changes import nested
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.event_query import counted

Start = Callable[..., SimulatedCluster]
Control = Callable[..., Controller]

GOOD = {"name": "eth0", "ip-addresses": [{"ip-address": "192.0.2.9"}]}


def guest(vmid: int, *interfaces: Any) -> dict[str, Any]:
    return {
        "vmid": vmid, "name": f"vm-{vmid}", "node": "pve1", "memory": 512, "status": "running",
        "config": {"agent": "1"}, "agent": {"interfaces": list(interfaces)},
    }  # fmt: skip


def with_guests(*guests: dict[str, Any]) -> dict[str, Any]:
    return {
        "nodes": [{"name": "pve1", "cores": 8, "memory": 8192}], "storages": [], "guests": list(guests),
        "roles": {"Automation": ["VM.Audit", "VM.GuestAgent.Audit", "VM.Monitor"]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("interfaces", "addresses", "reason"),
    [
        ([{"ip-addresses": [{"ip-address": "bogus"}]}], [], "its guest agent reported no matching address"),
        ([nested(40)], [], "its guest agent gave an answer that cannot be read"),
        ([{"ip-addresses": [{"prefix": 3}, {"ip-address": ""}]}, GOOD], ["192.0.2.9"], None),
    ],
)
def test_odd_answer_of_an_agent__concerns_no_other_guest(
    start: Start, control: Control, interfaces: list[Any], addresses: list[str], reason: str | None
) -> None:
    cluster = start(with_guests(guest(100, GOOD), guest(101, *interfaces)))
    cluster.advance(30)
    result = control(cluster).run("vm_address_info", vmids=[100, 101, 999])
    good, odd, absent = result["vms"]
    assert (good["address"], good["reason"]) == ("192.0.2.9", None)
    assert (odd["addresses"], odd["reason"]) == (addresses, reason)
    assert [each["name"] for each in (good, odd, absent)] == ["vm-100", "vm-101", None]
    # As other modules name them.
    facts = [each["canonical_facts"] for each in counted("vm_address_info", result)]
    assert facts == [{"vmid": 100, "name": "vm-100"}, {"vmid": 101, "name": "vm-101"}]


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("/cluster/resources", {"status": 500, "count": 1}),
        ("/cluster/resources", {"status": 596, "count": 3}),
        ("/cluster/resources", {"drop": "before", "count": 3}),
        ("/agent/", {"drop": "before", "count": 3}),
    ],
)
def test_failed_reading__is_one_without_news_while_the_module_waits(
    start: Start, control: Control, path: str, fault: dict[str, Any]
) -> None:
    cluster = start(with_guests(guest(100, GOOD)))
    cluster.advance(30)
    cluster.fault(method="GET", path=path, **fault)
    (vm,) = control(cluster).run("vm_address_info", vmids=[100], wait=600)["vms"]
    assert vm["address"] == "192.0.2.9"


def test_failed_readings__fail_the_module_when_the_time_is_over(start: Start, control: Control) -> None:
    cluster = start(with_guests(guest(100, GOOD)))
    cluster.fault(method="GET", path="/cluster/resources", status=500)
    failed = control(cluster).fail("ApiError", "vm_address_info", vmids=[100], wait=1)
    assert "GET /cluster/resources" in failed["msg"]
