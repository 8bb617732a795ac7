# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which address of a pool is given to a VM, and how pools are written."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.address_pools import (
    AddressPool,
    parse_addresses,
    parse_pools,
)


def pool(**body: Any) -> AddressPool:
    return parse_pools({"lan": {"network": "192.0.2.0/28", **body}})["lan"]


def all_of(found: AddressPool) -> list[str]:
    taken: list[Any] = []
    while (address := found.choose(taken)) is not None:
        taken.append(address)
    return [str(address) for address in taken]


def test_pool__uses_every_host_of_its_network_except_the_gateway() -> None:
    assert all_of(pool(gateway="192.0.2.1")) == [f"192.0.2.{number}" for number in range(2, 15)]


def test_pool__tries_its_ranges_in_their_order() -> None:
    found = pool(ranges=["192.0.2.12-192.0.2.13", "192.0.2.3", "192.0.2.8/31"])
    assert all_of(found) == [f"192.0.2.{number}" for number in (12, 13, 3, 8, 9)]


def test_pool__leaves_out_what_is_excluded() -> None:
    found = pool(exclude=["192.0.2.1-192.0.2.4", "192.0.2.3-192.0.2.6", "192.0.2.8/29"])
    assert all_of(found) == ["192.0.2.7"]


def test_pool__of_a_large_network_is_quick() -> None:
    found = pool(network="2001:db8::/64", exclude=["2001:db8::-2001:db8::ffff:ffff:ffff"], gateway="2001:db8::1")
    assert str(found.choose(())) == "2001:db8:0:0:1::"
    assert found.properties(ipaddress.ip_address("2001:db8::5")) == {"ip6": "2001:db8::5/64", "gw6": "2001:db8::1"}


def test_pool__gives_the_properties_of_a_card() -> None:
    found = pool(gateway="192.0.2.1").properties(ipaddress.ip_address("192.0.2.5"))
    assert found == {"ip": "192.0.2.5/28", "gw": "192.0.2.1"}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "address_pools.lan.network: is missing, expected a network, for example 192.0.2.0/24"),
        ({"network": "192.0.2.5"}, "address_pools.lan.network: '192.0.2.5' is not valid, expected a network"),
        ({"network": "192.0.2.5/24"}, "address_pools.lan.network: 192.0.2.5/24 has host bits set"),
        ({"network": "192.0.2.0/24", "range": []}, "address_pools.lan: unknown key 'range'"),
        ({"network": "192.0.2.0/24", "ranges": ["192.0.3.1"]}, "address_pools.lan.ranges[0]: '192.0.3.1'"),
        ({"network": "192.0.2.0/24", "ranges": ["192.0.2.9-192.0.2.3"]}, "address_pools.lan.ranges[0]:"),
        ({"network": "192.0.2.0/24", "exclude": "2001:db8::1"}, "address_pools.lan.exclude: '2001:db8::1'"),
        ({"network": "192.0.2.0/24", "gateway": "192.0.3.1"}, "address_pools.lan.gateway: '192.0.3.1'"),
        ({"network": "192.0.2.0/24", "nameservers": ["dns"]}, "address_pools.lan.nameservers[0]: 'dns'"),
        ({"network": "192.0.2.0/24", "ignore_unread": "perhaps"}, "address_pools.lan.ignore_unread: 'perhaps'"),
        ([], "address_pools.lan: "),
    ],
)
def test_pool__refuses_what_makes_no_sense(body: Any, told: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_pools({"lan": body})
    assert caught.value.message.startswith(told)


POOLS = parse_pools(
    {"lan": {"network": "192.0.2.0/24"}, "dmz": {"network": "198.51.100.0/24"}, "lan6": {"network": "2001:db8::/64"}}
)


def test_addresses__name_pools_by_card() -> None:
    found = parse_addresses("addresses", {"ipconfig0": ["lan", "lan6"], "ipconfig1": "dmz"}, POOLS, {})
    assert {card: [each.name for each in pools] for card, pools in found.items()} == {
        "ipconfig0": ["lan", "lan6"],
        "ipconfig1": ["dmz"],
    }


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"ipconfig0": "lam"}, "addresses.ipconfig0: no pool 'lam' in address_pools, known: dmz, lan, lan6"),
        ({"net0": "lan"}, "addresses.net0: unknown key, expected ipconfig0 to ipconfig31"),
        ({"ipconfig32": "lan"}, "addresses.ipconfig32: unknown key"),
        ({"ipconfig" + "9" * 5000: "lan"}, "addresses.ipconfig999"),
        ({"ipconfig0": ["lan", "dmz"]}, "addresses.ipconfig0: lan, dmz have the same IP version"),
        ({"ipconfig9": "lan"}, "addresses.ipconfig9: contradicts ipconfig.ipconfig9"),
    ],
)
def test_addresses__refuse_what_makes_no_sense(option: Any, told: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_addresses("addresses", option, POOLS, {"ipconfig9": "ip=dhcp"})
    assert caught.value.message.startswith(told)
