# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An empty mapping stands for the defaults of an option wherever there are any."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.table import to_api


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"rng0": {}}, {"rng0": "source=/dev/urandom"}),
        ({"audio": {"audio0": {}}}, {"audio0": "device=ich9-intel-hda"}),
        ({"serial": {"serial0": {}}}, {"serial0": "socket"}),
        ({"cpu": {}}, {"cpu": ""}),
        ({"agent": {}}, {"agent": ""}),
        ({"vga": {}}, {"vga": ""}),
    ],
)
def test_empty_mapping__stands_for_the_defaults(given: dict[str, Any], sent: dict[str, str]) -> None:
    assert to_api(given) == sent


@pytest.mark.parametrize("given", [{"net": {"net0": {}}}, {"usb": {"usb0": {}}}, {"hostpci": {"hostpci0": {}}}])
def test_empty_mapping__is_refused_where_there_is_no_default(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="is not valid, expected "):
        to_api(given)
