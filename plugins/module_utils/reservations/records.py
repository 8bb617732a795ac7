# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the ledger keeps: reservations, and how long things are valid."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from ..model import AffinityTerm, Selector
from .holder import Holder

Phase = t.Literal["reserved", "binding", "created"]


@dataclass(frozen=True, slots=True)
class Durations:
    """How long things are valid without a sign of life, in seconds.

    lease must exceed the longest scheduling cycle, or slow schedulers take it from each other and none gets on.
    reservation is valid from the reserving or the last renewal; renewal is how often a binder should renew. created
    is how long a created VM is still counted: longer than Proxmox needs to show its real sizes (about ten seconds).
    """

    lease: float = 15.0
    reservation: float = 60.0
    renewal: float = 20.0
    created: float = 60.0


@dataclass(frozen=True, slots=True)
class Reservation:
    """A decision that others must count although Proxmox does not show it yet, or not with its real sizes.

    memory is in bytes; storage_bytes maps (storage, node) to bytes; devices are (node, device id), one entry per use.
    running tells whether the VM will run. apart (the required terms that keep other VMs away) and ha_rule (the HA rule
    or group that it joins) are those of Guest: the cluster does not show them. holder, created and expires (seconds
    since the epoch, by the ledger's clock) are set by the ledger. phase: C(reserved) before anything was sent to
    Proxmox, C(binding) from just before the create call on, C(created) when its task has ended well.
    """

    cluster: str
    vmid: int
    name: str
    node: str
    cores: float = 0
    memory: int = 0
    running: bool = False
    storage_bytes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    devices: tuple[tuple[str, str], ...] = ()
    tags: frozenset[str] = frozenset()
    pool: str | None = None
    group: str | None = None
    apart: tuple[AffinityTerm, ...] = ()
    ha_rule: str | None = None
    phase: Phase = "reserved"
    holder: Holder | None = None
    created: float = 0.0
    expires: float = 0.0

    def has_ended(self, now: float) -> bool:
        """Tell whether it counts no longer.

        When its holder died before it sent anything to Proxmox, nothing will come of it. Later, the VM may be there
        or be on its way, and its sizes are shown nowhere else: it counts until it is confirmed or expires.
        """
        if now >= self.expires:
            return True
        return self.phase == "reserved" and self.holder is not None and self.holder.is_dead()


COLUMNS = "cluster, vmid, name, holder_id, holder, phase, created, expires, resources"


def to_row(reservation: Reservation) -> tuple[t.Any, ...]:
    """Return the values of COLUMNS. The reservation must have a holder."""
    if reservation.holder is None:
        raise ValueError("a reservation is kept only with its holder")
    resources = {
        "node": reservation.node,
        "cores": reservation.cores,
        "memory": reservation.memory,
        "running": reservation.running,
        "storage_bytes": [[storage, node, size] for (storage, node), size in reservation.storage_bytes.items()],
        "devices": reservation.devices,
        "tags": sorted(reservation.tags),
        "pool": reservation.pool,
        "group": reservation.group,
        "apart": [_term_to_data(term) for term in reservation.apart],
        "ha_rule": reservation.ha_rule,
    }
    return (
        reservation.cluster,
        reservation.vmid,
        reservation.name,
        reservation.holder.id,
        holder_to_text(reservation.holder),
        reservation.phase,
        reservation.created,
        reservation.expires,
        json.dumps(resources),
    )


def from_row(row: Iterable[t.Any]) -> Reservation:
    """Return the reservation whose COLUMNS these are."""
    cluster, vmid, name, _holder_id, holder, phase, created, expires, resources = row
    values = json.loads(resources)
    return Reservation(
        cluster=cluster,
        vmid=vmid,
        name=name,
        node=values["node"],
        cores=values["cores"],
        memory=values["memory"],
        running=values["running"],
        storage_bytes={(storage, node): size for storage, node, size in values["storage_bytes"]},
        devices=tuple((node, device) for node, device in values["devices"]),
        tags=frozenset(values["tags"]),
        pool=values["pool"],
        group=values["group"],
        # Older versions did not write these.
        apart=tuple(_term_from_data(term) for term in values.get("apart", ())),
        ha_rule=values.get("ha_rule"),
        phase=phase,
        holder=holder_from_text(holder),
        created=created,
        expires=expires,
    )


def holder_to_text(holder: Holder) -> str:
    """Return the holder as it is stored."""
    return json.dumps(asdict(holder))


def holder_from_text(text: str) -> Holder:
    """Return the holder that was stored."""
    return Holder(**json.loads(text))


def _term_to_data(term: AffinityTerm) -> dict[str, t.Any]:
    selector = term.selector
    return {
        "topology_key": term.topology_key,
        "name": selector.name,
        "tags": sorted(selector.tags),
        "pool": selector.pool,
        "group": selector.group,
    }


def _term_from_data(data: Mapping[str, t.Any]) -> AffinityTerm:
    selector = Selector(data["name"], frozenset(data["tags"]), data["pool"], data["group"])
    return AffinityTerm(together=False, selector=selector, topology_key=data["topology_key"])
