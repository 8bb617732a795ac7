# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes: the list, their status, hardware and time."""

from __future__ import annotations

from typing import Any

from ..cluster import RELEASES, Cluster
from ..cpu_models import CPU_FLAGS
from ..errors import parameter_error
from ..model import Node, fingerprint
from ..routing import Call, route


def guest_memory(cluster: Cluster) -> dict[str, int]:
    """Node name to the bytes that its running guests use."""
    sums = dict.fromkeys(cluster.nodes, 0)
    for guest in cluster.guests.values():
        if guest.running:
            sums[guest.node] += int(guest.maxmem * guest.memory_use)
    return sums


def memory_used(node: Node, guests: int) -> int:
    """The host's own memory and what its running guests use."""
    return min(node.memory, int(node.memory * node.memory_use) + guests)


def node_figures(call: Call, node: Node, guests: int) -> dict[str, Any]:
    """A node's row; without figures for those who may not see them, without live ones when it is down."""
    statistics = call.cluster.statistics
    offline = statistics.offline_known(node)
    row: dict[str, Any] = {
        "id": f"node/{node.name}", "node": node.name, "type": "node", "status": "offline" if offline else "online",
    }
    if not statistics.expired(node) or not call.allowed(f"/nodes/{node.name}", "Sys.Audit"):
        row["level"] = ""
    if not call.allowed(f"/nodes/{node.name}", "Sys.Audit") or statistics.expired(node):
        return row
    row |= {"maxcpu": node.cores, "maxmem": node.memory, "maxdisk": node.disk}
    if not offline:
        row |= {
            "cpu": node.cpu_use, "mem": memory_used(node, guests), "disk": node.disk // 8,
            "uptime": int(call.cluster.clock.now() - node.booted_at),
        }
    return row


@route("GET", "/nodes")
def nodes(call: Call) -> list[dict[str, Any]]:
    memory = guest_memory(call.cluster)
    rows = [
        node_figures(call, node, memory[node.name]) | {"ssl_fingerprint": node.fingerprint}
        for node in call.cluster.nodes.values()
    ]
    return call.cluster.shuffled(rows)


@route("GET", "/nodes/{node}/certificates/info")
def certificates(call: Call) -> list[dict[str, Any]]:
    """The authority of the cluster, and the certificate of the node that the path names; C(localhost) has none."""
    authority = f"/CN=Proxmox Virtual Environment/OU={call.cluster.authority}/O=PVE Cluster Manager CA"
    rows = [
        _certificate(call, "pve-root-ca.pem", authority, authority, fingerprint(authority)) | {"public-key-bits": 4096}
    ]
    node = call.cluster.nodes.get(call.node)
    if node is not None:
        subject = f"/OU=PVE Cluster Node/O=Proxmox Virtual Environment/CN={node.name}.lab"
        names = ["127.0.0.1", "localhost", node.address, node.name, f"{node.name}.lab"]
        rows.append(_certificate(call, "pve-ssl.pem", subject, authority, node.fingerprint) | {"san": names})
    return rows


def _certificate(call: Call, file: str, subject: str, issuer: str, digest: str) -> dict[str, Any]:
    began = int(call.cluster.clock.now()) - 86400
    return {
        "filename": file, "subject": subject, "issuer": issuer, "fingerprint": digest, "san": [], "pem": "REDACTED",
        "notbefore": began, "notafter": began + 63072000, "public-key-type": "rsaEncryption", "public-key-bits": 2048,
    }


@route("GET", "/nodes/{node}/status")
def status(call: Call) -> dict[str, Any]:
    cluster, node = call.cluster, call.cluster.nodes[call.node]
    full, repoid = RELEASES[cluster.version]
    used = memory_used(node, guest_memory(cluster)[node.name])
    memory = {"total": node.memory, "used": used, "free": node.memory - used}
    cpu: dict[str, Any] = {
        "cpus": node.cores, "cores": node.cores, "sockets": 1, "model": node.cpu.get("model", "AMD EPYC"),
        "mhz": "2596.122", "hvm": "1", "user_hz": 100, "flags": " ".join(node.cpu.get("flags", CPU_FLAGS)),
    }
    if cluster.modern:
        memory["available"] = node.memory - used
        cpu |= {"family": "26", "vendor": node.cpu.get("vendor", "AuthenticAMD")}
    kernel = node.kernel
    return {
        "cpu": node.cpu_use, "idle": 0, "wait": 0, "uptime": int(cluster.clock.now() - node.booted_at),
        "loadavg": [f"{node.cpu_use * node.cores:.2f}"] * 3, "memory": memory, "cpuinfo": cpu,
        "swap": {"total": 0, "used": 0, "free": 0}, "ksm": {"shared": 0}, "boot-info": {"mode": "efi", "secureboot": 0},
        "rootfs": {
            "total": node.disk, "used": node.disk // 8, "avail": node.disk - node.disk // 8,
            "free": node.disk - node.disk // 8,
        },
        "kversion": f"Linux {kernel} #1 SMP PREEMPT_DYNAMIC", "pveversion": f"pve-manager/{full}/{repoid}",
        "current-kernel": {
            "sysname": "Linux", "release": kernel, "version": "#1 SMP PREEMPT_DYNAMIC",
            "machine": node.cpu.get("machine", "x86_64"),
        },
    }


@route("GET", "/nodes/{node}/hardware/pci")
def hardware_pci(call: Call) -> list[dict[str, Any]]:
    hidden = str(call.get("pci-class-blacklist", "05;06;0b")).split(";")
    rows = call.cluster.nodes[call.node].pci
    shown = [dict(row) for row in rows if str(row.get("class", "0x")).removeprefix("0x")[:2] not in hidden]
    for row in shown:
        if row.pop("mdevs", None) is not None:
            row["mdev"] = 1
    return shown


@route("GET", "/nodes/{node}/hardware/pci/{pci-id-or-mapping}/mdev")
def hardware_mdev(call: Call) -> list[dict[str, Any]]:
    wanted = str(call["pci-id-or-mapping"])
    for row in call.cluster.nodes[call.node].pci:
        if row["id"] == wanted:
            return list(row.get("mdevs", []))
    if wanted in call.cluster.mappings["pci"]:
        return []
    raise parameter_error(pci_id_or_mapping=f"device '{wanted}' not found")


@route("GET", "/nodes/{node}/hardware/usb")
def hardware_usb(call: Call) -> list[dict[str, Any]]:
    return list(call.cluster.nodes[call.node].usb)
