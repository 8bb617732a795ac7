# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every error that is reported to users, each with a stable code.

The first paragraph of a class's docstring is the cause, the text after C(Cure:) is what to do; the table of error codes
in the documentation is generated from both.
"""

from __future__ import annotations

import typing as t


class CollectionError(Exception):
    """An error that is reported to the user.

    Attributes:
        code: stable code of the error, returned as C(error_code).
        details: further data about the error, JSON-able, without secrets; returned as C(error_details).
    """

    code: t.ClassVar[str] = "Error"

    def __init__(self, message: str, **details: t.Any) -> None:
        super().__init__(message)
        self.details: dict[str, t.Any] = details

    @property
    def message(self) -> str:
        return str(self.args[0])


class InvalidRequest(CollectionError):
    """An option has an invalid value, or two options contradict each other.

    Cure: correct the option. The message names it, its value and what was expected. Nothing was written.
    """

    code = "InvalidRequest"


class InvalidPluginConfig(CollectionError):
    """The plugin config contains an unknown section, plugin or key, or a value of the wrong type.

    Cure: correct the config. The message lists the valid names.
    """

    code = "InvalidPluginConfig"


class NoNodesAvailable(CollectionError):
    """No node is feasible for a VM.

    Cure: free capacity or relax a rule. The message counts the nodes per reason, and C(decision.nodes) contains the
    reason of each node.
    """

    code = "NoNodesAvailable"


class SchedulingGated(CollectionError):
    """A VM is held back by its scheduling gates, or by another plugin that delays it.

    Cure: open its gates with C(open_gates), or remove them from the VM. The message names what holds it back.
    """

    code = "SchedulingGated"


class NoVMIDAvailable(CollectionError):
    """Every VMID that the request allows is taken.

    Cure: widen C(vmid_range) or C(vmid_regex), or the datacenter's next-id bounds.
    """

    code = "NoVMIDAvailable"


class NoStorageAvailable(CollectionError):
    """No node that passed the other filters has a storage for every disk of the VM.

    Cure: free space, or select other storages. The message states per disk what is missing: the storage, its
    activation, its content types or the space.
    """

    code = "NoStorageAvailable"


class AmbiguousName(CollectionError):
    """Two or more guests have the name in a request or in C(clone), or one of them has it in another case. Or the
    backups of the VMID in C(archive) are of several VMs.

    Cure: identify the VM by C(vmid), or rename the other guests. The message lists them. For C(clone), name the pool,
    the node or the VMID of the template. For C(archive), name the volume.
    """

    code = "AmbiguousName"


class OtherPool(CollectionError):
    """The VM that has the requested name or VMID is in another pool than the requested one.

    Cure: if it is the VM that you mean, set C(adopt), or correct C(pool). Otherwise, choose another name.
    """

    code = "OtherPool"


class VMNotKnown(CollectionError):
    """A VM was not found by its name, and may be one of those on an offline node whose names Proxmox VE does not tell.

    Cure: bring the node back, or identify the VM by C(vmid). If it is none of them, set C(accept_unknown).
    """

    code = "VMNotKnown"


class VMIDConflict(CollectionError):
    """The requested VMID belongs to a guest with another name, or to a container.

    Cure: request another VMID, or omit C(vmid) to get the lowest free one.
    """

    code = "VMIDConflict"


class TemplateNotFound(CollectionError):
    """The guest in C(clone) does not exist, or this user cannot see it.

    Cure: check the name, and that the user has VM.Audit and VM.Clone on the guest.
    """

    code = "TemplateNotFound"


class ArchiveNotFound(CollectionError):
    """The backup in C(archive) does not exist, or this user cannot see it.

    Cure: check the volume or the VMID, and that the user has VM.Backup on the VM that the backup is of, and
    Datastore.AllocateSpace on the backup storage.
    """

    code = "ArchiveNotFound"


class PluginFailed(CollectionError):
    """A plugin raised an exception while it processed a VM.

    Cure: fix the plugin. The message names it and the exception. Other VMs of the run are not affected.
    """

    code = "PluginFailed"


class ConnectionFailed(CollectionError):
    """Proxmox could not be reached, did not respond in time, sent an invalid response, or has an untrusted certificate.

    Cure: check C(api_host), C(api_port) and C(api_timeout). For a private CA, set C(ca_path).
    """

    code = "ConnectionFailed"


class ClusterUnreachable(CollectionError):
    """A VM was not found, and may exist on one of the C(clusters) that cannot be reached.

    Cure: bring the cluster back. If the VM cannot be there, name its clusters in C(cluster), or set
    C(when_unreachable=skip). Nothing was done with the VM.
    """

    code = "ClusterUnreachable"


class AuthenticationFailed(CollectionError):
    """Proxmox refused the user, the password or the token.

    Cure: check C(api_user) with its realm, and the token's name and secret.
    """

    code = "AuthenticationFailed"


class PermissionDenied(CollectionError):
    """The user or token lacks a privilege. The message from Proxmox names the path and the privilege.

    Cure: grant the privilege. A privilege-separated token needs its own privileges.
    """

    code = "PermissionDenied"


class ApiError(CollectionError):
    """Proxmox refused an API request for another reason.

    Cure: see the message, which comes from Proxmox and names the field, the VM or the node.
    """

    code = "ApiError"


class NoQuorum(ApiError):
    """The cluster has no quorum: there is no majority of nodes that see each other, so nothing can be changed.

    Cure: bring the other nodes back. Nothing was written, unless the message says so.
    """

    code = "NoQuorum"


class TaskFailed(CollectionError):
    """A Proxmox task (create, clone, start, ...) ended with an error.

    Cure: see the last lines of the task's log at the end of the message.
    """

    code = "TaskFailed"

    def __init__(self, message: str, *, exitstatus: str = "", **details: t.Any) -> None:
        super().__init__(message, **({"exitstatus": exitstatus} if exitstatus else {}), **details)
        self.exitstatus = exitstatus


class TaskTimeout(CollectionError):
    """A Proxmox task did not end within C(timeout), or could not be followed. It continues on the cluster.

    Cure: look up the task by the UPID in the message, raise C(timeout), and run again. The next run finds the VM by its
    name, and finishes it if necessary.
    """

    code = "TaskTimeout"

    def __init__(self, message: str, *, upid: str | None = None, **details: t.Any) -> None:
        super().__init__(message, **({} if upid is None else {"upid": upid}), **details)
        self.upid = upid


class Interrupted(TaskTimeout):
    """The Ansible task was interrupted (Ctrl-C, a cancelled job).

    Cure: run again. The message states what is done, what continues on the cluster, and what was not begun.
    """

    code = "Interrupted"


class InternalError(CollectionError):
    """The collection has a mistake: it noticed that it did not do what it was about to report.

    Cure: report it, with the task and a recording of the cluster (C(cluster_snapshot_info)). Run again: the next run
    begins with what the cluster shows.
    """

    code = "InternalError"


class LedgerUnavailable(CollectionError):
    """The ledger of reservations cannot be opened, reached or locked.

    Cure: check C(reservations), the directory of the file, or the database. A VM that fails with this error was not
    changed. The results of the other VMs are in their own entries.
    """

    code = "LedgerUnavailable"


class LedgerIncompatible(CollectionError):
    """The schema of the ledger belongs to another version of this collection, or the file is damaged.

    Cure: update all controllers to the same version, or move the file away while no run is active.
    """

    code = "LedgerIncompatible"


class MissingLibrary(CollectionError):
    """A Python package that this option needs is not installed.

    Cure: install the package for the interpreter. The message names both.
    """

    code = "MissingLibrary"


class InvalidSnapshot(CollectionError):
    """C(snapshot) is not a mapping of API paths to responses, or lacks C(/cluster/resources).

    Cure: record one with M(qemu_scheduler.proxmox.cluster_snapshot_info).
    """

    code = "InvalidSnapshot"


class DriftNotApplicable(CollectionError):
    """C(update) is set, but the VM has drifted in a property that cannot be changed, such as a disk that should shrink;
    or a run began to create the VM, and which device or address it chose is no longer known.

    Cure: change the VM manually, or change the request to match it. The message states the reason for each option.
    Nothing was changed.
    """

    code = "DriftNotApplicable"


class LimitExceeded(CollectionError):
    """An existing VM must not grow or start, because of a limit of its node or a placement rule of the VM.

    Cure: free capacity, migrate the VM, request less, or set C(limits=warn). The message states how much room the node
    has, and which other nodes could run the VM. Nothing was changed.
    """

    code = "LimitExceeded"


class GuestLocked(CollectionError):
    """A VM is locked, for example by a backup, and Proxmox refuses to change it; or it is locked by its creation, but
    no task is working on it, because Proxmox aborted the creation.

    Cure: see the message, which names the lock. A backup, a snapshot or a migration ends by itself. After an aborted
    creation, as root on the VM's node, remove it with C(qm destroy VMID --skiplock --destroy-unreferenced-disks), or
    keep it as it is with C(qm unlock VMID).
    """

    code = "GuestLocked"


class GuestVanished(CollectionError):
    """A VM disappeared or was renamed after the cluster was read.

    Cure: run again. Another user or process is changing the same VM.
    """

    code = "GuestVanished"


class NotTheSameGuest(CollectionError):
    """A VMID belongs to another guest than the one that was planned for: that guest was removed, and its VMID was used
    again; or nothing in the config of the guest shows that it is still the same one.

    Cure: the message names both guests. Nothing was done with the one that was found. If that is the requested VM, set
    C(adopt). For moves, run again or make the plan again. The ledger keeps what it knows of a creation for a minute,
    and if the run was killed for an hour. Then the VM is found by its name.
    """

    code = "NotTheSameGuest"


class PlanStale(CollectionError):
    """The cluster is no longer as a plan assumes: a node, a VMID or capacity is gone, or a guest was moved, changed,
    started or stopped.

    Cure: make a new plan. The message and C(changed) in the details of the error list what changed. What the message
    names was not begun.
    """

    code = "PlanStale"


class MoveFailed(CollectionError):
    """A guest could not be moved. The cause is in the message.

    Cure: remove the cause and run again. Unless the message says otherwise, the guest is where it was, and runs.
    C(error_details) contains C(cause), the C(node) of the guest, and C(left_behind): volumes on the target that no
    config names, and that you may remove. The collection never removes them, as Proxmox VE does not tell which task
    made a volume. A lock that was left behind is never removed either.
    """

    code = "MoveFailed"


class TourRefused(CollectionError):
    """Nodes cannot be maintained one after the other: something would be in the way of at least one of them. Nothing
    was moved.

    Cure: C(refused) in the result states for each reason the node, and what would cure it. Known problems that the
    maintenance may ignore can be named in C(accept).
    """

    code = "TourRefused"


class ShutdownRefused(CollectionError):
    """The cluster cannot be shut down so that everything starts again as it was. Nothing was changed.

    Cure: C(refused) in the result states each reason, and what would cure it. Known problems can be named in
    C(accept).
    """

    code = "ShutdownRefused"


class GoalsNotReached(CollectionError):
    """The goals of a plan cannot be reached, or were reached only in part: guests remain on nodes that they should
    leave.

    Cure: C(plan.stuck) and the message state for each of these guests the reason and what would cure it.
    """

    code = "GoalsNotReached"
