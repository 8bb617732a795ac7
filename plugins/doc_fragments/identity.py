# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that say which VM is meant, what it is made from, and what is to become of it."""

from __future__ import annotations


class ModuleDocFragment:
    """The fragment C(identity); the fragment C(vms) repeats it for the entries of C(vms)."""

    DOCUMENTATION = r"""
options:
  name:
    description:
      - Name of the VM. It tells which VM is meant, unless O(vmid) does.
      - Letters, digits and dashes, in parts between dots. Two VMs of one name are an error, as is a VM of this name
        with another O(vmid).
      - Required for a VM that does not exist.
    type: str
  vmid:
    description:
      - VMID that the VM has, or is to have. Without it the lowest free one is taken that O(vmid_range) and
        O(vmid_regex) allow.
      - A VMID that belongs to a guest of another name, or to a container, is an error, as is one that O(vmid_range) or
        O(vmid_regex) does not allow.
    type: int
    aliases: [newid]
  pool:
    description:
      - Pool that the VM is put into. With O(update) one that exists is moved there from another pool.
      - The pool of a VM that exists is compared only if the user may see it, which needs C(Pool.Audit).
    type: str
  clone:
    description:
      - Name or VMID of the VM or template to clone, when the VM does not exist. The other options are then applied to
        the clone, and disks that are asked for larger are grown.
      - Several templates may bear one name, one on each node; the copy of the node that was decided on is taken.
    type: str
  full:
    description:
      - Whether the clone gets its own copy of every disk. A linked clone, V(false), works from a template only.
      - A full clone is made when this is not given.
    type: bool
  storage:
    description:
      - Storage for the disks of a full clone. The template's storages when not given.
      - An error without O(clone), as are O(full), O(format) and O(snapname). New drives name their own.
    type: str
  format:
    description:
      - Format of the disks of a full clone. V(unspecified) is the same as not giving it.
    type: str
    choices: [cloop, cow, qcow, qcow2, qed, raw, vmdk, unspecified]
  snapname:
    description:
      - Snapshot of the source to clone from.
    type: str
  state:
    description:
      - V(present) creates the VM when it does not exist, and leaves its power alone.
      - V(started) and V(stopped) do the same and see that it runs, or does not.
      - V(absent) removes it with its disks, and stops it before if it runs.
      - V(present) is meant when this is not given.
    type: str
    choices: [present, started, stopped, absent]
  update:
    description:
      - Whether an existing VM that differs from what is asked for is changed. Otherwise the difference is returned as
        C(drift) and warned of.
      - Only what differs is sent. Disks are grown, never shrunk, moved or replaced; if that is what it would take, the
        task fails and the VM is left as it is.
      - Some changes to a running VM take effect only after it is stopped and started, its cores for example. They are
        no drift then. Every run returns them as C(pending) and warns of them. See O(apply_pending).
      - C(cipassword) cannot be compared, as Proxmox VE does not show it.
    type: bool
  limits:
    description:
      - What happens if an existing VM is to grow or to start and its node would refuse it as a new VM. CPU and memory
        limits, free storage space and the placement rules of the VM are checked. V(enforce) is the default.
      - With V(enforce) the VM fails and nothing of it is changed. The message says what its node has room for and which
        other nodes could run it.
      - With V(warn) the VM is changed and started, and a warning says which limit it exceeds.
    type: str
    choices: [enforce, warn]
    version_added: 1.1.0
  apply_pending:
    description:
      - What happens to a running VM with pending changes, which take effect only after the VM is stopped and started.
        V(never) is the default.
      - With V(never) they are returned as C(pending) and warned of.
      - With V(reboot) the VM is shut down and started. If it does not shut down in time it fails, unless C(force) is
        set. This applies to changes that were pending before the task, too.
      - Check mode reports C(reboot) for every update that Proxmox VE may leave pending. The task itself looks at what
        is pending after the update.
    type: str
    choices: [never, reboot]
    version_added: 1.1.0
"""
