# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pools of static addresses of a task, and the options that define them and take addresses from them."""

from __future__ import annotations

import ipaddress
import re
import typing as t
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ...engine.texts import known_names
from ...errors import InvalidRequest
from ...proxmox.options.values import Fields, gateways_of, invalid, items_of, text_of

Address: t.TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"
Network: t.TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"
AddressRange: t.TypeAlias = tuple[int, int]
"""The first and the last address, as numbers."""


@dataclass(frozen=True, slots=True)
class AddressPool:
    """One pool.

    Attributes:
        ranges: the addresses that VMs may get, in the order in which they are tried; all lie in the network.
        excluded: addresses of the ranges that no VM may get.
        gateway: of the network; no VM gets it.
        nameservers, searchdomains: for VMs that name none.
        ignore_unread: whether addresses are chosen although those of some guests cannot be read.
    """

    name: str
    network: Network
    ranges: tuple[AddressRange, ...]
    excluded: tuple[AddressRange, ...] = ()
    gateway: Address | None = None
    nameservers: tuple[str, ...] = ()
    searchdomains: tuple[str, ...] = ()
    ignore_unread: bool = False

    def choose(self, taken: Container[Address]) -> Address | None:
        """Return the first address that may be given to a VM, None when all are taken."""
        return next((address for address in self._allowed_addresses() if address not in taken), None)

    def may_give(self, address: Address) -> bool:
        """Whether VMs may get the address."""
        number = int(address)
        within = any(first <= number <= last for first, last in self.ranges)
        excluded = any(first <= number <= last for first, last in self.excluded)
        return address in self.network and within and not excluded and address not in self._reserved_addresses()

    def properties(self, address: Address) -> dict[str, str]:
        """Return the properties of C(ipconfigN) for a VM with this address."""
        suffix = "" if self.network.version == 4 else "6"
        found = {f"ip{suffix}": f"{address}/{self.network.prefixlen}"}
        if self.gateway is not None:
            found[f"gw{suffix}"] = str(self.gateway)
        return found

    def _allowed_addresses(self) -> Iterator[Address]:
        """Yield the addresses of the pool in order, without those that are excluded."""
        kind = ipaddress.IPv4Address if self.network.version == 4 else ipaddress.IPv6Address
        reserved = self._reserved_addresses()
        for first, last in self.ranges:
            number = first
            while number <= last:
                beyond = [end for begin, end in self.excluded if begin <= number <= end]
                if beyond:
                    number = max(beyond) + 1
                    continue
                address = kind(number)
                if address not in reserved:
                    yield address
                number += 1

    def _reserved_addresses(self) -> set[Address | None]:
        """Return the addresses of the network that no guest may have."""
        reserved: set[Address | None] = {self.gateway}
        if self.network.version == 4 and self.network.prefixlen < 31:
            reserved |= {self.network.network_address, self.network.broadcast_address}
        elif self.network.version == 6 and self.network.prefixlen < 127:
            # All routers of the network answer to it.
            reserved.add(self.network.network_address)
        return reserved


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
        found = re.fullmatch(r"ipconfig(\d{1,2})", str(card))
        if found is None or int(found[1]) > 31:
            raise InvalidRequest(f"{path}: unknown key, expected ipconfig0 to ipconfig31")
        if ipconfig.get(card) is not None:
            raise InvalidRequest(f"{path}: contradicts ipconfig.{card}; set one of them")
        names = [text_of(path, value)] if isinstance(value, str) else [text_of(*item) for item in items_of(path, value)]
        for name in names:
            if name not in pools:
                raise InvalidRequest(f"{path}: no pool '{name}' in address_pools, known: {known_names(pools, name)}")
        chosen = tuple(pools[name] for name in names)
        if len({pool.network.version for pool in chosen}) != len(chosen):
            raise InvalidRequest(f"{path}: {', '.join(names)} have the same IP version, expected one IPv4 and one IPv6")
        wanted[str(card)] = chosen
    return wanted


def fixed_addresses(pools: Iterable[AddressPool], options: Iterable[Mapping[str, t.Any]]) -> frozenset[Address]:
    """Return the addresses that no VM gets, whatever pool it takes one from: gateways and name servers of all pools and
    of what VMs request, and the network and broadcast addresses of all pools.
    """
    found: set[Address] = set()
    for pool in pools:
        found |= {address for address in (pool.gateway, *map(ipaddress.ip_address, pool.nameservers)) if address}
        if pool.network.prefixlen < pool.network.max_prefixlen - 1:
            found |= {pool.network.network_address, pool.network.broadcast_address}
    for each in options:
        found |= gateways_of(each)
    return frozenset(found)


def _pool(where: str, name: str, body: t.Any) -> AddressPool:
    """Return one pool of the option. Raises InvalidRequest."""
    fields = Fields(where, body, KEYS)
    network = _network(fields)
    hosts = (int(network.network_address), int(network.broadcast_address))
    ranges = tuple(_range(path, text, network) for path, text in _texts(fields, "ranges")) or (hosts,)
    gateway = _address(fields.path("gateway"), fields.require_text("gateway")) if "gateway" in fields else None
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
    """Return the network of a pool. Raises InvalidRequest."""
    text = fields.require_text("network", NETWORK_EXPECTED)
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
    return [(path, text_of(path, item)) for path, item in items_of(fields.path(key), value)]


def _range(where: str, text: str, network: Network) -> AddressRange:
    """Return an address, a range C(192.0.2.10-192.0.2.99), or a network within the pool's."""
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
