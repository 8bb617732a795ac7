# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads static addresses in the configs of guests: C(ipconfigN) of VMs, for cloud-init, and C(netN) of containers."""

from __future__ import annotations

import ipaddress
import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...errors import ApiError
from ...model import Guest
from ..api.failures import NodeUnreachable, NotRecorded
from ..api.reader import Reader, in_parallel
from ..options.values import Interface, static_addresses
from ..outcomes import is_missing
from ..unfinished import unfinished

Address: t.TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"


@dataclass(frozen=True, slots=True)
class StaticAddresses:
    """The static addresses of guests.

    Attributes:
        of_guests: each guest with the addresses in its config.
        announced: addresses in the marks of unfinished VMs. A user who may edit the notes of a guest can write any
            address there, so no guest is refused one of these; they are only not chosen for others.
        unread: the guests whose configs could not be read.
    """

    of_guests: tuple[tuple[Guest, tuple[Interface, ...]], ...]
    announced: frozenset[Address]
    unread: tuple[Guest, ...]


def read_static_addresses(reader: Reader, guests: Iterable[Guest]) -> StaticAddresses:
    """Read the static addresses of guests, one call each. Templates and guests that are gone are left out."""
    wanted = {guest.vmid: guest for guest in guests if not guest.template}
    configs = in_parallel(lambda vmid: _read_config(reader, wanted[vmid]), wanted)
    read = {vmid: config for vmid, config in configs.items() if config is not None}
    marks = [begun for config in read.values() if (begun := unfinished(config)) is not None]
    return StaticAddresses(
        tuple((wanted[vmid], tuple(static_addresses(config))) for vmid, config in read.items()),
        frozenset(interface.ip for begun in marks for interface in static_addresses(begun.addresses)),
        tuple(wanted[vmid] for vmid, config in configs.items() if config is None),
    )


def _read_config(reader: Reader, guest: Guest) -> Mapping[str, t.Any] | None:
    """Return the config of a guest; empty if the guest no longer exists, None if it cannot be read."""
    try:
        config: Mapping[str, t.Any] = reader.get(f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}/config")
    except ApiError as error:
        return {} if is_missing(error.message) else None
    except (NodeUnreachable, NotRecorded):
        return None
    return config
