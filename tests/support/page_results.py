# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of any size, as the modules return them, for the pages about them."""

from __future__ import annotations

from typing import Any

GIB = 1024**3
MIB_PER_NODE = 262144
REPORTED = ("id", "vmid", "name", "from", "to", "why", "after", "how", "via", "memory", "copied")
"""The keys that the result of a move has of the move in the plan."""


def tour_result(refused: int = 0) -> dict[str, Any]:
    """The maintenance of three nodes, the second of which is under way; or one that is refused."""
    moves = [{"vmid": 100, "together": [101], "memory": GIB, "copied": 0}]
    steps = [
        {"node": name, "needs": ["3 package(s) have updates: curl"], "moves": moves, "back": moves, "shut_down": [104],
         "stay": [105], "votes": 2, "votes_needed": 2, "stranded": "the loss of pve9 would strand VM db (7)"}
        for name in names(3)
    ]  # fmt: skip
    tour = {"goal": "maintain pve1, pve2 and pve3", "steps": steps, "skipped": {"pve4": "it needs no maintenance"}}
    reasons = [{"node": name, "name": "", "why": "it is offline", "cure": "correct that"} for name in names(refused)]
    progress = {"done": ["pve1"], "now": "pve2", "moved": 4}
    return {"tour": tour, "names": {"104": "gpu", "105": "old"}, "refused": reasons, "progress": progress}


def names(count: int) -> list[str]:
    """The nodes of a cluster."""
    return [f"pve{number}" for number in range(1, count + 1)]


def verdict(node: str, score: float | None, reason: str | None = None) -> dict[str, Any]:
    """The entry of a decision about one node: its score, or why it was rejected."""
    parts = {} if score is None else {
        plugin: {"raw": score, "normalized": score, "weight": weight}
        for plugin, weight in (("LeastAllocated", 1), ("StorageBalance", 0.5))
    }
    rejected_by = None if score is not None else "MemoryOvercommit"
    return {"node": node, "feasible": score is not None, "score": score, "scores": parts,
            "rejected_by": rejected_by, "reason": reason}  # fmt: skip


def vm(number: int, nodes: list[str], **more: Any) -> dict[str, Any]:
    """A VM that was created on one of the nodes."""
    chosen = nodes[number % len(nodes)]
    verdicts = [verdict(node, 90.0 if node == chosen else 40 + len(node) + number % 30) for node in nodes[:-1]]
    verdicts.append(verdict(nodes[-1], None, "would exceed the memory overcommit ratio 1.0 (280.0 of 256.0 GiB)"))
    place = {"node": chosen, "vmid": 100 + number, "storages": {"scsi0": "ceph-vm"}}
    message = f'VM "web-{number}" goes to {chosen} as {100 + number}'
    decision = {**place, "score": 90.0, "nodes": verdicts, "message": message, "findings": {}}
    return {"name": f"web-{number}", **place, "status": "running", "changed": True, "actions": ["clone", "start"],
            "not_done": [], "drift": {}, "pending": {}, "decision": decision, **more}  # fmt: skip


def failed(number: int, nodes: list[str]) -> dict[str, Any]:
    """A VM that no node accepts."""
    verdicts = [verdict(node, None, "would exceed the memory overcommit ratio 1.0") for node in nodes]
    decision = {"node": None, "vmid": None, "score": None, "storages": {}, "nodes": verdicts, "findings": {},
                "message": "no node"}  # fmt: skip
    error = {"code": "NoFeasibleNode", "message": f"0/{len(nodes)} nodes are available: would exceed the memory"}
    return vm(number, nodes, name=f"huge-{number}", vmid=None, node=None, actions=[], storages={}, decision=decision,
              error=error)  # fmt: skip


def node(name: str, number: int, guests: int = 0) -> dict[str, Any]:
    """A node before and after a run, with guests if wanted."""
    listed = [{"vmid": 1000 * number + each, "name": f"old-{number}-{each}", "status": "running", "cores": 2,
               "memory": 4096} for each in range(guests)]  # fmt: skip
    used = MIB_PER_NODE * (number % 7 + 1) // 10
    full = 100.0 * (number % 9)
    local = {"storage": "local-zfs", "shared": False, "total": 2000.0, "before": full, "after": full}
    shared = {"storage": "ceph-vm", "shared": True, "total": 80000.0, "before": 16110.5, "after": 25110.5}
    return {"node": name, "online": True, "maintenance": False, "cores": 64, "cores_limit": 256.0,
            "cores_before": 20.0 + number, "cores_after": 40.0 + number, "memory": MIB_PER_NODE,
            "memory_limit": MIB_PER_NODE, "memory_before": used, "memory_after": used + MIB_PER_NODE // 5,
            "storages": [local, shared], "guests": listed}  # fmt: skip


