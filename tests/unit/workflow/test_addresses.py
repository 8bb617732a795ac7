# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the addresses that guest agents tell count, and how long they are waited for."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import ApiError, PermissionDenied
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.answers import failure_of_answer
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.shapes import check_shape
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.addresses import (
    usable_addresses,
    wait_for_addresses,
)


def interface(*addresses: str) -> dict[str, Any]:
    return {"name": "eth0", "ip-addresses": [{"ip-address": address} for address in addresses]}


class Agents:
    """A cluster of running guests, and the clock by which their agents come up: VMID to (second, addresses)."""

    def __init__(self, guests: Mapping[int, tuple[float, list[str]]], refusal: Exception | None = None) -> None:
        self._guests = guests
        self._refusal = refusal or ApiError("QEMU guest agent is not running")
        self.now = 0.0
        self.asked: list[int] = []

    def get(self, path: str, params: Mapping[str, Any] | None = None, /, **more: Any) -> Any:
        if path == "/cluster/resources":
            return [{"vmid": vmid, "node": "pve1"} for vmid in self._guests]
        vmid = int(path.split("/")[4])
        self.asked.append(vmid)
        second, addresses = self._guests[vmid]
        if self.now < second:
            raise self._refusal
        return {"result": [interface(*addresses)]}

    def server_time(self) -> float | None:
        return None

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, vmids: list[int], seconds: float) -> list[dict[str, Any]]:
        return wait_for_addresses(self, vmids, [], seconds, self.clock, self.sleep)


def test_addresses_of_the_loopback_and_of_the_link__do_not_count() -> None:
    found = usable_addresses([interface("127.0.0.1", "::1"), interface("fe80::1%eth0", "169.254.1.1", "192.0.2.1")], [])
    assert found == ["192.0.2.1"]


def test_multicast_and_unspecified_addresses__do_not_count() -> None:
    found = usable_addresses([interface("0.0.0.0", "::", "224.0.0.1", "ff02::1", "192.0.2.1")], [])
    assert found == ["192.0.2.1"]


@pytest.mark.parametrize("odd", ["bogus", "", 12, None, [], {}])
def test_what_is_no_address__is_passed_over(odd: object) -> None:
    rows = [{"ip-address": odd}, {"prefix": 24}, odd, {"ip-address": "192.0.2.1"}]
    assert usable_addresses([odd, {"ip-addresses": odd}, {"ip-addresses": rows}], []) == ["192.0.2.1"]
    assert usable_addresses(odd, []) == []


def test_ipv4__comes_before_ipv6_and_else_the_guests_order_is_kept() -> None:
    found = usable_addresses([interface("2001:db8::1", "192.0.2.9"), interface("192.0.2.1")], [])
    assert found == ["192.0.2.9", "192.0.2.1", "2001:db8::1"]


def test_addresses__count_only_in_the_wanted_networks() -> None:
    networks = [ipaddress.ip_network("192.0.2.0/24"), ipaddress.ip_network("2001:db8::/64")]
    found = usable_addresses([interface("172.17.0.1", "192.0.2.1", "2001:db8:1::1")], networks)
    assert found == ["192.0.2.1"]


def test_an_agent_that_answers_with_an_error__is_not_waited_for() -> None:
    class Unable(Agents):
        def get(self, path: str, params: Mapping[str, Any] | None = None, /, **more: Any) -> Any:
            answer = super().get(path, params, **more)
            refused = {"result": {"error": {"class": "Unsupported", "desc": "not on this system"}}}
            return answer if path == "/cluster/resources" else check_shape(path, refused)

    agents = Unable({101: (0, [])})
    (vm,) = agents.wait([101], 60)
    assert (vm["addresses"], vm["reason"]) == ([], "its guest agent does not report addresses")
    assert agents.asked == [101]


def test_interface_without_addresses__is_fine() -> None:
    assert usable_addresses([{"name": "eth0"}, {"name": "eth1", "ip-addresses": None}], []) == []


def test_guests__are_asked_until_each_has_answered_and_no_longer() -> None:
    agents = Agents({101: (0, ["192.0.2.1"]), 102: (5, ["192.0.2.2"])})
    found = agents.wait([101, 102], 60)
    assert [vm["address"] for vm in found] == ["192.0.2.1", "192.0.2.2"]
    assert agents.now == 6
    assert agents.asked.count(101) == 1


def test_timeout__returns_those_that_answered_with_the_others() -> None:
    agents = Agents({101: (0, ["192.0.2.1"]), 102: (99, [])})
    found = agents.wait([101, 102], 10)
    assert [(vm["vmid"], vm["node"], vm["address"], vm["reason"]) for vm in found] == [
        (101, "pve1", "192.0.2.1", None),
        (102, "pve1", None, "its guest agent did not answer"),
    ]
    assert agents.now == 10


def test_no_waiting__asks_each_once() -> None:
    agents = Agents({101: (99, [])})
    assert agents.wait([101], 0)[0]["addresses"] == []
    assert agents.asked == [101]


def test_vm_that_does_not_exist__is_not_asked() -> None:
    agents = Agents({})
    nothing = {"name": None, "node": None, "address": None, "addresses": [], "reason": "there is no such VM"}
    assert agents.wait([101], 0) == [{"vmid": 101, **nothing}]
    assert agents.asked == []


@pytest.mark.parametrize("version", ["9.2", "8.4"])
def test_vm_without_an_agent__is_not_waited_for(recording: Callable[[str, str], dict[str, Any]], version: str) -> None:
    name = {"9.2": "err-perm-agent-network-viewer", "8.4": "err-agent-not-running"}[version]
    recorded = recording(version, name)
    refusal = failure_of_answer("GET", "", recorded["status"], recorded["reason"], json.dumps(recorded["body"]), {})
    agents = Agents({101: (99, [])}, refusal)
    assert [vm["reason"] for vm in agents.wait([101], 60)] == ["its guest agent is not enabled"]
    assert (agents.now, agents.asked) == (0, [101])


def test_agent_that_tells_no_address_that_counts__is_said_to() -> None:
    agents = Agents({101: (0, ["127.0.0.1"])})
    assert agents.wait([101], 0)[0]["reason"] == "its guest agent reported no matching address"


def test_lack_of_rights__is_told_and_not_waited_for() -> None:
    agents = Agents({101: (99, [])}, PermissionDenied("no VM.GuestAgent.Audit"))
    with pytest.raises(PermissionDenied):
        agents.wait([101], 60)
    assert agents.now == 0
