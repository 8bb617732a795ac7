# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HA rules of release 9: node affinity and resource affinity, refused in Proxmox's words."""

from __future__ import annotations

from typing import Any

from .. import ha_rules
from ..errors import MODIFIED, die
from ..property_strings import split_list
from ..routing import Call, route

_NOT_STORED = {"rule", "digest", "delete"}


@route("GET", "/cluster/ha/rules")
def rules(call: Call) -> list[dict[str, Any]]:
    rows = call.cluster.ha.rule_rows()
    if call.get("type"):
        rows = [row for row in rows if row["type"] == call["type"]]
    if call.get("resource"):
        rows = [row for row in rows if call["resource"] in ha_rules.resources_of(row)]
    return rows


@route("GET", "/cluster/ha/rules/{rule}")
def rule(call: Call) -> dict[str, Any]:
    for row in call.cluster.ha.rule_rows():
        if row["rule"] == call["rule"]:
            return row
    raise die(f"no such ha rule '{call['rule']}'")


@route("POST", "/cluster/ha/rules")
async def create(call: Call) -> None:
    name, known = str(call["rule"]), call.cluster.ha.rules
    await call.cluster.need_quorum_for("create ha rule", "domain-ha")
    if name in known:
        raise die(f"create ha rule failed: HA rule '{name}' already defined")
    entry = _stored(call)
    _check_members(call, entry, "create ha rule failed")
    _accept(call, name, entry, "create ha rule failed")


@route("PUT", "/cluster/ha/rules/{rule}")
async def change(call: Call) -> None:
    name, ha = str(call["rule"]), call.cluster.ha
    what = "update HA rules failed"
    await call.cluster.need_quorum_for("update HA rules", "domain-ha")
    if name not in ha.rules:
        raise die(f"{what}: HA rule '{name}' does not exist")
    if call.get("digest") and call["digest"] != ha.digest(ha.rules):
        raise die(f"{what}: {MODIFIED}")
    if call["type"] != ha.rules[name]["type"]:
        raise die(f"{what}: unexpected property 'type'")
    new = _stored(call)
    # Proxmox ignores disable=0 on a change: only delete=disable switches a rule on again.
    if new.get("disable") == 0:
        del new["disable"]
    entry = {**ha.rules[name], **new}
    for option in split_list(call.get("delete")):
        entry.pop(option, None)
    _check_members(call, entry, what)
    _accept(call, name, entry, what)


@route("DELETE", "/cluster/ha/rules/{rule}")
async def delete(call: Call) -> None:
    await call.cluster.need_quorum_for("delete ha rule", "domain-ha")
    call.cluster.ha.rules.pop(str(call["rule"]), None)


def _stored(call: Call) -> dict[str, Any]:
    entry = {key: value for key, value in call.values.items() if key not in _NOT_STORED}
    if "resources" in entry:
        sids = set(split_list(entry["resources"]))
        entry["resources"] = ",".join(sorted(sids, key=lambda sid: (sid.partition(":")[0], _number(sid))))
    if "nodes" in entry:
        entry["nodes"] = ",".join(sorted(set(split_list(entry["nodes"]))))
    for flag in ("strict", "disable"):
        if entry.get(flag) == 0 and call.method == "POST":
            del entry[flag]
    return entry


def _number(sid: str) -> int:
    text = sid.partition(":")[2]
    return int(text) if text.isdigit() else 0


def _check_members(call: Call, entry: dict[str, Any], what: str) -> None:
    ha = call.cluster.ha
    sids = ha_rules.resources_of(entry)
    if not sids:
        raise die(f"{what}: no resources were specified")
    if entry["type"] == "node-affinity" and not entry.get("nodes"):
        raise die(f"{what}: no nodes were specified")
    unmanaged = [sid for sid in sids if sid not in ha.resources]
    if unmanaged:
        raise die(f"{what}: cannot use unmanaged resource(s) {', '.join(unmanaged)}.")
    absent = [node for node in ha_rules.nodes_of(entry) if node not in call.cluster.nodes]
    if absent:
        raise die(f"{what}: cannot use non-existent node(s) {', '.join(absent)}.")


def _accept(call: Call, name: str, entry: dict[str, Any], what: str) -> None:
    ha = call.cluster.ha
    wrong = ha_rules.problems({**ha.rules, name: entry}, len(call.cluster.nodes)).get(name)
    of_nodes = ha_rules.problems_of_nodes(entry, len(call.cluster.nodes))
    if of_nodes:
        raise die(f"{what}: 400 Rule '{name}' is invalid.\nnodes: {', '.join(of_nodes)}")
    if wrong:
        raise die(f"{what}: 400 Rule '{name}' is invalid.\nresources: {', '.join(wrong)}")
    ha.rules[name] = entry
    ha.manager.nudge()