def placement_result(vms: int, nodes: int, *, failures: int = 0, guests: int = 0) -> dict[str, Any]:
    """The result of qemu_schedule."""
    cluster = names(nodes)
    return {
        "changed": True,
        "vms": [vm(number, cluster) for number in range(vms - failures)]
        + [failed(number, cluster) for number in range(vms - failures, vms)],
        "nodes": [node(name, number, guests) for number, name in enumerate(cluster, 1)],
        "check_mode": False,
    }


def load(gib: int, guests: int) -> dict[str, Any]:
    """The allocated amounts of a node."""
    return {"cores": gib // 4, "memory": gib * GIB, "guests": guests}


def moves_result(moves: int, nodes: int, *, done: bool = True, stuck: int = 1) -> dict[str, Any]:
    """The result of node_drain, whose last move failed, after which a second plan continued."""
    cluster = names(nodes)
    planned = [
        {"id": number, "vmid": 100 + number, "name": f"app-{number}", "type": "qemu", "from": cluster[number % 3],
         "to": cluster[3 + (number * number) % (nodes - 3)], "why": f"drains {cluster[number % 3]}",
         "after": [number - 7] if number > 7 and number % 5 == 0 else [], "how": "live",
         "via": "ha" if number % 11 == 0 else "api", "cores": number % 4 + 1,
         "memory": (number % 8 + 1) * GIB, "storages": {}, "sizes": {}, "copied": 0,
         "together": [], "estimate": 9.0}
        for number in range(1, moves + 1)
    ]  # fmt: skip
    reports = [
        {**{key: move[key] for key in REPORTED}, "outcome": "moved", "node": move["to"],
         "seconds": 8.0 + move["id"] % 9}
        for move in planned
    ] if done else []  # fmt: skip
    if done:
        last = reports[-1]
        last.update(outcome="failed", error_code="TaskFailed", msg="migration aborted: no space left on device")
        reports.append({**last, "id": moves + 1, "to": cluster[-2], "outcome": "moved", "seconds": 12.0})
    courses = {
        name: {"allocatable": load(256, 0), "before": load(180, 40), "peak": load(180, 40), "after": load(0, 0)}
        if number < 3
        else {"allocatable": load(256, 0), "before": load(100 + number, 20), "peak": load(150 + 6 * number, 32),
              "after": load(140 + 6 * number, 30)}
        for number, name in enumerate(cluster)
    }  # fmt: skip
    stays = [{"vmid": 900 + number, "name": f"gpu-{number}", "node": cluster[0],
              "why": "it runs with mapped devices (hostpci0: card)", "cure": "stop it, then it can be moved offline"}
             for number in range(stuck)]  # fmt: skip
    plan = {"goal": f"drain {', '.join(cluster[:3])}", "feasible": not stuck, "optimal": None, "impossible": None,
            "moves_lower_bound": None, "moves": planned, "stuck": stays, "nodes": courses}  # fmt: skip
    return {"changed": True, "plan": plan, "moves": reports, "loads": courses, "stuck": stays, "check_mode": not done}


def capacity_result() -> dict[str, Any]:
    """The result of capacity_info."""
    nodes = [
        {"node": "pve1", "fit": 12, "limited_by": "memory", "reason": "would exceed the memory overcommit ratio 1.0"},
        {"node": "pve2", "fit": 25, "limited_by": "cpu", "reason": "would exceed the CPU overcommit ratio 4.0"},
        {"node": "pve3", "fit": 0, "limited_by": "NodeReady", "reason": "were offline"},
    ]
    shapes = [{"name": "app", "fit": 19, "more": 5}, {"name": "db", "fit": 18, "more": 0}]
    reason = "0/3 nodes are available: 1 would exceed the memory"
    return {"total": 37, "limited_by": "memory", "reason": reason, "shapes": shapes, "nodes": nodes}


def fleet_result() -> dict[str, Any]:
    """The result of fleet_info."""
    vm = {"vmid": 104, "node": "pve2", "status": "running", "drift": {}, "pending": {}, "broken": [], "error": None}
    vms = [
        {**vm, "name": "web-1", "state": "ok"},
        {**vm, "name": "web-2", "vmid": 105, "state": "drifted", "drift": {"cores": {"old": 2, "new": 4}},
         "pending": {"memory": {"old": 2048, "new": 4096}}},
        {**vm, "name": "db-1", "vmid": None, "node": None, "status": None, "state": "missing"},
        {**vm, "name": "db-2", "vmid": 106, "state": "broken", "broken": ["it is not apart from db-3 on pve2"]},
    ]  # fmt: skip
    summary = dict.fromkeys(("failed", "missing", "unwanted", "unfinished", "drifted", "broken", "pending", "ok"), 0)
    summary.update(missing=1, drifted=1, broken=1, ok=1, unmanaged=1)
    unmanaged = [{"name": "old-crm", "vmid": 129, "node": "pve5", "status": "stopped", "pool": None, "tags": ["x"]}]
    return {"changed": False, "clean": False, "summary": summary, "vms": vms, "unmanaged": unmanaged, "doubts": []}
