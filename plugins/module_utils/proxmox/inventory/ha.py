# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the HA rules, or before Proxmox VE 9 the HA groups, and which nodes are in maintenance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...errors import ApiError
from ...model import HARule, Node
from ..api.failures import NotImplementedHere, NotRecorded
from ..api.reader import Reader
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
    try:
        groups: list[Row] = reader.get("/cluster/ha/groups")
    except (ApiError, NotRecorded):
        return ()
    if not groups:
        return ()
    resources: list[Row] = reader.get("/cluster/ha/resources")
    return tuple(
        HARule(
            name=group["group"],
            type="node-affinity",
            vmids=_vmids(row["sid"] for row in resources if row.get("group") == group["group"]),
            nodes=_nodes(group),
            strict=bool(group.get("restricted")),
            from_group=True,
        )
        for group in groups
    )


def _rule(row: Row) -> HARule:
    return HARule(
        name=row["rule"],
        type=row["type"],
        vmids=_vmids(str(row.get("resources") or "").split(",")),
        nodes=_nodes(row),
        strict=bool(row.get("strict")),
        positive=row.get("affinity", "positive") == "positive",
        # The HA manager ignores a rule with errors. This one ends when a second guest joins.
        disabled=bool(row.get("disable") or row.get("errors") not in (None, {}, _ALONE)),
    )


def _vmids(resources: Iterable[str]) -> frozenset[int]:
    """Return the ids of resources such as C(vm:100) and C(ct:101)."""
    return frozenset(int(match[1]) for match in map(re.compile(r"(?:vm|ct):(\d{1,9})").fullmatch, resources) if match)


def _nodes(row: Row) -> Mapping[str, int]:
    """Return the nodes of C(pve1:2,pve2) with their priorities, 0 where none is given."""
    entries = map(re.compile(r"([^:]+)(?::(\d{1,9}))?").fullmatch, str(row.get("nodes") or "").split(","))
    return {entry[1]: int(entry[2] or 0) for entry in entries if entry}
