# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads static addresses in the configs of guests: C(ipconfigN) of VMs, for cloud-init, and C(netN) of containers."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class StaticAddresses:
    """The static addresses of each guest, and the guests whose configs could not be read."""

    of_guests: tuple[tuple[Guest, tuple[Interface, ...]], ...]
    unread: tuple[Guest, ...]


def read_static_addresses(reader: Reader, guests: Iterable[Guest]) -> StaticAddresses:
    """Read the static addresses of guests, one call each. Templates and guests that are gone are left out."""
    wanted = {guest.vmid: guest for guest in guests if not guest.template}
    configs = in_parallel(lambda vmid: _read_config(reader, wanted[vmid]), wanted)
    return StaticAddresses(
        tuple((wanted[vmid], tuple(addresses_of(config))) for vmid, config in configs.items() if config is not None),
        tuple(wanted[vmid] for vmid, config in configs.items() if config is None),
    )


def addresses_of(config: Mapping[str, t.Any]) -> list[Interface]:
    """Return the static addresses in a config, and those that an unfinished VM will have."""
    begun = unfinished(config)
    return static_addresses({**config, **begun.addresses} if begun is not None else config)


def _read_config(reader: Reader, guest: Guest) -> Mapping[str, t.Any] | None:
    """Return the config of a guest; empty if the guest no longer exists, None if it cannot be read."""
    try:
        config: Mapping[str, t.Any] = reader.get(f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}/config")
    except ApiError as error:
        return {} if is_missing(error.message) else None
    except (NodeUnreachable, NotRecorded):
        return None
    return config
