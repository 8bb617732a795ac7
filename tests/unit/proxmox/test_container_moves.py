# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A container that uses devices or directories of its node stays there: elsewhere it may not start."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Guest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.moves.mobility_ha import Surroundings
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.moves.mobility_rules import (
    Permitted,
    container_mobility,
)


@pytest.mark.parametrize("status", ["running", "stopped"])
@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"dev0": "/dev/dri/renderD128,gid=104"}, "dev0 gives it /dev/dri/renderD128 of its node"),
        ({"dev1": "path=/dev/ttyUSB0,mode=0660"}, "dev1 gives it /dev/ttyUSB0 of its node"),
        (
            {"lxc": [["lxc.mount.entry", "/dev/net/tun dev/net/tun none bind"],
                     ["lxc.mount.entry", "/dev/dri dev/dri none bind"]]},
            "lxc.mount.entry gives it /dev/dri of its node",
        ),
        ({"mp0": "/srv/media,mp=/media"}, "mp0 mounts /srv/media of its node"),
        ({"dev0": "/dev/net/tun", "lxc": [["lxc.cgroup2.devices.allow", "c 10:200 rwm"]]}, ""),
        ({"lxc": ["lxc.mount.entry", 7, ["lxc.mount.entry"], []]}, ""),
        ({"lxc": "lxc.mount.entry"}, ""),
        ({"lxc": [["lxc.mount.entry", "tmpfs run/x tmpfs defaults"]], "mp0": "/srv/media,mp=/media,shared=1"}, ""),
    ],
)  # fmt: skip
def test_container__stays_with_what_it_uses_of_its_node(config: dict[str, t.Any], why: str, status: str) -> None:
    guest = Guest(110, "ct", "pve1", status=status, kind="lxc")
    found = container_mobility(guest, {}, config, Surroundings(), Permitted(restart=True))
    assert found.stuck[0] == why
    assert bool(found.stuck[1]) is bool(why)
