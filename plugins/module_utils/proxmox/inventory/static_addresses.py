# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses static addresses in the configs of guests: C(ipconfigN) of VMs, for cloud-init, and C(netN) of containers."""

from __future__ import annotations

import ipaddress
import re
import typing as t
from collections.abc import Mapping

Interface: t.TypeAlias = "ipaddress.IPv4Interface | ipaddress.IPv6Interface"

_CARD = re.compile(r"(?:ipconfig|net)(\d+)")
_WITH_ADDRESS = ("ip", "ip6")


def static_addresses(config: Mapping[str, t.Any]) -> list[Interface]:
    """Return the static addresses of a guest with their prefixes, in the order of the cards, IPv4 before IPv6.

    C(dhcp), C(auto), C(manual) and invalid values are left out.
    """
    cards = sorted((int(found[1]), str(value)) for key, value in config.items() if (found := _CARD.fullmatch(key)))
    return [address for _number, text in cards for address in addresses_of_card(text)]


def addresses_of_card(text: str) -> list[Interface]:
    """Return the static addresses in one property string, such as C(ip=192.0.2.10/24,gw=192.0.2.1)."""
    properties = dict(part.partition("=")[::2] for part in text.split(","))
    found = []
    for key in _WITH_ADDRESS:
        try:
            found.append(ipaddress.ip_interface(properties.get(key, "").strip()))
        except ValueError:
            continue
    return found
