# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options about passthrough devices."""

from __future__ import annotations

_WANTED = r"""
class:
  description:
    - The device class to allocate from, one of C(device_classes).
  type: str
mapping:
  description:
    - The resource mapping to allocate from.
  type: str
driver:
  description:
    - The kind of device. Needed only if neither the class nor O(devices[].options) defines it.
  type: str
  choices: [pci, usb]
count:
  description:
    - Number of devices. Defaults to V(1).
  type: int
constraints:
  description:
    - Jinja2 expressions over C(device). Each device must satisfy all of them, and those of the class.
    - C(device) has every key of the node's hardware list (C(vendor), C(device), C(class), C(iommugroup), ...; numbers
      in lower case and without C(0x)), and C(subsystem), C(mapping), C(node), C(driver) and C(id). C(key=value) pairs
      in the description of the mapping or of its entry, and C(device_attributes), add further attributes.
    - An expression that uses an attribute which the device lacks is false. Where an attribute may be absent, write
      C(device.memory | default(0) > 16) or C(device.memory is defined).
    - Only simple filters and string methods are available. Loops, and functions that build long strings, are not.
  type: list
  elements: str
match_attributes:
  description:
    - Attributes that every device of the claim must have with the same value, for example C(numa_node).
  type: list
  elements: str
mdev:
  description:
    - The type of mediated device, for mappings that support them, for example V(nvidia-222).
  type: str
options:
  description:
    - Further properties of the C(hostpciN) or C(usbN) entry, for example C(pcie), C(x-vga), C(rombar) or C(usb3).
  type: dict
"""


def _indent(text: str, spaces: int) -> str:
    return "".join(" " * spaces + line + "\n" for line in text.strip("\n").split("\n"))


_CLAIMS = (
    r"""
options:
  devices:
    description:
      - Claims on passthrough devices of the cluster's resource mappings. The VM is placed on a node where all claimed
        devices are free, and gets one C(hostpciN) or C(usbN) entry per device.
      - A device in the configuration of another VM is not free, whether that VM runs or not.
      - When a VM starts, Proxmox VE picks one of the mapping's devices on the node by itself. The device in the
        decision only counts as allocated. Constraints can therefore not distinguish the devices of one mapping on one
        node; create a mapping for each kind of device.
      - The user needs Mapping.Use on the mappings and VM.Audit on the VMs that hold devices. To verify what hardware
        the nodes have, the user needs Sys.Audit on C(/), and Sys.Modify for USB. Without these two, the mappings are
        trusted as they are, and mediated devices are not available.
      - Devices are allocated in the order of mapping names and device addresses, from as few mappings as possible.
      - Devices are allocated for new VMs only. The devices of an existing VM are not changed.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the claim in the decision and in messages.
        type: str
        required: true
      one_of:
        description:
          - Alternatives to choose from, in order of preference. The first one that the node can satisfy is used.
        type: list
        elements: dict
        suboptions:
""".lstrip("\n")
    + _indent(_WANTED, 10)
    + _indent(_WANTED, 6)
)

_CLASSES = r"""
  device_classes:
    description:
      - Named kinds of devices for O(devices). Each key is a name. Each value is a mapping with C(driver) (V(pci) or
        V(usb)) and C(constraints), a list of expressions as in O(devices[].constraints).
    type: dict
  device_attributes:
    description:
      - Attributes that Proxmox VE does not know, for O(devices[].constraints) and O(devices[].match_attributes).
      - Each key is a mapping (V(gpu)), a mapping on a node (V(gpu@pve1)) or a device on a node
        (V(0000:01:00.0@pve1), V(1-2@pve1)). The most specific key wins. Each value maps attribute names to values.
      - Strings that look like a whole number, a decimal number, V(true) or V(false) are converted.
    type: dict
""".lstrip("\n")


class ModuleDocFragment:
    """The fragment C(devices); VMS_TEXT is the part that entries of C(vms) may have too."""

    VMS_TEXT: str = _CLAIMS

    DOCUMENTATION: str = _CLAIMS + _CLASSES
