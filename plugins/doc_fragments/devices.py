# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options about passthrough devices."""

from __future__ import annotations

_WANTED = r"""
class:
  description:
    - The device class to take devices of, one of C(device_classes).
  type: str
mapping:
  description:
    - The resource mapping to take devices of.
  type: str
driver:
  description:
    - The kind of device, when neither the class nor O(devices[].options) says it.
  type: str
  choices: [pci, usb]
count:
  description:
    - How many devices. V(1) when this is not given.
  type: int
constraints:
  description:
    - Jinja2 expressions over C(device), all of which must hold for each device, beside those of the class.
    - C(device) has every key of the node's hardware list (C(vendor), C(device), C(class), C(iommugroup), ...; numbers
      without C(0x), in lower case), C(subsystem), C(mapping), C(node), C(driver), C(id), and what C(key=value) pairs in
      the description of the mapping or of its entry, or C(device_attributes), add.
    - What needs an attribute that a device lacks does not hold; write C(device.memory | default(0) > 16) or
      C(device.memory is defined) where it may be absent.
    - There are only simple filters and text methods; nothing that loops or makes long texts.
  type: list
  elements: str
match_attributes:
  description:
    - Names of attributes that must be known, and equal among all devices of the claim, for example C(numa_node).
  type: list
  elements: str
mdev:
  description:
    - The type of mediated device, for mappings that offer them, for example V(nvidia-222).
  type: str
options:
  description:
    - Further properties of the C(hostpciN) or C(usbN) entry, for example C(pcie), C(x-vga), C(rombar) or C(usb3).
  type: dict
"""


def _indented(text: str, spaces: int) -> str:
    return "".join(" " * spaces + line + "\n" for line in text.strip("\n").split("\n"))


_CLAIMS = (
    r"""
options:
  devices:
    description:
      - The passthrough devices that the VM wants, from the cluster's resource mappings. The VM goes to a node that has
        all of them free, and gets a C(hostpciN) or C(usbN) entry per device.
      - What other VMs have in their configuration is not free, whether they run or not.
      - Proxmox VE itself picks the device when it starts a VM, among those of the mapping on the node; the device in
        the decision only counts it as taken. Constraints that tell apart the devices of one mapping on one node can
        therefore not be promised; give each kind of device a mapping of its own.
      - The user needs Mapping.Use on the mappings, VM.Audit on the VMs that hold devices, and to see what the nodes
        really have Sys.Audit on C(/), for USB Sys.Modify. Without these last two the mappings are believed, and there
        are no mediated devices.
      - Devices are taken in order of the mappings' names and the devices' addresses, from as few mappings as possible.
      - Only a new VM is given devices; claims of a VM that exists are left alone.
    type: list
    elements: dict
    suboptions:
      name:
        description: What the claim is called in the decision and in messages.
        type: str
        required: true
      one_of:
        description:
          - Alternatives instead of one claim, in order; the first that can be met on the node is taken.
        type: list
        elements: dict
        suboptions:
""".lstrip("\n")
    + _indented(_WANTED, 10)
    + _indented(_WANTED, 6)
)

_CLASSES = r"""
  device_classes:
    description:
      - Named kinds of devices for O(devices). The key is the name, the value a mapping with C(driver) (V(pci) or
        V(usb)) and C(constraints), a list of expressions as in O(devices[].constraints).
    type: dict
  device_attributes:
    description:
      - Attributes that Proxmox VE does not know, for O(devices[].constraints) and O(devices[].match_attributes).
      - The key is a mapping (V(gpu)), a mapping on a node (V(gpu@pve1)) or a device on a node
        (V(0000:01:00.0@pve1), V(1-2@pve1)), the more particular wins; the value is a mapping of names to values.
      - Texts that spell a whole number, a decimal number, V(true) or V(false) become such.
    type: dict
""".lstrip("\n")


class ModuleDocFragment:
    """The fragment C(devices); VMS_TEXT is the part of it that each entry of C(vms) may have as well."""

    VMS_TEXT: str = _CLAIMS

    DOCUMENTATION: str = _CLAIMS + _CLASSES
