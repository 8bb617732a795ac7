# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading VMs: the fresh list of a node, config, pending changes, current status."""

from __future__ import annotations

from typing import Any

from ..errors import die
from ..model import CLOUD_INIT, Guest
from ..property_strings import parse
from ..routing import Call, route


def of(call: Call) -> Guest:
    """The VM that the path names."""
    return call.cluster.guest("qemu", call.node, call["vmid"])


def status_row(call: Call, guest: Guest, full: bool) -> dict[str, Any]:
    """What a node's own list shows of a VM; ``full`` adds what costs a question to QEMU."""
    cluster = call.cluster
    running = guest.running
    mem = int(guest.maxmem * guest.memory_use) if running else 0
    row: dict[str, Any] = {
        "vmid": guest.vmid, "name": guest.name, "status": guest.status, "cpu": guest.cpu_use if running else 0,
        "cpus": guest.maxcpu(cluster.nodes[guest.node].cores), "mem": mem, "maxmem": guest.maxmem, "disk": 0,
        "maxdisk": guest.maxdisk, "netin": 0, "netout": 0,
        "uptime": max(0, int(cluster.clock.now() - guest.started_at)) if running else 0,
    }
    if guest.tags:
        row["tags"] = guest.tags
    if guest.config_lock:
        row["lock"] = guest.config_lock
    if guest.template:
        row["template"] = 1
    if any(key.startswith("serial") for key in guest.config):
        row["serial"] = 1
    if running:
        row["pid"] = guest.pid
    if cluster.modern:
        row["memhost"] = mem
        if running:
            for kind in ("cpu", "io", "memory"):
                row |= {f"pressure{kind}some": 0, f"pressure{kind}full": 0}
    if full:
        row["qmpstatus"] = guest.qmpstatus
        taps = [key for key in guest.config if key.startswith("net")]
        if running and taps:
            row["nics"] = {f"tap{guest.vmid}i{key[3:]}": {"netin": 0, "netout": 0} for key in taps}
    return row


@route("GET", "/nodes/{node}/qemu")
def qemu_list(call: Call) -> list[dict[str, Any]]:
    guests = [guest for guest in call.cluster.guests.values() if guest.node == call.node and guest.kind == "qemu"]
    rows = [
        status_row(call, guest, bool(call.get("full"))) for guest in guests
        if call.allowed(f"/vms/{guest.vmid}", "VM.Audit")
    ]
    return call.cluster.shuffled(rows)


@route("GET", "/nodes/{node}/qemu/{vmid}/config")
def config(call: Call) -> dict[str, Any]:
    guest = of(call)
    snapshot = call.get("snapshot")
    if snapshot and snapshot not in guest.snapshots:
        raise die(f"snapshot '{snapshot}' does not exist")
    shown = guest.config if call.get("current") else guest.config_after_start()
    values = dict(guest.snapshots[snapshot] if snapshot else shown)
    if "cipassword" in values:
        values["cipassword"] = "**********"
    return values | {"digest": guest.digest()}


@route("GET", "/nodes/{node}/qemu/{vmid}/snapshot")
def snapshots(call: Call) -> list[dict[str, Any]]:
    guest = of(call)
    here = {
        "name": "current", "description": "You are here!", "digest": guest.digest(),
        "running": int(guest.status == "running"),
    }
    return [*({"name": name, "description": "", "vmstate": 0} for name in guest.snapshots), here]


@route("GET", "/nodes/{node}/qemu/{vmid}/pending")
def pending(call: Call) -> list[dict[str, Any]]:
    return of(call).pending_rows()


@route("GET", "/nodes/{node}/qemu/{vmid}/cloudinit")
def cloud_init(call: Call) -> list[dict[str, Any]]:
    """What is on the cloud-init drive and what is not yet. The former value of an address is not shown."""
    guest = of(call)
    config, before = dict(guest.config), dict(guest.cloud_init_before)
    added = ",".join(sorted(guest.cloud_init_added))
    for values in (config, before):
        if "cipassword" in values:
            values["cipassword"] = "**********"
    rows = [{"key": key, "pending": config.get(key)} for key in sorted(guest.cloud_init_added)]
    for option in sorted(CLOUD_INIT):
        if not config.get(option) or option in added:
            continue
        changed = {"value": before[option], "pending": config[option]} if before.get(option) else {}
        rows.append({"key": option, "value": config[option], **changed})
    return [*rows, *({"key": option, "delete": 1} for option in before if not config.get(option))]


@route("GET", "/nodes/{node}/qemu/{vmid}/status/current")
def status_current(call: Call) -> dict[str, Any]:
    guest, cluster, ha = of(call), call.cluster, call.cluster.ha
    # Just after a move the new node knows the config before it knows the guest.
    if not cluster.clock.instant and cluster.clock.now() - guest.moved_at < cluster.timing.switched_seconds:
        return {"ha": {"managed": 0}}
    row = status_row(call, guest, full=True)
    row["ha"] = {"managed": 0}
    if ha.managed(guest):
        resource = ha.resources[ha.sid(guest)]
        row["ha"] = {"managed": 1, "state": ha.manager_state(ha.sid(guest))}
        if "group" in resource:
            row["ha"]["group"] = resource["group"]
    if "vga" in guest.config:
        row["clipboard"] = parse(str(guest.config["vga"]), "type").get("clipboard")
    if str(guest.config.get("agent", "0")).startswith(("1", "enabled=1")):
        row["agent"] = 1
    return row
