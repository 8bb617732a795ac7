# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of C(vms): the options of one VM, repeated as suboptions for the entries of a list."""

from __future__ import annotations

from ansible_collections.qemu_scheduler.proxmox.plugins.doc_fragments.devices import ModuleDocFragment as Devices
from ansible_collections.qemu_scheduler.proxmox.plugins.doc_fragments.hosts import ModuleDocFragment as Hosts
from ansible_collections.qemu_scheduler.proxmox.plugins.doc_fragments.identity import ModuleDocFragment as Identity
from ansible_collections.qemu_scheduler.proxmox.plugins.doc_fragments.placement import ModuleDocFragment as Placement
from ansible_collections.qemu_scheduler.proxmox.plugins.doc_fragments.vm_options import (
    ModuleDocFragment as VMOptions,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.doc_fragments.vm_options import suboptions_of

TEXTS = (
    Identity.DOCUMENTATION,
    VMOptions.DOCUMENTATION,
    Placement.DOCUMENTATION,
    Devices.VMS_TEXT,
    Hosts.DOCUMENTATION,
    Hosts.COUNT,
)


class ModuleDocFragment:
    """The fragments C(vms) and C(vms.shapes)."""

    DOCUMENTATION: str = suboptions_of("vms", *TEXTS)
    SHAPES: str = suboptions_of("shapes", *TEXTS)
