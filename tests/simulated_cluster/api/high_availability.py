# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HA resources, the groups of release 8, and requests to the HA manager."""

from __future__ import annotations

from typing import Any

from ..errors import MODIFIED, die
from ..property_strings import split_list
from ..routing import Call, route

MIGRATED = "ha groups have been migrated to rules"
_NOT_STORED = {"sid", "digest", "delete", "type", "node"}
_OF_GROUPS = {"nodes", "restricted", "nofailback", "comment"}


@route("GET", "/cluster/ha")
def index(call: Call) -> list[dict[str, str]]:
    names = ["status", "resources", "groups"] + (["rules"] if call.cluster.modern else [])
    return [{"id": name} for name in names]


def sid_of(call: Call) -> str:
    """The full resource id: a bare number is a guest of whatever kind it is."""
    text = str(call["sid"])
    if ":" in text:
        return text
    guest = call.cluster.guests.get(int(text))
    return f"ct:{text}" if guest is not None and guest.kind == "lxc" else f"vm:{text}"


def _row(call: Call, sid: str) -> dict[str, Any]:
    ha = call.cluster.ha
    return {**ha.resources[sid], "sid": sid, "digest": ha.digest(ha.resources)}


def _checked_row(call: Call, sid: str) -> dict[str, Any]:
    """A row of the list, which alone says what is wrong."""
    ha, row = call.cluster.ha, _row(call, sid)
    group = row.get("group")
    if group is not None and group not in ha.groups:
        row["errors"] = {"group": f"group '{group}' does not exist"}
    return row


@route("GET", "/cluster/ha/resources")
def resources(call: Call) -> list[dict[str, Any]]:
    wanted, entries = call.get("type"), call.cluster.ha.resources
    rows = [_checked_row(call, sid) for sid, entry in entries.items() if wanted in (None, entry["type"])]
    return call.cluster.shuffled(rows)


@route("GET", "/cluster/ha/resources/{sid}")
def resource(call: Call) -> dict[str, Any]:
    sid = sid_of(call)
    if sid not in call.cluster.ha.resources:
        raise die(f"no such resource '{sid}'")
    return _row(call, sid)


def _refuse_group(call: Call) -> None:
    if call.cluster.modern and call.get("group") is not None:
        raise die(f"invalid parameter 'group': {MIGRATED}")


@route("POST", "/cluster/ha/resources")
async def add_resource(call: Call) -> None:
    _refuse_group(call)
    sid, ha = sid_of(call), call.cluster.ha
    if ha.guest_of(sid) is None:
        raise die(f"resource '{sid}' does not exist in cluster")
    await call.cluster.need_quorum_for("create resource", "domain-ha")
    if sid in ha.resources:
        raise die(f"create resource failed: resource ID '{sid}' already defined")
    ha.add(sid, {key: value for key, value in call.values.items() if key not in _NOT_STORED})


@route("PUT", "/cluster/ha/resources/{sid}")
async def change_resource(call: Call) -> None:
    _refuse_group(call)
    sid, ha = sid_of(call), call.cluster.ha
    if call.get("group") and call["group"] not in ha.groups:
        raise die(f"HA group '{call['group']}' does not exist")
    await call.cluster.need_quorum_for("update resources config", "domain-ha")
    if call.get("digest") and call["digest"] != ha.digest(ha.resources):
        raise die(f"update resources config failed: {MODIFIED}")
    if sid not in ha.resources:
        raise die(f"update resources config failed: no such resource '{sid}'")
    ha.resources[sid] |= {key: value for key, value in call.values.items() if key not in _NOT_STORED}
    for option in split_list(call.get("delete")):
        ha.resources[sid].pop(option, None)
    ha.act(sid)


