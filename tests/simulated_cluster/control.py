# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control plane below ``/sim``, by which tests read the actual state of the cluster and inject faults."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from . import identity
from .build import add_described_guest
from .cluster import Cluster
from .description import GUEST, DescriptionError
from .load import described
from .model import Guest


def add_routes(app: web.Application, cluster: Cluster) -> None:
    """Register the control plane; bad requests answer 400 with a text."""
    control = Control(cluster)
    routes = (
        ("GET", "/sim/state", control.state), ("GET", "/sim/requests", control.requests),
        ("DELETE", "/sim/requests", control.reset_requests), ("POST", "/sim/faults", control.fault),
        ("DELETE", "/sim/faults", control.clear_faults), ("PUT", "/sim/nodes/{name}", control.set_node),
        ("PUT", "/sim/storages/{name}", control.set_storage), ("POST", "/sim/guests", control.add_guest),
        ("PUT", "/sim/guests/{vmid}", control.set_guest), ("DELETE", "/sim/guests/{vmid}", control.remove_guest),
        ("POST", "/sim/advance", control.advance), ("PUT", "/sim/quorum", control.set_quorum),
        ("DELETE", "/sim/tickets", control.revoke_tickets), ("PUT", "/sim/released", control.release),
    )
    for method, path, handler in routes:
        app.router.add_route(method, path, _answering(handler))


def _answering(handler: Any) -> Any:
    async def serve(request: web.Request) -> web.Response:
        try:
            body = json.loads(await request.read() or b"{}")
            data = handler(request, body)
        except (ValueError, TypeError, DescriptionError) as error:
            return web.json_response({"error": str(error)}, status=400)
        except KeyError as error:
            return web.json_response({"error": f"there is no {error}"}, status=404)
        return web.json_response({"data": data})

    return serve


def take_vmid(cluster: Cluster, values: dict[str, Any]) -> None:
    """Create a guest with the VMID that the request names, on another node if there is one, as another user would."""
    vmid = int(values.get("newid", values.get("vmid", 0)))
    if vmid and vmid not in cluster.guests:
        own = values.get("node")
        node = next((name for name in cluster.nodes if name != own), str(own))
        config = identity.created(cluster, {"name": f"other-{vmid}", "memory": "512", "boot": " "})
        cluster.add_guest(Guest(vmid, node, config=config))


