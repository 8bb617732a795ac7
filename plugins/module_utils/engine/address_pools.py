# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Address pools: networks of which VMs get static addresses."""

from __future__ import annotations

import ipaddress
import typing as t
from collections.abc import Container, Iterator
from dataclasses import dataclass

Address: t.TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"
Network: t.TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"
Range: t.TypeAlias = tuple[int, int]
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
    ranges: tuple[Range, ...]
    excluded: tuple[Range, ...] = ()
    gateway: Address | None = None
    nameservers: tuple[str, ...] = ()
    searchdomains: tuple[str, ...] = ()
    ignore_unread: bool = False

    def choose(self, taken: Container[Address]) -> Address | None:
        """Return the first address that may be given to a VM, None when all are taken."""
        return next((address for address in self._allowed() if address not in taken), None)

    def properties(self, address: Address) -> dict[str, str]:
        """Return the properties of C(ipconfigN) for a VM with this address."""
        suffix = "" if self.network.version == 4 else "6"
        found = {f"ip{suffix}": f"{address}/{self.network.prefixlen}"}
        if self.gateway is not None:
            found[f"gw{suffix}"] = str(self.gateway)
        return found

    def _allowed(self) -> Iterator[Address]:
        kind = ipaddress.IPv4Address if self.network.version == 4 else ipaddress.IPv6Address
        reserved = {self.gateway}
        if self.network.version == 4 and self.network.prefixlen < 31:
            reserved |= {self.network.network_address, self.network.broadcast_address}
        elif self.network.version == 6 and self.network.prefixlen < 127:
            # All routers of the network answer to it.
            reserved.add(self.network.network_address)
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
