# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the HA rules, or before Proxmox VE 9 the HA groups, and which nodes are in maintenance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import ApiError
from ...model import HARule, Node
from ..api.failures import NotImplementedHere, NotRecorded
from ..api.reader import Reader
from ..contract import AFFINITIES, CRS, CRS_MODES, GROUP, REQUESTED_STATES, RESOURCE, RULES, unknown_in
from .rows import Row, read_rows

_ALONE = {"resources": ["rule is ineffective as there are less than two resources"]}


def read_ha_rules(reader: Reader) -> tuple[HARule, ...]:
    """Read the HA rules. A group becomes a node-affinity rule with the group's name, marked C(from_group).

    Takes one call if there are rules, two if there are none, and three if there are still groups: before Proxmox VE 9,
    and after an upgrade to it until the HA manager has converted its groups to rules.

    Raises PermissionDenied without Sys.Audit on C(/).
    """
    rules = _read_rules(reader)
    # Groups that are not converted yet are listed as rules, to which nothing can be added.
    if all(rule.name.startswith("ha-group-") for rule in rules):
        return _read_groups(reader) or rules
    return rules


def with_resources(reader: Reader, rules: Sequence[HARule]) -> tuple[tuple[HARule, ...], dict[int, str]]:
    """Return the rules with the members that stay on a node which the HA manager prefers less, and what this version
    does not know of HA resources, by VMID. One call.

    Before Proxmox VE 9, groups decide where members stay, not resources.
    """
    rows: list[Row] = reader.get("/cluster/ha/resources")
    # Since 9, failback belongs to the resource, and is on unless it is switched off.
    staying = _vmids(row["sid"] for row in rows if not int(row.get("failback", 1)))
    unknown = {vmid: text for row in rows if (text := _unknown_in_resource(row)) for vmid in _vmids([row["sid"]])}
    return tuple(
        rule if rule.from_group else replace(rule, no_failback=rule.vmids & staying) for rule in rules
    ), unknown


def depend_on_failback(rules: Iterable[HARule]) -> bool:
    """Whether some rule prefers some of the nodes on which its members may be."""
    active = (rule for rule in rules if rule.type == "node-affinity" and not (rule.disabled or rule.from_group))
    return any(not rule.strict or len(set(rule.nodes.values())) > 1 for rule in active)


@dataclass(frozen=True, slots=True)
class ResourceScheduling:
    """What the datacenter's option crs says.

    Attributes:
        auto_rebalance: whether the HA manager moves guests by itself to balance the nodes.
        unknown: what this version does not know of it, as a noun.
    """

    auto_rebalance: bool = False
    unknown: str = ""


def read_crs(reader: Reader) -> ResourceScheduling:
    """Read how the HA manager chooses nodes, in one call. Nothing is known of it without Sys.Audit on C(/)."""
    try:
        setting = reader.get("/cluster/options").get("crs")
    except (ApiError, NotRecorded):
        return ResourceScheduling()
    if not isinstance(setting, Mapping):
        return ResourceScheduling(unknown=f"the value {setting!r}" if setting else "")
    mode = str(setting.get("ha", "basic"))
    unknown = unknown_in(setting, CRS) or ("" if mode in CRS_MODES else f"the mode {mode!r}")
    return ResourceScheduling(bool(int(setting.get("ha-auto-rebalance") or 0)), unknown)