class Control:
    """Handlers of the control plane: ``(request, body) -> data``."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def state(self, request: web.Request, body: dict[str, Any]) -> dict[str, Any]:
        """The actual state, which the API may show later."""
        cluster = self._cluster
        return {
            "version": cluster.version, "now": cluster.clock.now(), "quorate": cluster.quorate,
            "nodes": {
                node.name: {
                    "online": node.online, "maintenance": node.maintenance, "cores": node.cores,
                    "memory": node.memory,
                }
                for node in cluster.nodes.values()
            },
            "guests": {
                str(guest.vmid): {
                    "vmid": guest.vmid, "node": guest.node, "type": guest.kind, "name": guest.name,
                    "status": guest.status, "template": guest.template, "config": guest.config,
                    "pending": guest.pending, "pool": cluster.access.pool_of(guest.vmid), "birth": guest.birth,
                    "cloud_init": guest.cloud_init,
                }
                for guest in cluster.guests.values()
            },
            "storages": {
                storage.name: {
                    "shared": storage.shared, "enabled": storage.enabled,
                    "total": {place or "": size for place, size in storage.sizes.items()},
                    "used": {
                        place or "": storage.base_used.get(place, 0) + storage.allocated.get(place, 0)
                        for place in storage.sizes
                    },
                }
                for storage in cluster.storages.values()
            },
            "volumes": [
                {"volid": volume.volid, "node": volume.place, "size": volume.size, "vmid": volume.vmid}
                for volume in cluster.volumes
            ],
            "ha": {
                "resources": cluster.ha.resources, "groups": cluster.ha.groups, "rules": cluster.ha.rules,
                "states": {sid: cluster.ha.manager_state(sid) for sid in cluster.ha.resources},
            },
            "ceph_flags": sorted(cluster.ceph_flags),
            "options": cluster.options,
            "pools": {name: sorted(pool["vms"]) for name, pool in cluster.access.pools.items()},
            "running_tasks": [task.upid for task in cluster.tasks.recent() if task.running],
        }

    def requests(self, request: web.Request, body: dict[str, Any]) -> list[dict[str, Any]]:
        entries = list(self._cluster.log.entries)
        if request.query.get("reset") == "1":
            self._cluster.log.reset()
        return entries

    def reset_requests(self, request: web.Request, body: dict[str, Any]) -> None:
        self._cluster.log.reset()

    def fault(self, request: web.Request, body: dict[str, Any]) -> None:
        self._cluster.faults.add(body)

    def clear_faults(self, request: web.Request, body: dict[str, Any]) -> None:
        self._cluster.faults.clear()
        for storage in self._cluster.storages.values():
            storage.full = False

    def release(self, request: web.Request, body: dict[str, Any]) -> None:
        self._cluster.faults.release()

    def set_node(self, request: web.Request, body: dict[str, Any]) -> None:
        node = self._cluster.nodes[request.match_info["name"]]
        self._cluster.statistics_settle()
        now = self._cluster.clock.now()
        known = {"online", "maintenance", "cpu_use", "memory_use", "load", "known", "dead_services", "clock_offset",
                 "updates", "kernel", "kernels", "bridges"}
        _only(body, known)
        if "load" in body:
            node.load = described(body["load"], now)
        if body.get("online") is not None and body["online"] != node.online:
            self._cluster.switch_node(node, bool(body["online"]), known=bool(body.get("known", True)))
        if body.get("maintenance") is not None and body["maintenance"] != node.maintenance:
            node.maintenance = bool(body["maintenance"])
            late = self._cluster.timing.maintenance_seconds if body.get("known", True) else 0.0
            node.maintenance_since = now - late if node.maintenance else None
            node.maintenance_ended = None if node.maintenance or body.get("known", True) else now
        for key in ("cpu_use", "memory_use"):
            if body.get(key) is not None:
                setattr(node, key, float(body[key]))
        node.clock_offset = float(body.get("clock_offset", node.clock_offset))
        node.dead_services = list(body.get("dead_services", node.dead_services))
        node.updates = list(body.get("updates", node.updates))
        node.bridges = list(body.get("bridges", node.bridges))
        node.kernel, node.kernels = body.get("kernel", node.kernel), list(body.get("kernels", node.kernels))
        self._cluster.ha.manager.nudge()

    def set_storage(self, request: web.Request, body: dict[str, Any]) -> None:
        storage = self._cluster.storages[request.match_info["name"]]
        self._cluster.statistics_settle()
        _only(body, {"full", "enabled"})
        for key, value in body.items():
            setattr(storage, key, bool(value))

    def add_guest(self, request: web.Request, body: dict[str, Any]) -> None:
        _only(body, GUEST)
        if int(body["vmid"]) in self._cluster.guests:
            raise ValueError(f"guest {body['vmid']} exists already")
        if body["node"] not in self._cluster.nodes:
            raise ValueError(f"there is no node {body['node']!r}")
        add_described_guest(self._cluster, body)

    def set_guest(self, request: web.Request, body: dict[str, Any]) -> None:
        guest = self._cluster.guests[int(request.match_info["vmid"])]
        _only(body, {"config", "pending", "status", "agent", "acpi", "load"})
        if "load" in body:
            guest.load = described(body["load"], self._cluster.clock.now())
        self._cluster.touch(guest)
        for key, value in (body.get("config") or {}).items():
            self._cluster.set_config(guest, **{key: value})
        self._cluster.volumes.add_missing(guest, guest.config)
        guest.pending |= body.get("pending") or {}
        if body.get("status"):
            guest.qmpstatus = body["status"]
            guest.status = "running" if body["status"] == "paused" else body["status"]
            guest.started_at = self._cluster.clock.now()
        for key in ("agent", "acpi"):
            if key in body:
                setattr(guest, key, body[key])

    def remove_guest(self, request: web.Request, body: dict[str, Any]) -> None:
        guest = self._cluster.guests[int(request.match_info["vmid"])]
        for volume in self._cluster.volumes.of_guest(guest.vmid):
            self._cluster.volumes.remove(volume)
        self._cluster.remove_guest(guest)

    def advance(self, request: web.Request, body: dict[str, Any]) -> None:
        self._cluster.statistics_settle()
        self._cluster.clock.skip(float(body["seconds"]))
        self._cluster.statistics_settle()

    def set_quorum(self, request: web.Request, body: dict[str, Any]) -> None:
        self._cluster.quorate = bool(body["quorate"])

    def revoke_tickets(self, request: web.Request, body: dict[str, Any]) -> None:
        self._cluster.tickets.revoke()


def _only(body: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(set(body) - known)
    if unknown:
        raise ValueError(f"unknown option(s) {', '.join(unknown)}; known: {', '.join(sorted(known))}")