@route("DELETE", "/cluster/ha/resources/{sid}")
async def delete_resource(call: Call) -> None:
    sid = sid_of(call)
    if sid not in call.cluster.ha.resources:
        raise die(f"cannot delete service '{sid}', not HA managed!")
    await call.cluster.need_quorum_for("delete resource", "domain-ha")
    call.cluster.ha.remove(sid, from_rules=bool(call.get("purge", 1)))


@route("POST", "/cluster/ha/resources/{sid}/migrate", "/cluster/ha/resources/{sid}/relocate")
def migrate(call: Call) -> dict[str, Any] | None:
    """A request to the manager, which may never be carried out."""
    ha, sid, target = call.cluster.ha, sid_of(call), str(call["node"])
    if sid not in ha.resources:
        raise die(f"resource '{sid}' is not HA managed")
    answer: dict[str, Any] = {"sid": sid, "requested-node": target}
    enemies, partners = ha.blocking(sid, target), ha.partners(sid)
    if ha.located().get(sid) == target:
        return answer if call.cluster.modern else None
    if enemies:
        answer["blocking-resources"] = [{"sid": enemy, "cause": "resource-affinity"} for enemy in enemies]
    else:
        ha.manager.request(sid, call.path.rpartition("/")[2], target)
        if partners:
            answer["comigrated-resources"] = partners
    return answer if call.cluster.modern else None


def _need_groups(call: Call, verb: str) -> None:
    if call.cluster.modern:
        raise die(f"cannot {verb}: {MIGRATED}")


def _group_row(call: Call, name: str) -> dict[str, Any]:
    ha = call.cluster.ha
    # Proxmox keeps the nodes in a hash: their order is another each time.
    nodes = ",".join(call.cluster.shuffled(split_list(ha.groups[name].get("nodes"))))
    return {**ha.groups[name], "nodes": nodes, "group": name, "type": "group", "digest": ha.digest(ha.groups)}


@route("GET", "/cluster/ha/groups")
def groups(call: Call) -> list[dict[str, Any]]:
    _need_groups(call, "index groups")
    return [_group_row(call, name) for name in call.cluster.ha.groups]


@route("GET", "/cluster/ha/groups/{group}")
def group(call: Call) -> dict[str, Any]:
    _need_groups(call, "read group")
    if call["group"] not in call.cluster.ha.groups:
        raise die(f"no such ha group '{call['group']}'")
    return _group_row(call, call["group"])


@route("POST", "/cluster/ha/groups")
def create_group(call: Call) -> None:
    _need_groups(call, "create group")
    name, ha = str(call["group"]), call.cluster.ha
    if name in ha.groups:
        raise die(f"create ha group failed: ha group ID '{name}' already defined")
    ha.groups[name] = {key: value for key, value in call.values.items() if key not in ("group", "type", "digest")}


@route("PUT", "/cluster/ha/groups/{group}")
def change_group(call: Call) -> None:
    _need_groups(call, "update group")
    name, ha = str(call["group"]), call.cluster.ha
    if name not in ha.groups:
        raise die(f"update ha group failed: no such ha group '{name}'")
    if call.get("digest") and call["digest"] != ha.digest(ha.groups):
        raise die(f"update ha group failed: {MODIFIED}")
    for option in split_list(call.get("delete")):
        if option not in _OF_GROUPS:
            raise die(f"update ha group failed: no such option '{option}'")
        if option == "nodes":
            raise die("update ha group failed: unable to delete required option 'nodes'")
    ha.groups[name] |= {
        key: value for key, value in call.values.items() if key not in ("group", "type", "digest", "delete")
    }
    for option in split_list(call.get("delete")):
        ha.groups[name].pop(option, None)


@route("DELETE", "/cluster/ha/groups/{group}")
def delete_group(call: Call) -> None:
    _need_groups(call, "delete group")
    name, ha = str(call["group"]), call.cluster.ha
    for sid, entry in ha.resources.items():
        if entry.get("group") == name:
            raise die(f"delete ha group failed: ha group is used by service '{sid}'")
    ha.groups.pop(name, None)
