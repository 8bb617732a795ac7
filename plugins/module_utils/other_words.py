# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words of other tools for what this collection calls otherwise, for messages about them."""

from __future__ import annotations

from collections.abc import Mapping

_ADDRESS = "ipconfig: {ipconfig0: ip=192.0.2.10/24}"
_CARD = "net: {net0: 'virtio,bridge=vmbr0,tag=77'}"
_COUNT = "an entry of vms: vms: [{name: web-{n}, count: 3}]"
_DISK = "scsi: {scsi0: {size: 32}}"

OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("ip", "ip_address", "ipaddress", "address", "gateway", "gw"), _ADDRESS),
    **dict.fromkeys(("network", "networks", "nic", "nics", "bridge", "vlan"), _CARD),
    **dict.fromkeys(("count", "count_start", "surplus", "replicas", "instances"), _COUNT),
    **dict.fromkeys(("disk", "disks", "disk_size", "size", "volume"), _DISK),
    "image": "scsi: {scsi0: {import_from: local:import/debian-13.qcow2}}",
    "iso": "ide: {ide2: 'local:iso/debian.iso,media=cdrom'}",
    **dict.fromkeys(("hostname", "vm_name"), "name"),
    **dict.fromkeys(("ram", "mem"), "memory"),
    **dict.fromkeys(("cpus", "vcpu", "num_cpus", "cpu_cores"), "cores"),
    **dict.fromkeys(("user", "username"), "ciuser"),
    "password": "cipassword",
    **dict.fromkeys(("ssh_key", "ssh_keys", "ssh_public_key"), "sshkeys"),
    **dict.fromkeys(("dns", "dns_servers"), "nameservers"),
    **dict.fromkeys(("source", "from_template", "base"), "clone"),
    **dict.fromkeys(("host", "hypervisor", "proxmox_node", "target_node"), "node"),
    **dict.fromkeys(("verify_ssl", "verify", "insecure"), "validate_certs"),
    "delete": "an empty text for the option, or {remove: unused} for a drive",
    "migrate": "the module cluster_rebalance or node_drain",
    **dict.fromkeys(("notes", "comment"), "description"),
    "start_on_boot": "onboot",
}
"""Unknown options, with what is meant."""

VALUES: Mapping[str, str] = {
    **dict.fromkeys(("running", "up", "on", "poweredon", "powered-on"), "started"),
    **dict.fromkeys(("off", "down", "shutdown", "poweredoff", "powered-off"), "stopped"),
    **dict.fromkeys(("deleted", "removed", "destroyed"), "absent"),
    **dict.fromkeys(("created", "existing"), "present"),
    **dict.fromkeys(("hibernated",), "suspended"),
    **dict.fromkeys(("uefi", "efi"), "ovmf"),
    **dict.fromkeys(("bios", "legacy"), "seabios"),
    **dict.fromkeys(("linux", "debian", "ubuntu", "rhel"), "l26"),
    "windows": "win11",
}
"""Values of options with choices, with the one that is meant."""

REMOVAL = frozenset(
    ("", "absent", "remove", "removed", "delete", "deleted", "destroy", "destroyed", "detached", "unused")
)
"""Words with which a part of a VM, such as a drive or a card, is not removed."""

OF_TYPES: Mapping[str, str] = {
    "addresses": "a mapping such as {ipconfig0: lan}",
    "memory": "a whole number of MiB, such as 4096",
    "template": "a boolean; the template to make a VM from is named by clone",
    "numa": "a mapping such as {numa0: 'cpus=0-3,memory=4096'}; NUMA is enabled by numa_enabled",
}
"""What an option of another type than the given one expects."""

GUARDS: Mapping[str, str] = {"only_tags": "at least one tag", "only_pool": "the name of a pool"}
"""What the options of a guard are meant to be."""
