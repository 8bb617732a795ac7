# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The view of a result of qemu_schedule, for a page."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.decisions import (
    KINDS,
    clusters_of,
    findings_of,
    is_held_back,
    kind_of,
    place_of,
    rank_nodes,
    why_of,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.texts import of_one

Data = Mapping[str, t.Any]


def placement(result: Data) -> dict[str, t.Any]:
    """Return the view of a result. Memory is in GiB. VMs that failed come first.

    C(nodes) is empty if the task failed before it read the nodes. C(spare) has the results of spare_without_largest for
    C(memory) and C(cores).
    """
    ordered = sorted(result["vms"], key=lambda vm: KINDS.index(kind_of(vm)))
    vms = [{**_vm(vm), "anchor": f"vm-{number}"} for number, vm in enumerate(ordered, 1)]
    nodes = [_node(_with_cluster(node), vms) for node in result.get("nodes", ())]
    usable = [node for node in nodes if node["online"] and not node["maintenance"]]
    return {
        "clusters": sorted({node["cluster"] for node in nodes if node.get("cluster")}),
        "vms": vms,
        "nodes": nodes,
        "usable": len(usable),
        "shared": _shared_storages(usable),
        "spare": {key: spare_without_largest(usable, key) for key in ("memory", "cores")},
        "placed": sum(1 for vm in vms if _was_placed(vm) and not vm["held_back"]),
        "held_back": sum(1 for vm in vms if vm["held_back"]),
        "existed": sum(1 for vm in vms if not vm.get("decision") and vm["kind"] not in ("failed", "not done")),
        "failed": sum(1 for vm in vms if vm.get("error")),
        "freed": any(n[f"{key}_after"] < n[f"{key}_before"] for n in nodes for key in ("memory", "cores")),
    }


def spare_without_largest(nodes: Sequence[Data], resource: str) -> dict[str, t.Any]:
    """Whether the total allocated amount would fit without the largest node (C(fits)). Only sums are compared.

    C(largest) is the name of that node, C(out) the total allocated amount, C(left) the allocatable amount of the other
    nodes, and C(part) the fraction of its limit up to which each node may be filled so that C(out) stays within
    C(left).
    """
    sizes = {node["node"]: _top(node, resource) for node in nodes}
    whole = sum(sizes.values())
    largest = max(sizes, key=lambda name: (sizes[name], name), default=None)
    left = whole - (sizes[largest] if largest is not None else 0)
    out = sum(node[f"{resource}_after"] for node in nodes)
    return {"largest": largest, "out": out, "left": left, "part": left / whole if whole else 0, "fits": out <= left}


def _vm(vm: Data) -> dict[str, t.Any]:
    """Return a VM as the page shows it."""
    place = {key: place_of(vm).get(key) for key in ("node", "vmid", "storages")}
    if vm.get("cluster") and place["node"]:
        place["node"] = f"{vm['cluster']}/{place['node']}"
    return {
        **vm,
        **place,
        "kind": kind_of(vm),
        "why": why_of(vm),
        "held_back": is_held_back(vm),
        "nodes": _verdicts(vm),
        "findings": [*clusters_of(vm), *findings_of(vm)],
    }


def _was_placed(vm: Data) -> bool:
    return bool(vm.get("decision") and not vm.get("error"))


def _verdicts(vm: Data) -> list[Data]:
    return [{**node, "reason": of_one(node["reason"])} if node["reason"] else node for node in rank_nodes(vm)]


def _top(node: Data, resource: str) -> float:
    limit = node[f"{resource}_limit"]
    return t.cast(float, node[resource] if limit is None else limit)


def _node(node: Data, vms: Sequence[Data]) -> dict[str, t.Any]:
    """Return a node as the page shows it, with the VMs that were placed there."""
    memory = {key: _gib(node[key]) for key in ("memory", "memory_limit", "memory_before", "memory_after")}
    placed = [vm for vm in vms if _was_placed(vm) and vm["node"] == node["node"]]
    return {
        **node,
        **memory,
        "guests": node.get("guests", []),
        "placed": [{key: vm[key] for key in ("name", "vmid", "anchor")} for vm in placed],
    }


def _with_cluster(node: Data) -> Data:
    """Return the node; with several clusters, its name and those of its storages begin with that of the cluster."""
    cluster = node.get("cluster")
    if cluster is None:
        return node
    storages = [{**each, "storage": f"{cluster}/{each['storage']}"} for each in node["storages"]]
    return {**node, "node": f"{cluster}/{node['node']}", "storages": storages}


def _gib(mib: float | None) -> float | None:
    return None if mib is None else mib / 1024


def _shared_storages(nodes: Sequence[Data]) -> list[Data]:
    """Return the shared storages of the nodes, each once, by name."""
    shared = {storage["storage"]: storage for node in nodes for storage in node["storages"] if storage["shared"]}
    return [shared[name] for name in sorted(shared)]
