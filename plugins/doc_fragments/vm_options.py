# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that describe a VM, for the top level and for each entry of C(vms)."""

from __future__ import annotations

import re
import textwrap


def suboptions_of(option: str, *fragments: str) -> str:
    """Return a fragment in which the options of the given fragments are suboptions of one option, a list.

    The suboptions have no defaults: if an entry does not set one, the option of that name at the top level applies. All
    suboptions of an option must be in one fragment: if two fragments define some, Ansible drops those of the second.
    """
    options = "".join(fragment.partition("options:\n")[2] for fragment in fragments)
    inherited = re.sub(r"^    default: .*\n", "", options, flags=re.MULTILINE)
    linked = re.sub(r"\bO\((?=\w)", f"O({option}[].", inherited)
    return f"options:\n  {option}:\n    suboptions:\n" + textwrap.indent(linked, "    ")


class ModuleDocFragment:
    """The fragments C(vm_options) and C(vm_options.vms)."""

    DOCUMENTATION = r"""
options:
  acpi:
    description:
      - Whether the VM has ACPI.
      - Proxmox VE defaults to V(true).
    type: bool
  agent:
    description:
      - Settings of the QEMU guest agent.
      - Either a boolean or properties such as V(enabled=1,fstrim_cloned_disks=1,type=virtio).
    type: raw
  allow_ksm:
    description:
      - Whether the host may merge identical memory pages of this VM with those of other VMs (KSM).
      - Proxmox VE defaults to V(true). Requires Proxmox VE 9.1 or later.
    type: bool
  amd_sev:
    description:
      - Memory encryption by AMD SEV, for example V(snp) or V(type=es,kernel-hashes=1).
      - Properties are V(type) (V(std), V(es) or V(snp)), V(allow-smt), V(kernel-hashes), V(no-debug) and
        V(no-key-sharing).
      - Only C(root@pam) with its password may set it.
    type: raw
  args:
    description:
      - Additional arguments for the kvm process. Only C(root@pam) with its password may set them.
    type: str
  audio:
    description:
      - 'The sound device, for example V({audio0: "device=ich9-intel-hda,driver=spice"}).'
      - The key is C(audio0). The value is a string of properties or a mapping of them.
    type: dict
  autostart:
    description:
      - Whether to restart the VM after a crash. Proxmox VE stores this setting but ignores it.
    type: bool
  balloon:
    description:
      - Minimum memory in MiB to which ballooning may shrink the VM. A whole number, at most O(memory). V(0) disables
        ballooning.
    type: str
  bios:
    description:
      - The firmware. V(ovmf) is UEFI and should be combined with O(efidisk0).
    type: str
    choices: [seabios, ovmf]
  boot:
    description:
      - The devices to boot from, for example V(order=scsi0;ide2;net0).
      - Alternatively, up to four of the letters V(a) (floppy), V(c) (disk), V(d) (CD-ROM) and V(n) (network).
    type: raw
  bootdisk:
    description:
      - The disk to boot from, in the syntax of old releases. Prefer O(boot).
    type: str
  cicustom:
    description:
      - Cloud-init, snippets that replace the generated configuration, for example
        V(user=local:snippets/user.yml,network=local:snippets/net.yml).
    type: raw
  cipassword:
    description:
      - Cloud-init, password of the default user.
      - Proxmox VE does not return passwords. The module therefore treats any existing password as correct and cannot
        detect that the requested one has changed. A new clone always gets the password.
    type: str
  citype:
    description:
      - Cloud-init, the data format. By default, Proxmox VE chooses by O(ostype).
    type: str
    choices: [nocloud, configdrive2, opennebula]
  ciupgrade:
    description:
      - Cloud-init, whether to upgrade packages at the first boot.
    type: bool
  ciuser:
    description:
      - Cloud-init, name of the default user.
    type: str
  cores:
    description:
      - Cores per socket. Proxmox VE defaults to V(1); a clone keeps those of its template.
    type: int
  cpu:
    description:
      - The CPU model, optionally with flags, for example V(host), V(x86-64-v2-AES) or V(host,flags=+aes;-pcid).
    type: raw
  cpu_affinity:
    description:
      - Host CPUs to run the VM on, for example V(0,5,8-11). Proxmox VE calls this C(affinity).
      - Only C(root@pam) with its password may set it.
    type: str
  cpulimit:
    description:
      - Limit of the VM's CPU time, in CPUs. V(0) means no limit.
    type: float
  cpuunits:
    description:
      - CPU weight of the VM. It takes effect when VMs compete for CPU time.
    type: int
  description:
    description:
      - Notes, shown in the web interface. An empty string removes them.
    type: str
  efidisk0:
    description:
      - The disk for the UEFI variables. Takes effect with O(bios=ovmf).
      - Proxmox VE sets its size. If no storage is named, the scheduler chooses one.
    type: dict
    suboptions:
      efitype:
        description:
          - Layout of the variables. Secure Boot requires V(4m).
        type: str
        choices: [2m, 4m]
      format:
        description:
          - Format of the image, for storages that support several formats.
        type: str
      ms_cert:
        description:
          - The Microsoft certificates for Secure Boot. Those of 2011 have expired in 2026. With V(2023k), Proxmox VE
            enrolls the certificates of 2023 into an existing disk that has O(efidisk0.pre_enrolled_keys), when the
            VM is stopped or starts the next time. New disks get them without this option.
        type: str
        choices: ['2011', '2023', 2023w, 2023k]
      pre_enrolled_keys:
        description:
          - Whether to enroll the keys of distributions and of Microsoft. This enables Secure Boot.
        type: bool
      remove:
        description:
          - Removes the disk, as described for O(scsi).
        type: str
        choices: [unused, destroy]
      storage:
        description:
          - The storage for the disk.
        type: str
      storage_class:
        description:
          - The storage class to choose a storage from.
        type: str
  freeze:
    description:
      - Freeze the CPU at startup.
    type: bool
  hookscript:
    description:
      - A script that the node runs when the VM starts and stops, for example V(local:snippets/hook.pl). Only
        C(root@pam) with its password may set it.
    type: str
  hostpci:
    description:
      - 'PCI devices of the node, for example V({hostpci0: "mapping=gpu,pcie=1"}).'
      - Keys are C(hostpci0) to C(hostpci15). Values are strings of properties or mappings of them.
      - A device address, such as V(0000:01:00.0), ties the VM to one node. Only C(root@pam) with its password may set
        it.
      - A new VM is not placed on a node that lacks the mapping or the device. To get a node where the device is free,
        claim it with O(devices).
    type: dict
  hotplug:
    description:
      - What can be changed while the VM runs. A comma-separated list of V(network), V(disk), V(cpu), V(memory), V(usb)
        and V(cloudinit).
      - V(1) stands for Proxmox VE's default V(network,disk,usb), V(0) for nothing.
    type: str
  hugepages:
    description:
      - Size in MiB of the huge pages that back the VM's memory. Only C(root@pam) with its password may set it.
    type: str
    choices: [any, '2', '1024']
  ide:
    description:
      - 'IDE drives, for example V({ide2: "local:iso/debian.iso,media=cdrom"}). Keys are C(ide0) to C(ide3).'
      - See O(scsi) for the values.
    type: dict
  intel_tdx:
    description:
      - Memory encryption by Intel TDX, for example V(type=tdx,attestation=1). Both properties are required.
      - Further properties are V(vsock-cid) and V(vsock-port). Requires Proxmox VE 9.1 or later.
      - Only C(root@pam) with its password may set it.
    type: raw
  ipconfig:
    description:
      - 'Cloud-init, addresses of the network cards, for example V({ipconfig0: "ip=192.0.2.10/24,gw=192.0.2.1"}).'
      - Keys are C(ipconfig0) to C(ipconfig31), each for the network card with the same number.
      - Values have the properties V(ip) and V(ip6) (an address with its prefix length, V(dhcp), or V(auto) for V(ip6)),
        V(gw) and V(gw6). A gateway requires an address of the same kind.
    type: dict
  ivshmem:
    description:
      - Memory that is shared between VMs, or with the host, for example V(size=32,name=shm). The size is in MiB.
      - Only C(root@pam) with its password may set it.
    type: raw
  keyboard:
    description:
      - Keyboard layout of the VNC server.
    type: str
    choices: [de, de-ch, da, en-gb, en-us, es, fi, fr, fr-be, fr-ca, fr-ch, hu, is, it, ja, lt, mk, nl, 'no', pl, pt,
      pt-br, sv, sl, tr]
  kvm:
    description:
      - Whether the VM uses hardware virtualization.
    type: bool
  localtime:
    description:
      - Whether the VM's real-time clock uses local time. By default, Proxmox VE decides by O(ostype).
    type: bool
  machine:
    description:
      - The machine type, for example V(q35) or V(pc-i440fx-9.0), optionally with properties as in V(q35,viommu=intel).
      - Proxmox VE adds a version to the machine type of a Windows guest. This is not drift.
    type: raw
  memory:
    description:
      - Memory in MiB, a whole number, at least 16. Proxmox VE defaults to V(512); a clone keeps that
        of its template.
    type: str
  migrate_downtime:
    description:
      - Maximum downtime of a live migration, in seconds.
    type: float
  migrate_speed:
    description:
      - Maximum speed of a migration, in MB/s. V(0) means no limit.
    type: int
  nameservers:
    description:
      - Cloud-init, addresses of the DNS servers. Defaults to the node's servers.
    type: list
    elements: str
  net:
    description:
      - 'Network cards, for example V({net0: "virtio,bridge=vmbr0,tag=77,firewall=1"}). Keys are C(net0) to C(net31).'
      - Values are strings of properties or mappings of them. The model comes first, optionally followed by V(=) and a
        fixed MAC address.
      - Further properties are V(bridge), V(firewall), V(host-tunnel), V(link_down), V(mtu), V(queues), V(rate) (MB/s),
        V(tag) (VLAN) and V(trunks).
      - A MAC address that Proxmox VE generated is kept and is not drift.
      - The plugin C(NetworkBridge) checks that the bridges exist on the node.
    type: dict
  numa:
    description:
      - 'NUMA nodes of the VM, for example V({numa0: "cpus=0-1,memory=2048,hostnodes=0,policy=bind"}).'
      - Keys are C(numa0) to C(numa7).
    type: dict
  numa_enabled:
    description:
      - Whether NUMA is enabled for the VM.
    type: bool
  onboot:
    description:
      - Whether to start the VM when its node boots.
    type: bool
  ostype:
    description:
      - The operating system of the guest. V(l26) means Linux 2.6 and later.
    type: str
    choices: [other, wxp, w2k, w2k3, w2k8, wvista, win7, win8, win10, win11, l24, l26, solaris]
  parallel:
    description:
      - 'Parallel ports of the node, for example V({parallel0: /dev/parport0}). Keys are C(parallel0) to C(parallel2).'
      - Only C(root@pam) with its password may set them.
    type: dict
  protection:
    description:
      - Whether the VM and its disks are protected against removal.
    type: bool
  reboot:
    description:
      - Whether the guest may reboot. With V(false), a reboot stops the VM.
    type: bool
  rng0:
    description:
      - Source of the VM's random number generator, for example V(/dev/urandom) or
        V(source=/dev/urandom,max_bytes=1024,period=1000).
    type: raw
  sata:
    description:
      - SATA drives. Keys are C(sata0) to C(sata5).
      - See O(scsi) for the values.
    type: dict
  scsi:
    description:
      - 'SCSI drives, for example V({scsi0: "vmdata:32,ssd=1"}). Keys are C(scsi0) to C(scsi30).'
      - A value is a string in the syntax of Proxmox VE, or a mapping.
      - V(vmdata:32) is a new disk of 32 GiB on the storage V(vmdata). With V(:32), the scheduler chooses the storage.
      - V(vmdata:0,import-from=local:import/debian.qcow2) is a copy of that image, V(vmdata:cloudinit) the cloud-init
        drive, V(local:iso/debian.iso,media=cdrom) a CD, V(none,media=cdrom) an empty CD-ROM drive,
        V(vmdata:vm-101-disk-0) an existing volume.
      - Properties follow after commas. Common ones are V(aio), V(backup), V(cache), V(discard), V(format), V(iothread),
        V(media), V(replicate), V(ro), V(serial), V(ssd), and the limits V(iops...), V(mbps...) and V(bps...).
      - The limits V(bps), V(bps_rd) and V(bps_wr), in bytes, are sent to Proxmox VE in MiB, as V(mbps) and so on.
      - A mapping has the same properties as keys, and V(storage), V(size) (GiB, or with a unit such as V(512M)),
        V(storage_class) (the class to choose the storage from), V(volume) (an existing volume) and V(import_from).
      - To make an imported disk larger than its image, set V(size) as well.
      - 'V({scsi1: {remove: unused}}) removes a drive, with O(update) from an existing VM, and from a clone. The VM
        keeps the volume as an unused disk, except for that of a cloud-init drive, which Proxmox VE destroys.
        V({scsi1: {remove: destroy}}) destroys the volume with its data as well.'
      - For an existing disk, the name of the volume is not compared. With O(update), a larger size grows the disk, and
        another storage moves it. A smaller size or another existing volume is reported as drift and never applied.
      - For an existing disk, only the given properties are compared. The others are not changed.
      - 'For a disk that a clone gets from its template, the size may be omitted, as in V({scsi0: {ssd: true}}). It must
        not be smaller than in the template.'
    type: dict
  scsihw:
    description:
      - The SCSI controller.
    type: str
    choices: [lsi, lsi53c810, virtio-scsi-pci, virtio-scsi-single, megasas, pvscsi]
  searchdomains:
    description:
      - Cloud-init, DNS search domains. Defaults to the node's domains.
    type: list
    elements: str
  serial:
    description:
      - 'Serial ports, for example V({serial0: socket}). Keys are C(serial0) to C(serial3).'
      - Values are V(socket), or a device of the node below C(/dev). Such a device ties the VM to the node, and only
        C(root@pam) with its password may set it.
    type: dict
  shares:
    description:
      - Memory weight of the VM for automatic ballooning, up to 50000. V(0) excludes the VM.
    type: int
  smbios:
    description:
      - Fields of SMBIOS type 1, for example V(family=...,manufacturer=...,serial=...,uuid=...).
      - With V(base64=1), the values are Base64-encoded. A UUID that Proxmox VE generated is kept.
    type: raw
  sockets:
    description:
      - CPU sockets. Proxmox VE defaults to V(1).
    type: int
  spice_enhancements:
    description:
      - Enhancements of SPICE, for example V(foldersharing=1,videostreaming=all).
      - Only C(root@pam) with its password may set it.
    type: raw
  sshkeys:
    description:
      - Cloud-init, public SSH keys of the default user, as a string with one key per line, or as a list.
    type: raw
  startdate:
    description:
      - Initial time of the VM's clock, V(now), a date, or a date with a time such as V(2006-06-17T16:01:21).
    type: str
  startup:
    description:
      - Startup order, and the start and shutdown delays in seconds, for example V(order=1,up=30,down=60).
    type: raw
  tablet:
    description:
      - Whether the VM has a USB tablet. It synchronizes the mouse pointer with that of the VNC client.
    type: bool
  tags:
    description:
      - Tags. They are converted to lower case and sorted, which is the default of Proxmox VE. An empty list removes all
        tags.
    type: list
    elements: str
  tdf:
    description:
      - Whether to enable the time drift fix.
    type: bool
  template:
    description:
      - Whether the VM is a template. A template cannot be converted back to a VM.
    type: bool
  tpmstate0:
    description:
      - The disk for the TPM state. Proxmox VE sets its size.
      - If no storage is named, the scheduler chooses one.
    type: dict
    suboptions:
      remove:
        description:
          - Removes the TPM state, as described for O(scsi). With it, the guest loses its keys.
        type: str
        choices: [unused, destroy]
      storage:
        description:
          - The storage for the disk.
        type: str
      storage_class:
        description:
          - The storage class to choose a storage from.
        type: str
      version:
        description:
          - TPM version. It cannot be changed later. Defaults to V(2.0).
        type: str
        choices: ['1.2', '2.0']
  usb:
    description:
      - 'USB devices of the node, for example V({usb0: "mapping=dongle,usb3=1"}) or V({usb0: spice}).'
      - Keys are C(usb0) to C(usb13).
      - A device given by its ID or port, such as V(host=046d:c534), ties the VM to one node.
      - A new VM is not placed on a node that lacks the mapping or the device. To get a node where the device is free,
        claim it with O(devices).
    type: dict
  vcpus:
    description:
      - Number of vCPUs plugged in at startup, at most O(cores) times O(sockets).
    type: int
  vga:
    description:
      - The display, for example V(std), V(serial0), V(none) or V(virtio,memory=64).
    type: raw
  virtio:
    description:
      - VirtIO block drives. Keys are C(virtio0) to C(virtio15).
      - See O(scsi) for the values.
    type: dict
  virtiofs:
    description:
      - 'Directories of the host to share with the VM, for example V({virtiofs0: "data,cache=always"}).'
      - Keys are C(virtiofs0) to C(virtiofs9). Values are strings of properties or mappings of them. The name of a
        directory mapping comes first.
      - Further properties are V(cache), V(direct-io), V(expose-acl) and V(expose-xattr).
    type: dict
  vmstatestorage:
    description:
      - Storage for the memory of the VM in snapshots and when it is suspended to disk.
    type: str
  watchdog:
    description:
      - A watchdog device, for example V(i6300esb,action=reset).
    type: raw
"""

    # Annotated, because ansible-test reads every plain assignment here as a literal text.
    VMS: str = suboptions_of("vms", DOCUMENTATION)
