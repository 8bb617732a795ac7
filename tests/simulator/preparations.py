# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The states that the lab was in when a recording was made, each brought about by a small step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from simulated_cluster.access import AclEntry
from simulated_cluster.build import add_described_guest
from simulator.lab import Lab

Step = Callable[[Lab], Awaitable[None]]


def config(vmid: int, **options: Any) -> Step:
    """Set options in a guest's config."""

    async def step(lab: Lab) -> None:
        lab.cluster.set_config(lab.cluster.guests[vmid], **options)

    return step


def running(vmid: int, **state: Any) -> Step:
    async def step(lab: Lab) -> None:
        guest = lab.cluster.guests[vmid]
        lab.cluster.touch(guest)
        guest.status = guest.qmpstatus = "running"
        guest.started_at = lab.cluster.clock.now() - 100
        for name, value in state.items():
            setattr(guest, name, value)

    return step


def without(*vmids: int) -> Step:
    async def step(lab: Lab) -> None:
        for vmid in vmids:
            for volume in lab.cluster.volumes.of_guest(vmid):
                lab.cluster.volumes.remove(volume)
            lab.cluster.remove_guest(lab.cluster.guests[vmid])

    return step


def guest(vmid: int, node: str = "pve1", **described: Any) -> Step:
    async def step(lab: Lab) -> None:
        add_described_guest(lab.cluster, {"vmid": vmid, "node": node, "name": "x", "memory": 128, **described})

    return step


def on(vmid: int, node: str) -> Step:
    async def step(lab: Lab) -> None:
        lab.cluster.guests[vmid].node = node
        for volume in lab.cluster.volumes.of_guest(vmid):
            if volume.place is not None:
                lab.cluster.volumes.remove(volume)
                volume.place = node
                lab.cluster.volumes.add(volume)

    return step


async def on_recorded_node(lab: Lab) -> None:
    """VM 111 had been moved before in the lab of release 9."""
    if lab.cluster.modern:
        await on(111, "pve2")(lab)


def asked(method: str, path: str, params: dict[str, Any] | None = None, auth: str = "root@pam") -> Step:
    """A request that went before, its task followed to its end."""

    async def step(lab: Lab) -> None:
        response = await lab.ask(method, path, params, auth)
        assert response.status == 200, (path, params, await response.text())
        answer = await response.json()
        if isinstance(answer["data"], str) and answer["data"].startswith("UPID:"):
            assert (await lab.finish(answer["data"]))["exitstatus"] == "OK"

    return step


def forgotten(*names: str) -> Step:
    """Remove users, roles, pools, storages, mappings or tokens of these names, whichever there are."""

    async def step(lab: Lab) -> None:
        access = lab.cluster.access
        for name in names:
            user, _, token = name.partition("!")
            if token:
                access.users[user].tokens.pop(token, None)
                continue
            for known in (access.users, access.roles, access.pools, lab.cluster.storages):
                known.pop(name, None)
            for mappings in lab.cluster.mappings.values():
                mappings.pop(name, None)
        access.changed()

    return step


def acl(path: str, user: str, role: str) -> Step:
    async def step(lab: Lab) -> None:
        lab.cluster.access.acl.append(AclEntry(path, "user", user, role))
        lab.cluster.access.changed()

    return step


def options(**values: Any) -> Step:
    async def step(lab: Lab) -> None:
        lab.cluster.options.update({name.replace("_", "-"): value for name, value in values.items()})

    return step


def offline(*names: str, seconds: int = 60) -> Step:
    """Nodes that have been gone for some time."""

    async def step(lab: Lab) -> None:
        for name in names:
            node = lab.cluster.nodes[name]
            node.online, node.offline_since = False, lab.cluster.clock.now() - seconds

    return step


async def maintained(lab: Lab) -> None:
    """Node pve3 has been in maintenance for some time."""
    node = lab.cluster.nodes["pve3"]
    node.maintenance, node.maintenance_since = True, lab.cluster.clock.now() - 60


async def disarmed(lab: Lab) -> None:
    """HA is switched off, its resources left as they are."""
    lab.cluster.ha.manager.disarmed = "freeze"


async def no_quorum(lab: Lab) -> None:
    lab.cluster.quorate = False


def managed(*vmids: int, **options: Any) -> Step:
    """Put guests under HA, long enough ago for the manager to have acted."""

    async def step(lab: Lab) -> None:
        for vmid in vmids:
            lab.cluster.ha.resources[f"vm:{vmid}"] = {"sid": f"vm:{vmid}", "type": "vm", "state": "started", **options}
        lab.cluster.ha.ever_active = True

    return step


def rules(**entries: dict[str, Any]) -> Step:
    async def step(lab: Lab) -> None:
        lab.cluster.ha.rules.update(entries)

    return step


def node_rule(resources: str, nodes: str, **more: Any) -> dict[str, Any]:
    return {"type": "node-affinity", "resources": resources, "nodes": nodes, **more}


def resource_rule(affinity: str, resources: str, **more: Any) -> dict[str, Any]:
    return {"type": "resource-affinity", "affinity": affinity, "resources": resources, **more}


async def g12(lab: Lab) -> None:
    """The HA group of release 8; release 9 has none."""
    if not lab.cluster.modern:
        lab.cluster.ha.groups["g12"] = {"nodes": "pve1:2,pve2:1", "restricted": 1}


LABCPU = asked("POST", "/cluster/qemu/custom-cpu-models", {
    "cputype": "labcpu", "reported-model": "Skylake-Server", "flags": "+aes;-pcid", "phys-bits": "host"})
VM_113 = guest(113, "pve2")
HA_ALL = managed(101, 104, 105, 111, 113, 120)
PREFER = rules(prefer12=node_rule("vm:101,vm:120", "pve1:2,pve2:1", comment="prefer pve1"))
PREFER_FLAT = rules(prefer12=node_rule("vm:101,vm:120", "pve1,pve2", comment="prefer pve1"))
OFF3 = rules(off3=node_rule("vm:120", "pve3", disable=1))
ONLY2 = rules(only2=node_rule("vm:113", "pve2", strict=1))
TOGETHER = rules(together=resource_rule("positive", "vm:104,vm:111"))
APART = rules(apart=resource_rule("negative", "vm:105,vm:120", comment="keep apart"))
HA_LAB = (VM_113, HA_ALL, PREFER, OFF3, ONLY2)
HA_FLAT = (VM_113, HA_ALL, PREFER_FLAT, OFF3, ONLY2, TOGETHER, APART)
VM_805 = guest(805, name="t", memory=64, pool="lab")
OP3 = (acl("/vms", "op3@pve", "LabVM"), acl("/pool/lab", "op3@pve", "LabVM"),
       acl("/storage/vmdata", "op3@pve", "PVEDatastoreUser"))
