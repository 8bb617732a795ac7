# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a tour: what it has set and begun on the cluster, so that any later run can go on with it or undo it.

Like the marks of drained nodes, it is an empty pool, which has the record in its comment. It is written before what it
says is done. A user who may change the pool may change the comment: it is a hint, and a guest that was shut down is
started again only if it is the one that was there.
"""

from __future__ import annotations

import json
import re
import typing as t
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from ...model import Guest
from ..api.session import Session
from . import own_pools
from .drain_marks import FINGERPRINT

POOL = "maintenance-tour"
NOOUT, BALANCE = "noout", "ha-auto-rebalance"

_COMMENT = "qemu_scheduler.proxmox maintains nodes: "


@dataclass(frozen=True, slots=True)
class TourRecord:
    """What a tour has done.

    Attributes:
        begun: the nodes whose maintenance was begun and has not ended.
        done: the nodes that were maintained, with the time of the end in seconds.
        settings: what it has set: C(noout) of Ceph, or that the HA manager does not balance the nodes.
        off: the guests that it has shut down, by node and VMID, each with its fingerprint.
        in_maintenance: the nodes that it puts into HA maintenance.
        agents: the VMs whose guest agents answered before the maintenance of their node, by node.
    """

    begun: tuple[str, ...] = ()
    done: Mapping[str, int] = field(default_factory=dict)
    settings: frozenset[str] = frozenset()
    off: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    in_maintenance: frozenset[str] = frozenset()
    agents: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def with_begun(self, node: str) -> TourRecord:
        return self if node in self.begun else replace(self, begun=(*self.begun, node))

    def with_off(self, node: str, guests: Mapping[int, str]) -> TourRecord:
        return replace(self, off={**self.off, node: {**self.off.get(node, {}), **guests}}) if guests else self

    def may_stay_off(self, guest: Guest) -> bool:
        """Whether a guest is off on the node on which the tour has shut down one with its VMID."""
        return not guest.running and self.may_be_shut_down(guest)

    def may_be_shut_down(self, guest: Guest) -> bool:
        """Whether the tour has shut down, or was about to, a guest with this VMID on this node."""
        return guest.vmid in self.off.get(guest.node, {})

    def with_done(self, node: str, now: float) -> TourRecord:
        begun = tuple(name for name in self.begun if name != node)
        agents = {name: vmids for name, vmids in self.agents.items() if name != node}
        return replace(self, begun=begun, done={**self.done, node: int(now)}, agents=agents)


def read_record(session: Session, members: Collection[str]) -> TourRecord | None:
    """Read the record; None if there is none. What is not understood of it is left out. One request.

    members are the nodes of the cluster: names of others would become hosts that the role logs in to.
    """
    data = own_pools.read_record(session, POOL, _COMMENT)
    return None if data is None else record_of(data, members)


def record_of(data: Mapping[str, t.Any], members: Collection[str]) -> TourRecord:
    """Return the record that a comment holds, without what no record of a cluster with these nodes has."""

    def read_list(key: str) -> list[t.Any]:
        value = data.get(key)
        return value if isinstance(value, list) else []

    def read_mapping(value: t.Any) -> Mapping[str, t.Any]:
        return value if isinstance(value, dict) else {}

    def is_node(name: t.Any) -> bool:
        return isinstance(name, str) and name in members

    off = {
        name: {
            int(vmid): mark
            for vmid, mark in read_mapping(guests).items()
            if re.fullmatch(r"\d{1,9}", vmid) and isinstance(mark, str) and re.fullmatch(FINGERPRINT, mark)
        }
        for name, guests in read_mapping(data.get("off")).items()
        if is_node(name)
    }
    return TourRecord(
        begun=tuple(name for name in read_list("begun") if is_node(name)),
        done={
            name: when
            for name, when in read_mapping(data.get("done")).items()
            if is_node(name) and isinstance(when, int) and not isinstance(when, bool)
        },
        settings=frozenset(name for name in read_list("set") if name in (NOOUT, BALANCE)),
        off={name: guests for name, guests in off.items() if guests},
        in_maintenance=frozenset(name for name in read_list("ha_maintenance") if is_node(name)),
        agents={
            name: frozenset(vmid for vmid in vmids if isinstance(vmid, int) and not isinstance(vmid, bool))
            for name, vmids in read_mapping(data.get("agents")).items()
            if is_node(name) and isinstance(vmids, list)
        },
    )


def write_record(session: Session, record: TourRecord, *, there: bool) -> None:
    """Write the record. there: whether the pool was there when it was read."""
    data = {
        "begun": list(record.begun),
        "done": dict(record.done),
        "set": sorted(record.settings),
        "off": {node: {str(vmid): mark for vmid, mark in guests.items()} for node, guests in record.off.items()},
        "ha_maintenance": sorted(record.in_maintenance),
        "agents": {node: sorted(vmids) for node, vmids in record.agents.items()},
    }
    comment = _COMMENT + json.dumps({key: value for key, value in data.items() if value}, sort_keys=True)
    own_pools.write_record(session, POOL, comment, there=there)


def remove_record(session: Session) -> None:
    """Remove the record, if there is one."""
    own_pools.remove_pool(session, POOL)
