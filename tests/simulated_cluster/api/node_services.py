# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's services, packages and clock, votes, and the health of Ceph, as pve-manager's own code answers."""

from __future__ import annotations

from typing import Any

from ..errors import die
from ..routing import Call, route

SERVICES = {
    "chrony": "chrony", "corosync": "corosync", "cron": "cron", "ksmtuned": "ksmtuned", "postfix": "postfix@-",
    "pve-cluster": "pve-cluster", "pve-firewall": "pve-firewall", "pve-ha-crm": "pve-ha-crm",
    "pve-ha-lrm": "pve-ha-lrm", "pvedaemon": "pvedaemon", "pveproxy": "pveproxy", "pvescheduler": "pvescheduler",
    "pvestatd": "pvestatd", "spiceproxy": "spiceproxy", "sshd": "ssh", "syslog": "rsyslog",
}
"""Names in the API, and those of the units."""

NOT_FOUND = ("syslog",)


@route("GET", "/nodes/{node}/services")
def services(call: Call) -> list[dict[str, Any]]:
    dead = call.cluster.nodes[call.node].dead_services
    rows = []
    for service, name in SERVICES.items():
        missing, stopped = service in NOT_FOUND, service in dead or service in NOT_FOUND
        rows.append({
            "service": service, "name": name, "desc": name, "state": "dead" if stopped else "running",
            "active-state": "inactive" if stopped else "active", "unit-state": "not-found" if missing else "enabled",
        })
    return rows


@route("GET", "/nodes/{node}/time")
def time(call: Call) -> dict[str, Any]:
    now = int(call.cluster.clock.now() + call.cluster.nodes[call.node].clock_offset)
    return {"timezone": "Etc/UTC", "time": now, "localtime": now}


@route("GET", "/nodes/{node}/apt/update")
def updates(call: Call) -> list[dict[str, Any]]:
    return [
        {"Package": name, "Title": name, "OldVersion": "1.0-1", "Version": "1.0-2", "Origin": "Proxmox",
         "Arch": "amd64", "Priority": "optional", "Section": "admin", "Description": name}
        for name in call.cluster.nodes[call.node].updates
    ]  # fmt: skip


@route("GET", "/nodes/{node}/apt/versions")
def versions(call: Call) -> list[dict[str, Any]]:
    node = call.cluster.nodes[call.node]
    rows = [{"Package": "proxmox-ve", "CurrentState": "Installed", "RunningKernel": node.kernel, "Arch": "all"}]
    return rows + [
        {"Package": f"proxmox-kernel-{kernel}-signed", "CurrentState": "Installed", "Arch": "amd64"}
        for kernel in sorted({node.kernel, *node.kernels})
    ]


@route("GET", "/cluster/config/nodes")
def votes(call: Call) -> list[dict[str, str]]:
    return [
        {"node": node.name, "name": node.name, "nodeid": str(node.number), "quorum_votes": str(node.votes),
         "ring0_addr": node.address}
        for node in call.cluster.nodes.values()
    ]  # fmt: skip


@route("GET", "/cluster/config/qdevice")
def qdevice(call: Call) -> dict[str, str]:
    return call.cluster.qdevice


@route("GET", "/nodes/{node}/ceph/pool")
def ceph_pools(call: Call) -> list[dict[str, Any]]:
    ceph_health(call)
    return call.cluster.ceph_pools


@route("GET", "/cluster/ceph/status")
def ceph_status(call: Call) -> dict[str, Any]:
    return {"fsid": "00000000-0000-4000-8000-000000000000", "health": ceph_health(call)}


@route("GET", "/cluster/ceph/flags/{flag}")
def ceph_flag(call: Call) -> int:
    ceph_health(call)
    return int(call["flag"] in call.cluster.ceph_flags)


@route("PUT", "/cluster/ceph/flags/{flag}")
def set_ceph_flag(call: Call) -> None:
    ceph_health(call)
    change = call.cluster.ceph_flags.add if call["value"] else call.cluster.ceph_flags.discard
    change(call["flag"])


def ceph_health(call: Call) -> dict[str, Any]:
    """What Ceph says of itself, with its flags; an error where it is not installed."""
    health, flags = call.cluster.ceph_health, sorted(call.cluster.ceph_flags)
    if health is None:
        raise die("binary not installed: /usr/bin/ceph-mon\n")
    if not flags:
        return health
    told = {"OSDMAP_FLAGS": {"severity": "HEALTH_WARN", "summary": {"message": f"{','.join(flags)} flag(s) set"}}}
    return {**health, "status": "HEALTH_WARN", "checks": {**health.get("checks", {}), **told}}
