# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options about static addresses: the pools of a task, and which of them a VM takes addresses from."""

from __future__ import annotations

import ipaddress
import re
import typing as t
from collections.abc import Iterable, Mapping

from ...engine.address_pools import Address, AddressPool, Network, Range
from ...engine.texts import known
from ...errors import InvalidRequest
from ...proxmox.options.values import Fields, invalid, listed, text_of

KEYS = ("network", "ranges", "exclude", "gateway", "nameservers", "searchdomains", "ignore_unread")
NETWORK_EXPECTED = "a network, for example 192.0.2.0/24"

Pools: t.TypeAlias = "Mapping[str, AddressPool]"
Wanted: t.TypeAlias = "Mapping[str, tuple[AddressPool, ...]]"
"""For each C(ipconfigN) the pools that its addresses come from."""


def parse_pools(option: t.Any) -> dict[str, AddressPool]:
    """Return the pools by their names. Raises InvalidRequest."""
    if not isinstance(option, Mapping):
        raise invalid("address_pools", option, "a mapping of names to pools")
    return {str(name): _pool(f"address_pools.{name}", str(name), body) for name, body in option.items()}


def parse_addresses(where: str, option: t.Any, pools: Pools, ipconfig: Mapping[str, t.Any]) -> Wanted:
    """Return the pools of each card of a VM. Raises InvalidRequest.

    option maps C(ipconfigN) to the name of a pool, or to a list of them; ipconfig is the VM's option of that name.
    """
    wanted: dict[str, tuple[AddressPool, ...]] = {}
    for card, value in (option or {}).items():
        path = f"{where}.{card}"
        found = re.fullmatch(r"ipconfig(\d+)", str(card))
        if found is None or int(found[1]) > 31:
            raise InvalidRequest(f"{path}: unknown key, expected ipconfig0 to ipconfig31")
        if ipconfig.get(card) is not None:
            raise InvalidRequest(f"{path}: contradicts ipconfig.{card}; set one of them")
        names = [text_of(path, value)] if isinstance(value, str) else [text_of(*item) for item in listed(path, value)]
        for name in names:
            if name not in pools:
                raise InvalidRequest(f"{path}: no pool '{name}' in address_pools, known: {known(pools, name)}")
        chosen = tuple(pools[name] for name in names)
        if len({pool.network.version for pool in chosen}) != len(chosen):
            raise InvalidRequest(f"{path}: {', '.join(names)} have the same IP version, expected one IPv4 and one IPv6")
        wanted[str(card)] = chosen
    return wanted


def _pool(where: str, name: str, body: t.Any) -> AddressPool:
    fields = Fields(where, body, KEYS)
    network = _network(fields)
    hosts = (int(network.network_address), int(network.broadcast_address))
    ranges = tuple(_range(path, text, network) for path, text in _texts(fields, "ranges")) or (hosts,)
    gateway = _address(fields.path("gateway"), fields.needed("gateway")) if "gateway" in fields else None
    if gateway is not None and (gateway.version != network.version or gateway not in network):
        raise invalid(fields.path("gateway"), str(gateway), f"an address in {network}")
    return AddressPool(
        name=name,
        network=network,
        ranges=ranges,
        excluded=tuple(_range(path, text, network) for path, text in _texts(fields, "exclude")),
        gateway=gateway,
        nameservers=tuple(str(_address(path, text)) for path, text in _texts(fields, "nameservers")),
        searchdomains=tuple(text for _path, text in _texts(fields, "searchdomains")),
        ignore_unread=fields.flag("ignore_unread", default=False),
    )


def _network(fields: Fields) -> Network:
    text = fields.needed("network", NETWORK_EXPECTED)
    if "/" not in text:
        raise invalid(fields.path("network"), text, NETWORK_EXPECTED)
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise InvalidRequest(f"{fields.path('network')}: {error}") from error


def _texts(fields: Fields, key: str) -> Iterable[tuple[str, str]]:
    value = fields.body.get(key)
    if isinstance(value, str):
        return [(fields.path(key), value)]
    return [(path, text_of(path, item)) for path, item in listed(fields.path(key), value)]


def _range(where: str, text: str, network: Network) -> Range:
    """An address, a range C(192.0.2.10-192.0.2.99), or a network within the pool's."""
    expected = f"an address, a range or a network in {network}"
    try:
        if "/" in text:
            part = ipaddress.ip_network(text)
            first, last = part.network_address, part.broadcast_address
        else:
            begin, _dash, end = (each.strip() for each in text.partition("-"))
            first, last = ipaddress.ip_address(begin), ipaddress.ip_address(end or begin)
    except ValueError:
        raise invalid(where, text, expected) from None
    inside = all(each.version == network.version and each in network for each in (first, last))
    if not inside or int(first) > int(last):
        raise invalid(where, text, expected)
    return int(first), int(last)


def _address(where: str, text: str) -> Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise invalid(where, text, "an IP address") from None
