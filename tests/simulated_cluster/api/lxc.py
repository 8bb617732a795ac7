# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers: they exist, take VMIDs and memory, can be read, renamed and described; making them is not simulated."""

from __future__ import annotations

from typing import Any

from ..errors import MODIFIED, ApiError, die, not_simulated
from ..model import Guest
from ..property_strings import split_list
from ..routing import Call, route

_PRIVILEGES = {
    **dict.fromkeys(("cores", "cpuunits", "cpulimit"), "VM.Config.CPU"),
    **dict.fromkeys(("memory", "swap"), "VM.Config.Memory"),
    **dict.fromkeys(("hostname", "nameserver", "searchdomain"), "VM.Config.Network"),
    **dict.fromkeys(("description", "onboot", "protection", "startup", "tags"), "VM.Config.Options"),
}
"""The options of a container that can be changed here, and what one may have to change them."""


@route("GET", "/nodes/{node}/lxc")
def lxc_list(call: Call) -> list[dict[str, Any]]:
    guests = [guest for guest in call.cluster.guests.values() if guest.node == call.node and guest.kind == "lxc"]
    rows = [_row(call, guest) for guest in guests if call.allowed(f"/vms/{guest.vmid}", "VM.Audit")]
    return call.cluster.shuffled(rows)


def _row(call: Call, guest: Guest) -> dict[str, Any]:
    running = guest.running
    row: dict[str, Any] = {
        "vmid": guest.vmid, "name": guest.name, "type": "lxc", "status": guest.status,
        "cpus": guest.maxcpu(call.cluster.nodes[guest.node].cores), "cpu": guest.cpu_use if running else 0,
        "maxmem": guest.maxmem, "mem": int(guest.maxmem * guest.memory_use) if running else 0,
        "maxswap": int(guest.config.get("swap", 512)) * 1024**2, "swap": 0, "maxdisk": guest.maxdisk, "disk": 0,
        "netin": 0, "netout": 0, "diskread": 0, "diskwrite": 0,
        "uptime": max(0, int(call.cluster.clock.now() - guest.started_at)) if running else 0,
    }
    if guest.tags:
        row["tags"] = guest.tags
    if guest.template:
        row["template"] = 1
    return row


@route("GET", "/nodes/{node}/lxc/{vmid}/config")
def config(call: Call) -> dict[str, Any]:
    guest = call.cluster.guest("lxc", call.node, call["vmid"])
    return {**(guest.config if call.get("current") else guest.config_after_start()), "digest": guest.digest()}


@route("GET", "/nodes/{node}/lxc/{vmid}/pending")
def pending(call: Call) -> list[dict[str, Any]]:
    return call.cluster.guest("lxc", call.node, call["vmid"]).pending_rows()


@route("PUT", "/nodes/{node}/lxc/{vmid}/config")
async def change(call: Call) -> None:
    cluster = call.cluster
    deletes = split_list(call.get("delete"))
    options = {key: value for key, value in call.values.items() if key not in ("node", "vmid", "digest", "delete")}
    if not options and not deletes:
        raise die("no options specified")
    held = cluster.guest("lxc", call.node, call["vmid"])
    await cluster.hold(held, ApiError)
    try:
        guest = cluster.guest("lxc", call.node, call["vmid"])
        if guest.config_lock:
            raise die(f"CT is locked ({guest.config_lock})")
        if call.get("digest") and call["digest"] != guest.digest():
            raise die(MODIFIED)
        for option in (*options, *deletes):
            if option not in _PRIVILEGES:
                raise not_simulated("PUT", f"{call.path} with {option}")
            call.require(f"/vms/{guest.vmid}", _PRIVILEGES[option])
        cluster.set_config(guest, **options, **dict.fromkeys(deletes))
    finally:
        held.lock.release()


@route("GET", "/nodes/{node}/lxc/{vmid}/status/current")
def status_current(call: Call) -> dict[str, Any]:
    guest = call.cluster.guest("lxc", call.node, call["vmid"])
    return _row(call, guest) | {"ha": {"managed": int(call.cluster.ha.managed(guest))}}
