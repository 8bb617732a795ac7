# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page about migration covers each option of proxmox_kvm."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import ONE_VM_OPTIONS
from ansible_collections.qemu_scheduler.proxmox.plugins.modules.qemu_schedule import argument_spec

PAGE = (Path(__file__).parents[3] / "docs/migration.md").read_text(encoding="utf-8")

# Those of release 2.1.0 of community.proxmox, the newest of August 2026.
OF_PROXMOX_KVM = """
acpi agent allow_ksm archive args audio autostart balloon bios boot bootdisk cicustom cipassword citype ciuser
ciupgrade clone cores cpu cpulimit cpuunits delete description destroy_unreferenced_disks digest efidisk0 force format
freeze full hookscript hostpci hotplug hugepages ide ipconfig keyboard kvm localtime lock machine memory migrate
migrate_downtime migrate_speed name nameservers net newid node numa numa_enabled onboot ostype parallel pool
protection purge reboot revert rng0 sata scsi scsihw searchdomains serial shares skiplock smbios snapname sockets
spice_enhancements sshkeys startdate startup state storage tablet tags target tdf template timeout tpmstate0 usb
update update_unsafe validate_certs vcpus vga virtio virtiofs vmid watchdog with_local_disks api_host api_user
api_password api_otp api_port api_token_id api_token_secret ca_path api_timeout
"""


@pytest.mark.parametrize("option", OF_PROXMOX_KVM.split())
def test_option_of_proxmox_kvm__exists_or_is_on_the_page(option: str) -> None:
    specs = {**argument_spec(), **ONE_VM_OPTIONS}
    ours = {name for key, spec in specs.items() for name in (key, *spec.get("aliases", ()))}
    assert option in ours or f"`{option}" in PAGE
