# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The static addresses that the VMs of a run have or get, with or without address pools: no two of them get one.

The same address may exist in several networks, so VMs on different bridges or VLANs do not conflict.
"""

from __future__ import annotations

import ipaddress
import typing as t
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import CollectionError, InvalidRequest
from ..model import OFF, Request
from ..proxmox.api.failures import UNREADABLE
from ..proxmox.api.reader import Reader
from ..proxmox.inventory.freshness import read_config
from ..proxmox.options.contradictions import unread_cloud_init
from ..proxmox.options.kinds import NET
from ..proxmox.options.values import addresses_of_card
from ..reservations.records import Reservation
from .job import Job
from .options.entries import Entry

if t.TYPE_CHECKING:
    from ..engine.cache import ClusterState
    from .existing.plan import ExistingPlan

Config = Mapping[str, t.Any]
Network = tuple[str, str]
"""A bridge and a VLAN tag."""


class AddressConflict(CollectionError):
    """A VM is to have a static address that another guest of the cluster, or another VM of the task, has.

    Cure: choose another address, or take one from a pool with C(addresses). A clone and a restored VM inherit the
    addresses of their template or backup: set C(ipconfig) for them.
    """

    code = "AddressConflict"


class Original(t.NamedTuple):
    """The VM of which a new one is a copy."""

    label: str
    config: Config


@dataclass(slots=True)
class Claims:
    """Who has or gets which address, and in which network as far as that is known."""

    _holders: dict[str, list[tuple[str, Network | None]]] = field(default_factory=dict)

    @classmethod
    def of(cls, pending: Iterable[Reservation], jobs: Sequence[Job]) -> Claims:
        """Return the addresses of VMs that others are creating, and of VMs of the run that exist. New ones claim their
        own.
        """
        asked = {job.entry.request.name for job in jobs}
        claims = cls()
        for reservation in pending:
            for address in reservation.addresses if reservation.name not in asked else ():
                text = str(ipaddress.ip_address(address))
                claims._holders.setdefault(text, []).append((f"{reservation.name} ({reservation.vmid})", None))
        for entry in (job.entry for job in jobs if job.guest is not None and job.entry.state != "absent"):
            for address, network in _addresses(entry.request.options):
                claims._holders.setdefault(address, []).append((entry.label, network))
        return claims

    def conflicts(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, AddressConflict]]:
        """Yield each job that would get an address which an existing VM of the run has, by the config read for its
        plan.
        """
        gaining = {job.entry.label: job for job in jobs if job.is_made_or_updated}
        for job in jobs if gaining else ():
            plan = job.plan
            for address, network in sorted(_kept_addresses(plan), key=str) if plan is not None else ():
                for holder, other in self._holders.get(address, ()):
                    new = gaining.get(holder)
                    if new is None or new is job or not _meet(network, other) or _has(new, address):
                        continue
                    message = f"{new.entry.label}: {address} is the address of {job.entry.label}"
                    yield new, AddressConflict(message)

    def claim(self, entry: Entry, config: Config, original: Original | None = None) -> None:
        """Note the addresses of a new VM; config is the whole that it gets, original the VM that it is a copy of.

        Raises AddressConflict, and InvalidRequest for an address of a pool that the guest would never get.
        """
        gaps = unread_cloud_init(config, entry.addresses.keys())
        for card, reason in gaps.items():
            raise InvalidRequest(f"addresses.{card}: the guest would not get the address: {reason}, for {entry.label}")
        own = list(_addresses(config))
        of_original = dict(_addresses(original.config)) if original is not None and own else {}
        for address, network in own:
            if original is not None and address in of_original and _meet(network, of_original[address]):
                message = f"{entry.label}: {address} is the address of {original.label}, of which it would be a copy"
                raise AddressConflict(message)
            for holder, other in self._holders.get(address, ()):
                if holder != entry.label and _meet(network, other):
                    raise AddressConflict(f"{entry.label}: {address} is the address of {holder}")
        for address, network in own:
            self._holders.setdefault(address, []).append((entry.label, network))


def original_of(entry: Entry, request: Request, base: Config, cluster: ClusterState, reader: Reader) -> Original | None:
    """Return the VM of which a new one is a copy, if it goes on to exist: what is cloned is no template, or a VM has
    the VMID of the backup. base is the config that the new VM is made from. One request for a backup.
    """
    vmid = None
    is_current = entry.clone is not None and entry.clone.snapname is None
    source = request.clone.templates[0] if request.clone is not None and is_current else None
    # A template that the run itself makes has no identity yet.
    if source is not None and source.identity is not None and not base.get("template"):
        vmid = source.vmid
    elif request.archive is not None:
        from .archives import owner_of

        vmid = owner_of(request.archive.volume)
    guest = cluster.guests.get(vmid) if vmid is not None else None
    if guest is None or guest.kind != "qemu" or guest.template:
        return None
    config: Config | None = base
    if request.archive is not None:
        try:
            config = read_config(reader, guest.node, guest.vmid)
        except UNREADABLE:
            return None
    return None if config is None else Original(f"{guest.name} ({guest.vmid} on {guest.node})", config)


def _meet(network: Network | None, other: Network | None) -> bool:
    """Whether two VMs may be in the same network."""
    return network is None or other is None or network == other


def _has(job: Job, address: str) -> bool:
    """Whether an existing VM has the address already: two that share one are not a matter of this run."""
    return job.plan is not None and any(address == own for own, _network in _addresses(job.plan.config))


def _kept_addresses(plan: ExistingPlan) -> set[tuple[str, Network | None]]:
    """Return the addresses that an existing VM keeps: a running one may need a restart before it gives one up."""
    if "delete" in plan.actions:
        return set()
    before = {**plan.config, **{key: change["old"] or "" for key, change in plan.pending.items()}}
    configs = [plan.config_after] if plan.status in OFF else [before, plan.config, plan.config_after]
    return {each for config in configs for each in _addresses(config)}


def _addresses(config: Config) -> Iterator[tuple[str, Network | None]]:
    """Yield the static addresses of a config, each with the network of its card."""
    for key, value in sorted(config.items()):
        if key.startswith("ipconfig"):
            card = NET.read(str(config.get(f"net{key.removeprefix('ipconfig')}", "")))
            network = (card["bridge"], card.get("tag", "")) if "bridge" in card else None
            for interface in addresses_of_card(str(value)):
                yield str(interface.ip), network
