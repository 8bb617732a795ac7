# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that identify a VM, name its source and state the wanted result."""

from __future__ import annotations


class ModuleDocFragment:
    """The fragment C(identity); the fragment C(vms) repeats it for the entries of C(vms)."""

    DOCUMENTATION = r"""
options:
  name:
    description:
      - Name of the VM. Identifies the VM if O(vmid) is not given.
      - May contain letters, digits and dashes, in parts separated by dots. It is an error if two VMs have this name, or
        if the VM with this name has another O(vmid).
      - Required to create a VM.
    type: str
  per_node:
    description:
      - Whether each node may have a template of this name. O(name) and O(node) then identify a template together.
      - Without O(node), this stands for one template on each node that takes guests and matches O(node_regex). Of a
        single VM, the result lists them in C(vms).
      - The clone of such a template is made from the copy on its own node, see O(clone).
      - Requires O(template=true) or O(state=absent), and one cluster. Defaults to V(false).
    type: bool
  vmid:
    description:
      - VMID of the existing VM, or VMID for the new VM. A new VM without it gets the lowest free VMID that
        O(vmid_range) and O(vmid_regex) allow.
      - It is an error if the VMID belongs to a guest with another name (see O(rename)) or to a container, or if
        O(vmid_range) or O(vmid_regex) does not allow it.
    type: int
    aliases: [newid]
  pool:
    description:
      - Pool of the VM. With O(update), an existing VM that is in no pool is moved to this pool.
      - A VM that has the O(name) or the O(vmid) but is in another pool is not the requested one, whatever the
        O(state), as anybody may give a VM of their own any name, and VMIDs are used again. This is an error, unless
        O(adopt) is set.
      - The pool of an existing VM is compared only if the user can see it, which requires C(Pool.Audit).
    type: str
  rename:
    description:
      - Whether the VM with the O(vmid) may have another name than O(name). With O(update), it gets this name.
        Defaults to V(false), which protects a VM from a wrong number.
    type: bool
  adopt:
    description:
      - Whether a VM that has the O(name) or the O(vmid) but is in another pool than O(pool) is the requested one. With
        O(update), it is moved to O(pool). Defaults to V(false).
      - The same holds for a VM that has the VMID and the O(name) of one that a run created a moment ago, or began to
        create, and is another one.
    type: bool
  accept_unknown:
    description:
      - Some minutes after a node has gone offline, Proxmox VE no longer returns the names of its VMs. Their names are
        then looked up in the lists of backup jobs and guests without backup, which requires C(Sys.Audit) on C(/).
        Names that the inventory plugin has read from the cluster on this host within the last hour are known as well.
      - A VM that is identified by O(name) alone, and may be one of the VMs whose names remain unknown, is neither
        created nor regarded as removed. This is an error.
      - A template that is identified by its name alone, and is in another pool than O(pool), is not cloned if one of
        those VMs may be the template that is meant. This is an error.
      - V(true) treats such a VM as missing, with a warning. Two VMs of the same name may be the result. Defaults
        to V(false).
    type: bool
  clone:
    description:
      - Name or VMID of the VM or template to clone if the VM does not exist. The other options are then applied to the
        clone, and disks with a larger size are grown.
      - 'Or a mapping with C(name) or C(vmid), and optionally with C(pool) and C(node), where the source has to be, such
        as V({name: debian-13, pool: templates}).'
      - Several templates may have the same name, one on each node, see O(per_node). If they have different names, list
        the names or VMIDs, as in V([debian-13-pve1, debian-13-pve2]). The clone is made from the copy on the chosen
        node. All of them must be in one pool and have the same disks, sizes, tags, C(bios), C(machine), C(ostype) and
        C(scsihw).
      - Anybody may give a VM of their own the name of a template. So of templates in different pools, only those in the
        pool of the new VM count. If there are none, C(pool) of the mapping has to say which ones are meant. Beside
        templates, plain VMs of the name do not count. To be certain, name the pool or the VMID.
      - A template may be made by the same task, with O(template=true). Otherwise, check mode also requires that it
        exists, even if an earlier task of the play would create it.
    type: raw
  archive:
    description:
      - Backup to restore if the VM does not exist. Either the volume identifier of a backup, such as
        V(nas:backup/vzdump-qemu-100-2026_01_01-00_00_00.vma.zst), or a VMID, such as V(100), for the latest backup of
        this VM, or V(nas:100) for the latest one on the storage C(nas).
      - A VMID may have belonged to several VMs. The task fails if the oldest and the latest backup have different
        names, and different UUIDs or times of creation, and the latest one does not have the requested name. Name the
        volume then.
      - The other options then replace those of the backup, and disks with a larger size are grown. Options that are not
        given keep the values of the backup.
      - The VM is placed by the sizes in the backup, on a node that sees the backup. All disks of the backup are
        restored to one storage, the one in O(storage) or of a drive, or else the one with the most room.
      - An existing VM is never overwritten. To reset a VM to a backup, remove it first.
    type: str
  unique:
    description:
      - Whether a VM that is restored from O(archive) gets new MAC addresses and a new UUID. V(false) keeps those of the
        backup. Defaults to V(true).
    type: bool
  full:
    description:
      - Whether to copy every disk. V(false) makes a linked clone, which requires a template.
      - Defaults to a full clone.
    type: bool
  storage:
    description:
      - Storage for the disks of a full clone. By default, the disks are on the template's storages.
      - If Proxmox VE cannot clone to this storage because the template is on another node, the clone is made on the
        template's storage, and its disks are moved before the VM starts. If that fails, the clone is removed.
      - Storage for the disks of a VM that is restored from O(archive).
      - O(full), O(format) and O(snapname) require O(clone), O(storage) requires O(clone) or O(archive). For a new
        drive, set the storage in the drive.
    type: str
  storage_class:
    description:
      - Storage class for the disks of a full clone, from which the scheduler chooses a storage of the node. A storage
        or a storage class of a drive has precedence.
      - Disks are moved if necessary, as described for O(storage).
    type: str
  format:
    description:
      - Format of the disks of a full clone. V(unspecified) has the same effect as leaving it out.
    type: str
    choices: [cloop, cow, qcow, qcow2, qed, raw, vmdk, unspecified]
  snapname:
    description:
      - Snapshot of the source to clone from.
    type: str
  state:
    description:
      - V(present) creates the VM if it does not exist, and neither starts nor stops it.
      - V(started) and V(stopped) also start or stop it.
      - V(started) also resumes a paused VM.
      - V(absent) removes the VM with its disks. A running VM is stopped first.
      - V(restarted) shuts a running VM down and starts it, which is a change in every run, and starts a stopped VM. A
        new VM is created and started.
      - V(paused) stops the CPUs of a running VM. Its memory stays in use.
      - V(suspended) writes the memory of a running VM to disk and stops it. V(started) resumes it.
      - A VM that does not run cannot be paused or suspended.
    type: str
    choices: [present, started, stopped, absent, restarted, paused, suspended]
    default: present
  update:
    description:
      - Whether to change an existing VM that has drifted from the request. Otherwise the drift is returned as C(drift)
        with a warning.
      - Only the parameters that differ are sent. Disks are grown, and moved to the storage or storage class that is
        given for them, but never shrunk or replaced. If the request would require that, the task fails and does not
        change the VM.
      - Some changes to a running VM, such as its cores, take effect only after the VM is stopped and started. Such a
        pending change is not drift. Every run returns pending changes as C(pending) with a warning. See
        O(apply_pending).
      - C(cipassword) cannot be compared, as Proxmox VE does not show it.
    type: bool
    default: false
  limits:
    description:
      - What to do if an existing VM is to grow or start, or one of its disks is to move, but its node would reject it
        as a new VM. The CPU and memory limits, the free storage space and the placement rules of the VM are checked.
      - With V(enforce) the VM fails and is not changed. The message states how much room the node has and which other
        nodes could run the VM.
      - With V(warn) the VM is changed and started, and a warning names the exceeded limit.
    type: str
    choices: [enforce, warn]
    default: enforce
  apply_pending:
    description:
      - What to do with a running VM that has pending changes, which take effect only after the VM is stopped and
        started.
      - With V(never) the changes are returned as C(pending) with a warning.
      - With V(reboot) the VM is shut down and started. If it does not shut down in time, the VM fails, unless C(force)
        is set. This also applies to changes that were pending before the task.
      - Check mode reports C(reboot) for every update that Proxmox VE may leave pending. Outside check mode, the task
        reads what is pending after the update.
    type: str
    choices: [never, reboot]
    default: never
"""
