# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads static addresses in the configs of guests: C(ipconfigN) of VMs, for cloud-init, and C(netN) of containers."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import ApiError
from ...model import OFF, Guest
from ..api.failures import NodeUnreachable, NotRecorded
from ..api.reader import Reader, in_parallel
from ..options.values import Address, Interface, gateways_of, static_addresses
from ..outcomes import is_missing
from ..unfinished import read_mark


@dataclass(frozen=True, slots=True)
class StaticAddresses:
    """The static addresses of guests.

    Attributes:
        of_guests: each guest with the addresses in its config.
        announced: addresses in the marks of unfinished VMs. A user who may edit the notes of a guest can write any
            address there, so no guest is refused one of these; they are only not chosen for others.
        unread: the guests whose configs could not be read.
        gateways: the gateways and name servers of all guests.
    """

    of_guests: tuple[tuple[Guest, tuple[Interface, ...]], ...]
    announced: frozenset[Address]
    unread: tuple[Guest, ...]
    gateways: frozenset[Address] = frozenset()


def read_static_addresses(reader: Reader, guests: Iterable[Guest]) -> StaticAddresses:
    """Read the static addresses of guests, one call each. Templates and guests that are gone are left out."""
    wanted = {guest.vmid: guest for guest in guests if not guest.template}
    configs = in_parallel(lambda vmid: _read_configs(reader, wanted[vmid]), wanted)
    read = {vmid: found for vmid, found in configs.items() if found is not None}
    every = [config for found in read.values() for config in found]
    marks = [begun for config in every if (begun := read_mark(config)) is not None]
    return StaticAddresses(
        tuple(
            (wanted[vmid], tuple(dict.fromkeys(each for config in found for each in static_addresses(config))))
            for vmid, found in read.items()
        ),
        frozenset(interface.ip for begun in marks for interface in static_addresses(begun.addresses)),
        tuple(wanted[vmid] for vmid, found in configs.items() if found is None),
        frozenset(gateway for config in every for gateway in gateways_of(config)),
    )


def _read_configs(reader: Reader, guest: Guest) -> Sequence[Mapping[str, t.Any]] | None:
    """Return the config of a guest, and the one with which it runs if that differs; an empty sequence if the guest no
    longer exists, None if it cannot be read.

    Proxmox VE puts C(ipconfigN) into the config of a running VM at once, and never shows the former value. A card of a
    running container keeps its value until the container has taken the new one, which is pending meanwhile.
    """
    path = f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}"
    try:
        if guest.kind == "qemu" or guest.status in OFF:
            return (reader.get(f"{path}/config"),)
        rows = reader.get(f"{path}/pending")
    except ApiError as error:
        return () if is_missing(error.message) else None
    except (NodeUnreachable, NotRecorded):
        return None
    return tuple({row["key"]: row[when] for row in rows if when in row} for when in ("value", "pending"))
