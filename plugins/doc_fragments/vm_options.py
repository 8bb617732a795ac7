# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that describe a VM, once for the top level and once for each entry of C(vms)."""

from __future__ import annotations

import re
import textwrap


def suboptions_of(option: str, *fragments: str) -> str:
    """Return a fragment in which the options of all the given ones are suboptions of one option, a list.

    One fragment has to hold all suboptions of an option: of two that name some, Ansible drops those of the second.
    """
    options = "".join(fragment.partition("options:\n")[2] for fragment in fragments)
    linked = re.sub(r"\bO\((?=\w)", f"O({option}[].", options)
    return f"options:\n  {option}:\n    suboptions:\n" + textwrap.indent(linked, "    ")


class ModuleDocFragment:
    """The fragments C(vm_options) and C(vm_options.vms)."""

    DOCUMENTATION = r"""
options:
  acpi:
    description:
      - Whether the VM has ACPI.
      - Proxmox VE takes V(true) when this is not given.
    type: bool
  agent:
    description:
      - Whether Proxmox VE talks to the QEMU guest agent, and how.
      - Either a boolean or properties such as V(enabled=1,fstrim_cloned_disks=1,type=virtio).
    type: str
  args:
    description:
      - Further arguments for the kvm process. Only C(root@pam) with its password may set them.
    type: str
  audio:
    description:
      - 'The sound device, as V({audio0: "device=ich9-intel-hda,driver=spice"}).'
      - The key is C(audio0). The value is a string of properties or a mapping of them.
    type: dict
  autostart:
    description:
      - Whether the VM is started again after a crash. Proxmox VE stores this and ignores it.
    type: bool
  balloon:
    description:
      - Least memory that the host may shrink the VM to, a whole number of MiB, at most O(memory). V(0) turns ballooning
        off.
    type: str
  bios:
    description:
      - The firmware. V(ovmf) is UEFI and wants O(efidisk0).
    type: str
    choices: [seabios, ovmf]
  boot:
    description:
      - The devices to boot from, for example V(order=scsi0;ide2;net0).
      - Up to four of the letters V(a) (floppy), V(c) (disk), V(d) (CD-ROM) and V(n) (network) are understood as well.
    type: str
  bootdisk:
    description:
      - The disk to boot from, in the way of old versions. Prefer O(boot).
    type: str
  cicustom:
    description:
      - Cloud-init, snippets that replace what Proxmox VE would generate, for example
        V(user=local:snippets/user.yml,network=local:snippets/net.yml).
    type: str
  cipassword:
    description:
      - Cloud-init, password of the default user.
      - Proxmox VE shows no password. One that is set therefore counts as the one that is wanted, and a changed
        password is never found by comparing. A new clone always gets it.
    type: str
  citype:
    description:
      - Cloud-init, the format of the data. Proxmox VE chooses by O(ostype) when this is not given.
    type: str
    choices: [nocloud, configdrive2, opennebula]
  ciupgrade:
    description:
      - Cloud-init, whether packages are upgraded at the first boot.
    type: bool
  ciuser:
    description:
      - Cloud-init, name of the default user.
    type: str
  cores:
    description:
      - Cores per socket. Proxmox VE takes V(1) when this is not given, a clone has those of its template.
    type: int
  cpu:
    description:
      - The CPU model, with flags if wanted, for example V(host), V(x86-64-v2-AES) or V(host,flags=+aes;-pcid).
    type: str
  cpulimit:
    description:
      - Most CPU time that the VM may use, in CPUs. V(0) is no limit.
    type: float
  cpuunits:
    description:
      - Weight of the VM when CPU time is short.
    type: int
  description:
    description:
      - Notes, shown in the web interface. An empty text removes them.
    type: str
  efidisk0:
    description:
      - The disk that keeps the variables of UEFI. Wants O(bios=ovmf).
      - Its size is Proxmox VE's own affair. A storage is chosen when none is named.
    type: dict
    suboptions:
      efitype:
        description:
          - Layout of the variables. V(4m) is needed for Secure Boot.
        type: str
        choices: [2m, 4m]
      format:
        description:
          - Format of the image, for storages that know several.
        type: str
      pre_enrolled_keys:
        description:
          - Whether the keys of distributions and of Microsoft are enrolled, which turns Secure Boot on.
        type: bool
      storage:
        description:
          - The storage to create it on.
        type: str
      storage_class:
        description:
          - The storage class to choose a storage from.
        type: str
  freeze:
    description:
      - Whether the CPU stands still after the start until it is told to go on.
    type: bool
  hookscript:
    description:
      - A snippet that the node runs at the steps of the VM's life, for example V(local:snippets/hook.pl). Only
        C(root@pam) with its password may set it.
    type: str
  hostpci:
    description:
      - 'PCI devices of the node, as V({hostpci0: "mapping=gpu,pcie=1"}).'
      - Keys are C(hostpci0) to C(hostpci15). Values are strings of properties or mappings of them.
      - A device by its address, such as V(0000:01:00.0), binds the VM to one node. Only C(root@pam) with its password
        may give it.
    type: dict
  hotplug:
    description:
      - What can be changed while the VM runs, some of V(network), V(disk), V(cpu), V(memory), V(usb), V(cloudinit) with
        commas between.
      - V(1) stands for Proxmox VE's default V(network,disk,usb), V(0) for nothing.
    type: str
  hugepages:
    description:
      - Size in MiB of the huge pages that the VM's memory is made of.
    type: str
    choices: [any, '2', '1024']
  ide:
    description:
      - 'IDE drives, as V({ide2: "local:iso/debian.iso,media=cdrom"}). Keys are C(ide0) to C(ide3).'
      - See O(scsi) for the values.
    type: dict
  ipconfig:
    description:
      - 'Cloud-init, addresses of the network cards, as V({ipconfig0: "ip=192.0.2.10/24,gw=192.0.2.1"}).'
      - Keys are C(ipconfig0) to C(ipconfig31), each for the card of the same number.
      - Values have the properties V(ip) and V(ip6) (an address with its prefix, V(dhcp), for V(ip6) also V(auto)),
        V(gw) and V(gw6).
    type: dict
  keyboard:
    description:
      - Keyboard layout of the VNC server.
    type: str
    choices: [de, de-ch, da, en-gb, en-us, es, fi, fr, fr-be, fr-ca, fr-ch, hu, is, it, ja, lt, mk, nl, 'no', pl, pt,
      pt-br, sv, sl, tr]
  kvm:
    description:
      - Whether the VM uses the virtualization of the host's CPU.
    type: bool
  localtime:
    description:
      - Whether the clock of the VM shows local time. Proxmox VE decides by O(ostype) when this is not given.
    type: bool
  machine:
    description:
      - The machine type, for example V(q35) or V(pc-i440fx-9.0), with properties if wanted as in V(q35,viommu=intel).
      - Proxmox VE writes a version into the machine type of a Windows guest. That is not taken for a difference.
    type: str
  memory:
    description:
      - Memory, a whole number of MiB, at least 16. Proxmox VE takes V(512) when this is not given, a clone has that of
        its template.
    type: str
  migrate_downtime:
    description:
      - Longest pause in seconds that a live migration may end with.
    type: float
  migrate_speed:
    description:
      - Most MB/s that a migration may use. V(0) is no limit.
    type: int
  nameservers:
    description:
      - Cloud-init, addresses of the DNS servers. The node's are used when this is not given.
    type: list
    elements: str
  net:
    description:
      - 'Network cards, as V({net0: "virtio,bridge=vmbr0,tag=77,firewall=1"}). Keys are C(net0) to C(net31).'
      - Values are strings of properties or mappings of them. The model comes first, followed by V(=) and a MAC address
        if it is to be fixed.
      - Further properties are V(bridge), V(firewall), V(host-tunnel), V(link_down), V(mtu), V(queues), V(rate) (MB/s),
        V(tag) (VLAN) and V(trunks).
      - A MAC address that Proxmox VE generated is kept and is no difference.
      - Whether the bridges exist on the node is looked at by the plugin C(NetworkBridge), which is off by default.
    type: dict
  numa:
    description:
      - 'NUMA nodes of the VM, as V({numa0: "cpus=0-1,memory=2048,hostnodes=0,policy=bind"}).'
      - Keys are C(numa0) to C(numa7).
    type: dict
  numa_enabled:
    description:
      - Whether the VM has NUMA at all.
    type: bool
  onboot:
    description:
      - Whether the VM is started when its node has booted.
    type: bool
  ostype:
    description:
      - The operating system of the guest. V(l26) is every Linux since 2.6.
    type: str
    choices: [other, wxp, w2k, w2k3, w2k8, wvista, win7, win8, win10, win11, l24, l26, solaris]
  parallel:
    description:
      - 'Parallel ports of the node, as V({parallel0: /dev/parport0}). Keys are C(parallel0) to C(parallel2).'
      - Only C(root@pam) with its password may set them.
    type: dict
  protection:
    description:
      - Whether the VM and its disks are protected from being removed.
    type: bool
  reboot:
    description:
      - Whether the guest may reboot. V(false) ends the VM when it does.
    type: bool
  rng0:
    description:
      - Where the VM's random number device reads from, for example V(/dev/urandom) or
        V(source=/dev/urandom,max_bytes=1024,period=1000).
    type: str
  sata:
    description:
      - SATA drives. Keys are C(sata0) to C(sata5).
      - See O(scsi) for the values.
    type: dict
  scsi:
    description:
      - 'SCSI drives, as V({scsi0: "vmdata:32,ssd=1"}). Keys are C(scsi0) to C(scsi30).'
      - A value is a string in the way of Proxmox VE, or a mapping.
      - V(vmdata:32) is a new disk of 32 GiB on storage V(vmdata). V(:32) is one on a storage that is chosen.
      - V(vmdata:0,import-from=local:import/debian.qcow2) is a copy of that image, V(vmdata:cloudinit) the drive with
        the cloud-init data, V(local:iso/debian.iso,media=cdrom) a CD, V(none,media=cdrom) an empty CD-ROM drive,
        V(vmdata:vm-101-disk-0) a volume that exists.
      - Properties follow after commas. Common ones are V(aio), V(backup), V(cache), V(discard), V(format), V(iothread),
        V(media), V(replicate), V(ro), V(serial), V(ssd), and the limits V(iops...), V(mbps...) and V(bps...).
      - A mapping has the same properties as keys, and V(storage), V(size) (GiB, or with a unit such as V(512M)),
        V(storage_class) (a class to choose the storage from), V(volume) (what exists) and V(import_from).
      - An imported disk that is to be larger than its image has a V(size), too.
      - On a VM that exists, the name of a disk's volume means nothing. A larger size makes the disk grow. A smaller
        size, another storage and another volume are reported and never applied.
      - Of a disk that exists only the properties that are given are compared. The others stay as they are.
      - 'A disk that a clone has from its template may be given without a size, as V({scsi0: {ssd: true}}), and never
        with a smaller one.'
    type: dict
  scsihw:
    description:
      - The SCSI controller.
    type: str
    choices: [lsi, lsi53c810, virtio-scsi-pci, virtio-scsi-single, megasas, pvscsi]
  searchdomains:
    description:
      - Cloud-init, DNS search domains. The node's are used when this is not given.
    type: list
    elements: str
  serial:
    description:
      - 'Serial ports, as V({serial0: socket}). Keys are C(serial0) to C(serial3).'
      - Values are V(socket) or a device of the node below C(/dev), which binds the VM to it, and which only C(root@pam)
        with its password may set.
    type: dict
  shares:
    description:
      - Weight of the VM when ballooning has to take memory away, up to 50000. V(0) leaves it out.
    type: int
  smbios:
    description:
      - Fields of SMBIOS type 1, for example V(family=...,manufacturer=...,serial=...,uuid=...).
      - Texts are in Base64 when V(base64=1) is among them. A UUID that Proxmox VE generated is kept.
    type: str
  sockets:
    description:
      - CPU sockets. Proxmox VE takes V(1) when this is not given.
    type: int
  sshkeys:
    description:
      - Cloud-init, public SSH keys of the default user, as a text with a line each, or as a list.
    type: raw
  startdate:
    description:
      - What the VM's clock shows at its start, V(now), a date, or a date with a time such as V(2006-06-17T16:01:21).
    type: str
  startup:
    description:
      - Place in the order of starts, and pauses in seconds, for example V(order=1,up=30,down=60).
    type: str
  tablet:
    description:
      - Whether the VM has a USB tablet, which keeps the pointer in step with that of the VNC client.
    type: bool
  tags:
    description:
      - Tags. They are lower-cased and sorted, as Proxmox VE does it unless told otherwise. An empty list removes them.
    type: list
    elements: str
  tdf:
    description:
      - Whether the drift of the guest's clock is corrected.
    type: bool
  template:
    description:
      - Whether the VM is marked as a template. A template never becomes a VM again.
    type: bool
  tpmstate0:
    description:
      - The disk that keeps the state of the TPM. Its size is Proxmox VE's own affair.
      - A storage is chosen when none is named.
    type: dict
    suboptions:
      storage:
        description:
          - The storage to create it on.
        type: str
      storage_class:
        description:
          - The storage class to choose a storage from.
        type: str
      version:
        description:
          - Version of the TPM. It cannot be changed afterwards.
        type: str
        choices: ['1.2', '2.0']
        default: '2.0'
  usb:
    description:
      - 'USB devices of the node, as V({usb0: "mapping=dongle,usb3=1"}) or V({usb0: spice}).'
      - Keys are C(usb0) to C(usb13).
      - A device by its id or port, such as V(host=046d:c534), binds the VM to one node.
    type: dict
  vcpus:
    description:
      - CPUs that the VM starts with when more can be plugged in, at most O(cores) times O(sockets).
    type: int
  vga:
    description:
      - The display, for example V(std), V(serial0), V(none) or V(virtio,memory=64).
    type: str
  virtio:
    description:
      - VirtIO block drives. Keys are C(virtio0) to C(virtio15).
      - See O(scsi) for the values.
    type: dict
  watchdog:
    description:
      - A watchdog device, for example V(i6300esb,action=reset).
    type: str
"""

    # Annotated, because ansible-test reads every plain assignment here as a literal text.
    VMS: str = suboptions_of("vms", DOCUMENTATION)
