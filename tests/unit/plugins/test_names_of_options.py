# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors name the variables of a role, and leave everything else as it is."""

from __future__ import annotations

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.direct import in_variables

NAMES = {"vms": "qemu_vms", "guests": "tour_guests"}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("vms[1].memory: '4GB' is not valid", "qemu_vms[1].memory: '4GB' is not valid"),
        ("vms: expected a list", "qemu_vms: expected a list"),
        ("guests.stays: is empty", "tour_guests.stays: is empty"),
        ("got: a found in vms; did you mean b?", "got: a found in qemu_vms; did you mean b?"),
        ("got: a found in vms -> ha; did you mean b?", "got: a found in qemu_vms -> ha; did you mean b?"),
        (
            "name: 'a' is set in 2 entries of vms, expected different values",
            "name: 'a' is set in 2 entries of qemu_vms, expected different values",
        ),
        (
            "name: 'A' and 'a' in vms differ only in case, expected different names",
            "name: 'A' and 'a' in qemu_vms differ only in case, expected different names",
        ),
        ("vmid: set it in each entry of vms", "vmid: set it in each entry of qemu_vms"),
        (
            "Unsupported parameters for (x) module: a, vms.b (did you mean vms.c?). Supported parameters include: vms.",
            "Unsupported parameters for (x) module: a, qemu_vms.b (did you mean qemu_vms.c?). Supported parameters "
            "include: vms.",
        ),
    ],
)
def test_option__is_named_by_its_variable(message: str, expected: str) -> None:
    assert in_variables(message, NAMES) == expected


@pytest.mark.parametrize(
    "message",
    [
        "VM vms.example.com (101): no node fits",
        "VM vms[0] (101): no node fits",
        'VM "vms": no node fits',
        "vms.example.com (101) has not ended",
        "pool guests: there is no such pool",
        "apply: VM x is in pool vms",
        "archive: 'x found in vms' is not valid",
        "tags: vms: guests[0].memory: x",
    ],
)
def test_data__keeps_its_name(message: str) -> None:
    assert in_variables(message, NAMES) == message
