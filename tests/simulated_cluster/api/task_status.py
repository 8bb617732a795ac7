# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks: status, log, lists and stopping."""

from __future__ import annotations

import re
from typing import Any

from ..access import Identity
from ..errors import parameter_error
from ..routing import Call, Reply, route
from ..tasks import Task

_UPID = re.compile(r"UPID:[a-zA-Z0-9-]+:[0-9A-Fa-f]{8}:[0-9A-Fa-f]{8,9}:[0-9A-Fa-f]{8}:[^:\s]+:[^:\s]*:[^:\s]+:")


def _find(call: Call) -> Task | None:
    upid = str(call["upid"])
    if not _UPID.fullmatch(upid):
        raise parameter_error(upid="unable to parse worker upid")
    owner = upid.split(":")[7]
    if owner != call.who.full and not (call.who.token is None and owner.partition("!")[0] == call.who.user):
        call.require(f"/nodes/{call.node}", "Sys.Audit")
    task = call.cluster.tasks.find(upid)
    return task if task is not None and task.node == call.node else None


@route("GET", "/nodes/{node}/tasks/{upid}/status")
def status(call: Call) -> dict[str, Any]:
    task = _find(call)
    if task is None:
        raise parameter_error(upid="no such task")
    return task.status()


@route("GET", "/nodes/{node}/tasks/{upid}/log")
def log(call: Call) -> Reply:
    task = _find(call)
    if task is None:
        line = {"n": 1, "t": "unable to open file - No such file or directory"}
        return Reply([line] if call.cluster.modern else line, {"total": 1})
    start, limit = int(call.get("start", 0)), int(call.get("limit", 50))
    lines = [{"n": number, "t": text} for number, text in enumerate(task.log, start=1)]
    shown = lines[start:] if limit == 0 else lines[start : start + limit]
    return Reply(shown or [{"n": 1, "t": "no content"}], {"total": len(lines)})


@route("DELETE", "/nodes/{node}/tasks/{upid}")
async def stop(call: Call) -> None:
    task = _find(call)
    if task is None:
        raise parameter_error(upid="no such task")
    await call.cluster.tasks.stop(task)


@route("GET", "/nodes/{node}/tasks")
def node_tasks(call: Call) -> Reply:
    source = call.get("source", "archive")
    audit = call.allowed(f"/nodes/{call.node}", "Sys.Audit")
    rows = []
    for task in call.cluster.tasks.of_node(call.node):
        if (task.running and source == "archive") or (not task.running and source == "active"):
            continue
        if (audit or _is_by(task, call.who)) and _wanted(call, task):
            rows.append(task.node_row(active=source != "archive"))
    start, limit = int(call.get("start", 0)), int(call.get("limit", 50))
    return Reply(rows[start : start + limit] if limit else rows[start:], {"total": len(rows)})


def _is_by(task: Task, who: Identity) -> bool:
    """In a node's list a token sees its own tasks, and a user those of its tokens as well."""
    return task.who.full == who.full or _own(task, who)


def _own(task: Task, who: Identity) -> bool:
    """In the cluster's list Proxmox compares the full token name with the plain user: a token sees none of its own."""
    return who.token is None and task.who.user == who.user


def _wanted(call: Call, task: Task) -> bool:
    if call.get("vmid") is not None and task.id != str(call["vmid"]):
        return False
    if call.get("typefilter") and task.kind != call["typefilter"]:
        return False
    if call.get("userfilter") and call["userfilter"] not in task.who.full:
        return False
    if call.get("errors") and (task.exitstatus in (None, "OK")):
        return False
    if call.get("since") and task.starttime < int(call["since"]):
        return False
    return not (call.get("until") and task.starttime > int(call["until"]))


@route("GET", "/cluster/tasks")
def cluster_tasks(call: Call) -> list[dict[str, Any]]:
    audit = call.allowed("/", "Sys.Audit")
    rows = [task.cluster_row() for task in call.cluster.tasks.recent() if audit or _own(task, call.who)]
    return call.cluster.shuffled(rows)
