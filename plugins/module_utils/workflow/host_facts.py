# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory host that a VM becomes: its groups, its variables, and how to log in."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..errors import InvalidRequest
from ..proxmox.inventory.static_addresses import static_addresses
from .options.address_pools import addresses_argument_spec
from .options.entries import Entry

VARIABLE = "an identifier of letters, digits and underscores"


def host_argument_spec() -> dict[str, dict[str, t.Any]]:
    """Return the options about the host that a VM becomes."""
    return {
        **addresses_argument_spec(),
        "host_groups": {"type": "list", "elements": "str"},
        "host_vars": {"type": "dict"},
    }


def check_host_vars(entry: Entry) -> None:
    """Raise InvalidRequest when a key of host_vars cannot be the name of a variable."""
    for key in entry.host_vars:
        if not str(key).isidentifier():
            raise InvalidRequest(f"host_vars: {key!r} of {entry.label} is no variable name, expected {VARIABLE}")


def host_facts(entry: Entry, options: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return C(groups) and C(vars) of the host. options are the API parameters of the VM, addresses included.

    The variables are ansible_user and ansible_host, from ciuser and the first static address, and those of host_vars,
    which take precedence.
    """
    variables: dict[str, t.Any] = {}
    if options.get("ciuser"):
        variables["ansible_user"] = options["ciuser"]
    addresses = static_addresses(options)
    if addresses:
        variables["ansible_host"] = str(addresses[0].ip)
    return {"groups": list(entry.host_groups), "vars": {**variables, **entry.host_vars}}
