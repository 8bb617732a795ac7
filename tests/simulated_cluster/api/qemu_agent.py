# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest agent: present when configured, silent until the guest has booted."""

from __future__ import annotations

from typing import Any

from ..errors import die
from ..model import Guest
from ..property_strings import parse, parse_net
from ..routing import Call, route
from .qemu_read import of


def _answering(call: Call) -> Guest:
    guest, cluster = of(call), call.cluster
    enabled = parse(str(guest.config.get("agent", "0")), "enabled").get("enabled", "0")
    if enabled in ("0", "no", "off", "false"):
        raise die("No QEMU guest agent configured")
    if not guest.running:
        raise die(f"VM {guest.vmid} is not running")
    booting = cluster.clock.now() - guest.started_at < cluster.timing.agent_seconds
    if guest.agent == {} or (booting and not cluster.clock.instant):
        raise die("QEMU guest agent is not running")
    return guest


@route("POST", "/nodes/{node}/qemu/{vmid}/agent/ping")
def ping(call: Call) -> dict[str, Any]:
    _answering(call)
    return {"result": {}}


@route("GET", "/nodes/{node}/qemu/{vmid}/agent/network-get-interfaces")
def interfaces(call: Call) -> dict[str, Any]:
    guest = _answering(call)
    described = (guest.agent or {}).get("interfaces")
    return {"result": described if described is not None else default_interfaces(guest)}


def default_interfaces(guest: Guest) -> list[dict[str, Any]]:
    """Loopback and one address per network card: static from ipconfig, else made from the VMID."""
    rows = [_interface("lo", "00:00:00:00:00:00", "127.0.0.1", 8)]
    for key in sorted(key for key in guest.config if key.startswith("net") and key[3:].isdigit()):
        number = int(key[3:])
        mac = parse_net(str(guest.config[key])).get("macaddr", "00:00:00:00:00:00").lower()
        static = parse(str(guest.config.get(f"ipconfig{number}", ""))).get("ip", "dhcp")
        address, _, prefix = static.partition("/")
        if static == "dhcp":
            address = f"192.0.{2 + number}.{guest.vmid % 250 + 2}"
        rows.append(_interface(f"eth{number}", mac, address, int(prefix or 24)))
    return rows


_COUNTERS = tuple(f"{way}-{what}" for way in ("rx", "tx") for what in ("bytes", "dropped", "errs", "packets"))


def _interface(name: str, mac: str, address: str, prefix: int) -> dict[str, Any]:
    return {
        "name": name, "hardware-address": mac, "statistics": dict.fromkeys(_COUNTERS, 0),
        "ip-addresses": [{"ip-address": address, "ip-address-type": "ipv4", "prefix": prefix}],
    }
