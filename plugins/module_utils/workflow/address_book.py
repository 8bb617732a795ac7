# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Static addresses from pools: chosen for new VMs, kept for existing ones, and never used twice.

Addresses are chosen within the scheduling cycle, and the reservation of a decision holds its addresses until the
config of the VM shows them. Addresses outside the networks of the pools are nobody's business: the same address may
exist in several networks.
"""

from __future__ import annotations

import ipaddress
import threading
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ..engine.texts import first
from ..errors import CollectionError, DriftNotApplicable
from ..model import Guest, Request
from ..proxmox.api.reader import Reader
from ..proxmox.inventory.static_addresses import read_static_addresses
from ..proxmox.options.contradictions import config_with
from ..proxmox.options.table import to_api
from ..proxmox.options.values import Interface, addresses_of_card, static_addresses
from ..reservations.records import Reservation
from .address_claims import AddressConflict
from .options.address_pools import Address, AddressPool, Pools, fixed_addresses
from .options.entries import Entry

_TOLD = 10


class NoAddressAvailable(CollectionError):
    """No address of a pool can be given to a VM.

    Cure: widen C(ranges) of the pool. If the configuration of guests cannot be read, bring their node back, or set
    C(ignore_unread) in the pool.
    """

    code = "NoAddressAvailable"


class AddressBook:
    """The addresses of the VMs of one run.

    Attributes:
        doubts: warnings, as sentences.
    """

    def __init__(self, pools: Pools, reader: Reader) -> None:
        self.doubts: list[str] = []
        self._pools = pools
        self._reader = reader
        self._reading = threading.Lock()
        self._guests: tuple[Guest, ...] = ()
        self._reserved: dict[Address, str] = {}
        self._claimed: dict[Address, str] = {}
        self._fixed: frozenset[Address] = frozenset()
        self._used: dict[Address, list[Guest]] | None = None
        self._announced: frozenset[Address] = frozenset()
        self._unread: tuple[Guest, ...] = ()
        self._gateways: frozenset[Address] = frozenset()

    def begin(self, guests: Iterable[Guest], pending: Iterable[Reservation], entries: Sequence[Entry]) -> None:
        """Begin a scheduling cycle. pending are reservations of VMs whose configs may not show their addresses yet."""
        asked = {entry.request.name for entry in entries}
        self._guests, self._used = tuple(guests), None
        self._reserved = {
            ipaddress.ip_address(address): reservation.name
            for reservation in pending
            if reservation.name not in asked
            for address in reservation.addresses
        }
        self._claimed = {}
        self._fixed = fixed_addresses(self._pools.values(), [entry.request.options for entry in entries])
        for entry in entries:
            if entry.state != "absent":
                for interface in static_addresses(entry.request.options):
                    self._claimed.setdefault(interface.ip, entry.label)

    def assign(self, entry: Entry, request: Request, inherited: Mapping[str, t.Any]) -> Request:
        """Return the request of a new VM with addresses from its pools. inherited is the config of its template or
        backup, whose addresses it would have. Raises NoAddressAvailable, AddressConflict.
        """
        config = config_with(inherited, request.options)
        others = {key: value for key, value in config.items() if key not in entry.addresses}
        self._check(entry, others, None)
        for interface in static_addresses(others):
            self._claimed.setdefault(interface.ip, entry.label)
        cards = {card: {pool: self._choose(entry, pool) for pool in pools} for card, pools in entry.addresses.items()}
        if not cards:
            return request
        options = self._options(request.options, cards)
        texts = {card: str(options[card]) for card in cards}
        return replace(request, options={**request.options, **options}, addresses=texts)

    def with_current_addresses(
        self, entry: Entry, guest: Guest, config: Mapping[str, t.Any]
    ) -> tuple[Entry, list[str]]:
        """Return the entry of an existing VM with its current addresses, and cautions. Raises AddressConflict."""
        self._check(entry, entry.request.options, guest, static_addresses(config))
        cards: dict[str, dict[AddressPool, Address]] = {}
        cautions = []
        for card, pools in entry.addresses.items():
            interfaces = addresses_of_card(str(config.get(card) or ""))
            for pool in pools:
                own = next((i.ip for i in interfaces if i.version == pool.network.version), None)
                if own is None or own not in pool.network:
                    has = "no static address" if own is None else f"the address {own}"
                    cautions.append(f"{card} has {has}, expected one of pool {pool.name} ({pool.network})")
                else:
                    cards.setdefault(card, {})[pool] = own
        whole = {card: found for card, found in cards.items() if len(found) == len(entry.addresses[card])}
        if not whole:
            return entry, cautions
        options = self._options(entry.request.options, whole)
        return replace(entry, request=replace(entry.request, options={**entry.request.options, **options})), cautions

    def lost_addresses(self, changes: Mapping[str, Mapping[str, t.Any]]) -> dict[str, str]:
        """Return why changes must not be made that take an address of a pool from a running VM, by card.

        Proxmox VE shows a new address at once, and the former one, with which the guest runs until it boots, nowhere.
        """
        held = {}
        for card, change in changes.items():
            if card.startswith("ipconfig"):
                old, new = ({each.ip for each in addresses_of_card(str(change[when] or ""))} for when in ("old", "new"))
                lost = [ip for ip in sorted(old - new, key=str) if any(_contains(p, ip) for p in self._pools.values())]
                if lost:
                    held[card] = (
                        f"the guest uses {', '.join(map(str, lost))} until it boots, which Proxmox VE would no longer "
                        "show, so that another VM could get it; set apply_pending=reboot, or state=restarted or stopped"
                    )
        return held

    def agree(
        self, entry: Entry, guest: Guest, config: Mapping[str, t.Any], hints: Mapping[str, t.Any]
    ) -> dict[str, str]:
        """Return the addresses of an unfinished VM, by card: those that its mark or else its config names, if its pools
        may give them and no other guest has them.

        Raises DriftNotApplicable if it is not known which addresses the VM has.
        """
        found = {}
        for card, pools in entry.addresses.items():
            hinted, had = (addresses_of_card(str(each.get(card) or "")) for each in (hints, config))
            chosen = self._own_addresses(entry, guest, pools, hinted, AddressPool.may_give)
            chosen = chosen or self._own_addresses(entry, guest, pools, had, _contains)
            if not chosen:
                raise DriftNotApplicable(
                    f"{entry.label} was begun and cannot be finished: the address of {card} is not known: neither its "
                    "config nor its notes name one that it may have. Remove the VM, and run again"
                )
            found[card] = ",".join(
                f"{key}={value}" for pool, own in chosen.items() for key, value in pool.properties(own).items()
            )
        return found

    def _own_addresses(
        self,
        entry: Entry,
        guest: Guest,
        pools: Iterable[AddressPool],
        proposed: Sequence[Interface],
        may_give: Callable[[AddressPool, Address], bool],
    ) -> dict[AddressPool, Address]:
        """Return the proposed address of each pool; nothing if the VM may not have one of them."""
        found = {}
        for pool in pools:
            own = next((each.ip for each in proposed if each.version == pool.network.version), None)
            if own is None or not may_give(pool, own) or self._holder(entry, guest, own) is not None:
                return {}
            self._claimed.setdefault(own, entry.label)
            found[pool] = own
        return found

    def _options(
        self, given: Mapping[str, t.Any], cards: Mapping[str, Mapping[AddressPool, Address]]
    ) -> dict[str, t.Any]:
        """Return the API parameters of the addresses, and of the name servers where the VM names none."""
        ipconfig = {
            card: ",".join(f"{k}={v}" for pool, address in found.items() for k, v in pool.properties(address).items())
            for card, found in cards.items()
        }
        pools = [pool for found in cards.values() for pool in found]
        nameservers = next((pool.nameservers for pool in pools if pool.nameservers), ())
        domains = next((pool.searchdomains for pool in pools if pool.searchdomains), ())
        made = to_api({"ipconfig": ipconfig, "nameservers": list(nameservers), "searchdomains": list(domains)})
        return {key: value for key, value in made.items() if key in cards or (value and key not in given)}

    def _choose(self, entry: Entry, pool: AddressPool) -> Address:
        """Choose a free address of the pool for a VM. Raises NoAddressAvailable."""
        used = self._usage()
        if self._unread and not pool.ignore_unread:
            raise NoAddressAvailable(
                f"{entry.label}: no address of pool {pool.name} can be chosen: the configurations of "
                f"{_guest_list(self._unread)} cannot be read, and they may have any of its addresses"
            )
        taken = {*used, *self._announced, *self._reserved, *self._claimed, *self._fixed, *self._gateways}
        address = pool.choose(taken)
        if address is None:
            raise NoAddressAvailable(
                f"{entry.label}: all addresses of pool {pool.name} ({pool.network}) are taken or excluded"
            )
        self._claimed[address] = entry.label
        return address

    def _check(
        self, entry: Entry, options: Mapping[str, t.Any], guest: Guest | None, has: Iterable[t.Any] = ()
    ) -> None:
        """Raise AddressConflict for an address in the network of a pool that another guest has or gets."""
        own = {interface.ip for interface in has}
        for interface in static_addresses(options):
            address = interface.ip
            if address in own or not any(_contains(pool, address) for pool in self._pools.values()):
                continue
            holder = self._holder(entry, guest, address)
            if holder is not None:
                raise AddressConflict(f"{entry.label}: {address} is the address of {holder}")

    def _holder(self, entry: Entry, guest: Guest | None, address: Address) -> str | None:
        """Return what else has or gets the address, None if nothing does."""
        others = [other for other in self._usage().get(address, ()) if guest is None or other.vmid != guest.vmid]
        holder = _guest_list(others) if others else self._reserved.get(address) or self._claimed.get(address)
        return None if holder == entry.label else holder

    def _usage(self) -> Mapping[Address, Sequence[Guest]]:
        """Return the guests by their addresses; read once in a cycle."""
        with self._reading:
            if self._used is None:
                found = read_static_addresses(self._reader, self._guests)
                used: dict[Address, list[Guest]] = {}
                for guest, interfaces in found.of_guests:
                    for interface in interfaces:
                        used.setdefault(interface.ip, []).append(guest)
                self._used, self._announced = used, found.announced
                self._unread, self._gateways = found.unread, found.gateways
                self._tell_duplicates()
        return self._used

    def _tell_duplicates(self) -> None:
        for address, guests in sorted((self._used or {}).items(), key=lambda item: (item[0].version, item[0])):
            if len(guests) > 1 and any(_contains(pool, address) for pool in self._pools.values()):
                text = f"{address} is the address of several guests: {_guest_list(guests)}"
                self.doubts += [text] if text not in self.doubts else []


def _contains(pool: AddressPool, address: Address) -> bool:
    return address.version == pool.network.version and address in pool.network


def _guest_list(guests: Sequence[Guest]) -> str:
    ordered = sorted(guests, key=lambda guest: guest.vmid)
    return ", ".join(first([f"{each.name or 'a guest'} ({each.vmid} on {each.node})" for each in ordered], _TOLD))
