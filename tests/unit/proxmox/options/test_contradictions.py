# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that contradict the rest of what a VM has or gets."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.contradictions import (
    check_new,
    config_with,
    contradictions,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.table import to_api


@pytest.mark.parametrize(
    ("config", "options", "expected"),
    [
        ({}, {"memory": 512, "balloon": 1024}, {"balloon": "1024 is not valid, expected at most memory (512)"}),
        ({}, {"balloon": 513}, {"balloon": "513 is not valid, expected at most memory (512)"}),
        ({"balloon": 1024}, {"memory": 512}, {"memory": "512 is not valid, expected at least balloon (1024)"}),
        ({"memory": "2048"}, {"balloon": 4096}, {"balloon": "4096 is not valid, expected at most memory (2048)"}),
        ({"memory": "current=2048"}, {"balloon": 2048}, {}),
        ({"memory": "2048", "balloon": 4096}, {"cores": 2}, {}),
        ({"cores": 8}, {"vcpus": 4}, {}),
        ({"cores": 2, "sockets": 2}, {"vcpus": 4}, {}),
        ({"cores": 2}, {"vcpus": 8}, {"vcpus": "8 is not valid, expected at most cores times sockets (2)"}),
        (
            {"cores": 4, "vcpus": 4},
            {"cores": 2},
            {"cores": "2 is not valid, expected at least vcpus (4) divided by sockets (1)"},
        ),
        ({"bios": "ovmf"}, {"efidisk0": {}}, {}),
        ({}, {"efidisk0": {}}, {"efidisk0": "requires bios=ovmf, and bios is seabios"}),
        ({"bios": "seabios"}, {"bios": "ovmf", "efidisk0": {}}, {}),
        (
            {"ide2": "ceph:vm-100-cloudinit,media=cdrom"},
            {"ide": {"ide0": "ceph:cloudinit"}},
            {"ide0": "the cloud-init drive is at ide2, and Proxmox VE allows one only; request it there"},
        ),
        ({"ide2": "ceph:vm-100-cloudinit,media=cdrom"}, {"ide": {"ide2": "ceph:cloudinit"}}, {}),
        ({"ide2": "none,media=cdrom"}, {"ide": {"ide0": "ceph:cloudinit"}}, {}),
    ],
)
def test_options__are_compared_with_all_that_the_vm_has(
    config: dict[str, t.Any], options: dict[str, t.Any], expected: dict[str, str]
) -> None:
    asked = to_api(options)
    defaults = {"bios": "seabios", "memory": 512, "cores": 1, "sockets": 1}
    assert contradictions({**defaults, **config_with(config, asked)}, asked.keys()) == expected


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"vcpus": 2}, "vcpus: 2 .*at most cores times sockets"),
        ({"efidisk0": {"efitype": "4m"}}, "efidisk0: .*bios=ovmf"),
        ({"scsi": {"scsi1": {"storage": "fast"}}}, "scsi1: .*a size above 0 GiB, or import-from"),
    ],
)
def test_new_vm__has_the_defaults_of_proxmox(options: dict[str, t.Any], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        check_new(to_api(options))
