# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of guests as hosts of an inventory. A guest's owner chooses its name: it must mean this guest and no other.

A name that means something else gets the VMID after an underscore, C(web-1_104). As guests' names are DNS names, which
have no underscores, no guest has such a name.
"""

from __future__ import annotations

import re
import socket
import typing as t
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from ansible.constants import LOCALHOST
from ansible.vars.reserved import is_reserved_name

_LONGEST = 63
"""The characters of a name that are kept when the VMID is added."""

_DNS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_OTHER = re.compile(r"[^A-Za-z0-9.-]")

LOOPBACK = frozenset({"localhost4", "localhost6", "ip6-localhost", "ip6-loopback", "loopback"})
"""What many systems call the controller as well."""

GROUPS = frozenset({"all", "ungrouped"})
"""The groups of every inventory."""

MAGIC = frozenset({"groups", "hostvars", "omit", "vars"})
"""Variables of Ansible's own that its list of reserved names may lack. The names of others start with C(ansible), or
have an underscore, which no name of a guest has.
"""


def host_names(
    guests: Iterable[Mapping[str, t.Any]], is_taken: Callable[[str, int], bool], *, always_long: bool = False
) -> list[str | None]:
    """Return the host name of each guest, in their order: its name, or its VMID if it has none; None if all are taken.

    The VMID follows the name if always_long is set, if several guests have the name, or if it means something else: a
    host or group (is_taken, also with the VMID), an address, the controller, or a word of Ansible's.
    """
    listed = list(guests)
    names = [str(each["proxmox_name"] or each["proxmox_vmid"]) for each in listed]
    counts = Counter(names)
    found: list[str | None] = []
    for name, each in zip(names, listed, strict=True):
        vmid = each["proxmox_vmid"]
        plain = not always_long and counts[name] == 1 and (not each["proxmox_name"] or _means_nothing_else(name))
        candidates = [name] if plain else []
        candidates.append(f"{_OTHER.sub('_', name[:_LONGEST])}_{vmid}")
        found.append(next((candidate for candidate in candidates if not is_taken(candidate, vmid)), None))
    return found


def _means_nothing_else(name: str) -> bool:
    return (
        _DNS_NAME.fullmatch(name) is not None
        and name not in GROUPS | MAGIC
        and name.casefold().partition(".")[0] not in _controller()
        and not name.startswith("ansible")
        and not is_reserved_name(name)
        and not _is_address(name)
    )


def _controller() -> set[str]:
    """Return the names by which this machine reaches itself, without their domains."""
    return {*LOCALHOST, *LOOPBACK, socket.gethostname().casefold().partition(".")[0]}


def _is_address(name: str) -> bool:
    """Whether a connection to the name goes to an IPv4 address, as also one to C(2130706433) or C(127.1) does."""
    try:
        socket.inet_aton(name.rstrip("."))
    except OSError:
        return False
    return True