def with_maintenance(reader: Reader, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return nodes with maintenance set for those that the HA daemon on the node reports as in maintenance. One call.

    C(/cluster/resources) shows it some ten seconds later. A user without Sys.Audit on C(/) sees it only there.
    """
    emptied = {
        row.get("node")
        for row in read_rows(reader, "/cluster/ha/status/current") or ()
        if row.get("type") == "lrm" and "(maintenance mode" in (row.get("status") or "")
    }
    return tuple(replace(node, maintenance=True) if node.name in emptied else node for node in nodes)


def _read_rules(reader: Reader) -> tuple[HARule, ...]:
    try:
        rows: list[Row] = reader.get("/cluster/ha/rules")
    except (NotImplementedHere, NotRecorded):
        return ()
    return tuple(_rule(row) for row in rows)


def _read_groups(reader: Reader) -> tuple[HARule, ...]:
    """Read the HA groups of releases before 9, as node-affinity rules."""
    try:
        groups: list[Row] = reader.get("/cluster/ha/groups")
    except (ApiError, NotRecorded):
        return ()
    if not groups:
        return ()
    # A group does not list its members: each resource names its group.
    resources: list[Row] = reader.get("/cluster/ha/resources")
    members = {
        group["group"]: _vmids(row["sid"] for row in resources if row.get("group") == group["group"])
        for group in groups
    }
    return tuple(
        HARule(
            name=group["group"],
            type="node-affinity",
            vmids=members[group["group"]],
            nodes=_nodes(group),
            strict=bool(group.get("restricted")),
            from_group=True,
            unknown=unknown_in(group, GROUP),
            no_failback=members[group["group"]] if int(group.get("nofailback") or 0) else frozenset(),
        )
        for group in groups
    )


def _rule(row: Row) -> HARule:
    """Return the HA rule of a row."""
    return HARule(
        name=row["rule"],
        type=row["type"],
        vmids=_vmids(str(row.get("resources") or "").split(",")),
        nodes=_nodes(row),
        strict=bool(row.get("strict")),
        # Rules about nodes have the key since pve-ha-manager 5.2.5 only.
        positive=row.get("affinity", "positive") == "positive",
        # The HA manager ignores a rule with errors. This one ends when a second guest joins.
        disabled=bool(row.get("disable") or row.get("errors") not in (None, {}, _ALONE)),
        unknown=_unknown_in_rule(row),
    )


def _unknown_in_rule(row: Row) -> str:
    kind, affinity = str(row["type"]), row.get("affinity", "positive")
    if kind not in RULES:
        return f"the type {kind!r}"
    return f"the affinity {affinity!r}" if affinity not in AFFINITIES else unknown_in(row, RULES[kind])


def _unknown_in_resource(row: Row) -> str:
    state = row.get("state", "started")
    return unknown_in(row, RESOURCE) or ("" if state in REQUESTED_STATES else f"the requested state {state!r}")


def _vmids(resources: Iterable[str]) -> frozenset[int]:
    """Return the ids of resources such as C(vm:100) and C(ct:101)."""
    return frozenset(int(match[1]) for match in map(re.compile(r"(?:vm|ct):(\d{1,9})").fullmatch, resources) if match)


def _nodes(row: Row) -> Mapping[str, int]:
    """Return the nodes of C(pve1:2,pve2) with their priorities, 0 where none is given.

    A group may name a node twice, in an order that is another at each read. The highest priority counts.
    """
    entries = map(re.compile(r"([^:]+)(?::(\d{1,9}))?").fullmatch, str(row.get("nodes") or "").split(","))
    return dict(sorted((entry[1], int(entry[2] or 0)) for entry in entries if entry))


def ask_if_ha_has_resources(reader: Reader) -> bool:
    """Whether the HA manager manages any guest. One call, which needs Sys.Audit on C(/)."""
    return bool(reader.get("/cluster/ha/resources"))


def in_maintenance(reader: Reader) -> frozenset[str]:
    """Return the nodes that are in HA maintenance, enter it or leave it. One call, which needs Sys.Audit on C(/)."""
    answer = reader.get("/cluster/ha/status/manager_status")
    of_nodes = (answer.get("manager_status") or {}).get("node_status") or {}
    # The manager learns of the mode of a node's HA daemon only in its next round, up to ten seconds later.
    modes = {name: (status or {}).get("mode") for name, status in (answer.get("lrm_status") or {}).items()}
    return frozenset(name for found in (of_nodes, modes) for name, state in found.items() if state == "maintenance")
