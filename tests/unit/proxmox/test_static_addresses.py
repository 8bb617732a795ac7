# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The addresses that configs of guests set."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.values import static_addresses


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"ipconfig0": "ip=192.0.2.10/24,gw=192.0.2.1"}, ["192.0.2.10/24"]),
        ({"ipconfig0": "ip6=2001:db8::a/64,ip=192.0.2.10/24"}, ["192.0.2.10/24", "2001:db8::a/64"]),
        ({"ipconfig10": "ip=192.0.2.3/24", "ipconfig2": "ip=192.0.2.2/24"}, ["192.0.2.2/24", "192.0.2.3/24"]),
        ({"net0": "name=eth0,bridge=vmbr0,ip=192.0.2.53/24,type=veth"}, ["192.0.2.53/24"]),
        ({"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0", "ipconfig0": "ip=dhcp,ip6=auto"}, []),
        ({"ipconfig0": "ip=manual", "ipconfig1": "ip=nonsense", "ipconfig2": ""}, []),
        ({"description": "ip=192.0.2.1/24", "ipconfig": "ip=192.0.2.1/24"}, []),
    ],
)
def test_static_addresses__are_those_of_the_cards(config: dict[str, t.Any], expected: list[str]) -> None:
    assert [str(address) for address in static_addresses(config)] == expected
