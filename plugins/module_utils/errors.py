# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every error that a user can be told, each with a stable code.

The first paragraph of a class's docstring is the cause, what follows C(Cure:) is what to do; the table of error codes
in the documentation is made from both.
"""

from __future__ import annotations

import typing as t


class CollectionError(Exception):
    """Something that the user must be told.

    Attributes:
        code: stable name of the kind of error, returned as C(error_code).
        details: data about this very error, JSON-able, without secrets; returned as C(error_details).
    """

    code: t.ClassVar[str] = "Error"

    def __init__(self, message: str, **details: t.Any) -> None:
        super().__init__(message)
        self.details: dict[str, t.Any] = details

    @property
    def message(self) -> str:
        return str(self.args[0])


class InvalidRequest(CollectionError):
    """An option has a value that cannot be right, or two options contradict each other.

    Cure: the message names the option, the value and what was expected; nothing was written.
    """

    code = "InvalidRequest"


class InvalidPluginConfig(CollectionError):
    """The plugin config names a section, plugin or key that does not exist, or gives a value of the wrong kind.

    Cure: the message lists the names that are known at that place.
    """

    code = "InvalidPluginConfig"


class NoNodesAvailable(CollectionError):
    """No node passed every filter for a VM.

    Cure: the message counts the nodes by reason and C(decision.nodes) gives each node's own; free capacity or relax
    that rule.
    """

    code = "NoNodesAvailable"


class SchedulingGated(CollectionError):
    """A VM is held back by its scheduling gates, or by another plugin that decides when it may be looked at.

    Cure: the message names what holds it back; open its gates with C(open_gates), or remove them from the VM.
    """

    code = "SchedulingGated"


class NoVMIDAvailable(CollectionError):
    """Every VMID that the request allows is taken.

    Cure: widen C(vmid_range) or C(vmid_regex), or the datacenter's next-id bounds.
    """

    code = "NoVMIDAvailable"


class NoStorageAvailable(CollectionError):
    """No storage on any node that passed the other filters can hold a disk of the VM.

    Cure: the message says per disk what was missing: the storage, its activity, its content types or the space.
    """

    code = "NoStorageAvailable"


class AmbiguousName(CollectionError):
    """Two or more guests bear the name that a request or C(clone) gives.

    Cure: name the VM by C(vmid), or rename the others; the message lists them.
    """

    code = "AmbiguousName"


class VMIDConflict(CollectionError):
    """The VMID that a request asks for belongs to a guest of another name, or to a container.

    Cure: ask for another VMID, or leave C(vmid) out and let one be chosen.
    """

    code = "VMIDConflict"


class TemplateNotFound(CollectionError):
    """C(clone) names a guest that does not exist, or that this user may not see.

    Cure: check the name and that the user has VM.Audit and VM.Clone on it.
    """

    code = "TemplateNotFound"


class PluginFailed(CollectionError):
    """A plugin raised an exception while it looked at a VM.

    Cure: the message names the plugin and what it raised; other VMs of the run are not affected.
    """

    code = "PluginFailed"


class ConnectionFailed(CollectionError):
    """Proxmox could not be reached, did not answer in time or not as its API does, or its certificate was not trusted.

    Cure: check C(api_host), C(api_port) and C(api_timeout); for a private CA set C(ca_path).
    """

    code = "ConnectionFailed"


class AuthenticationFailed(CollectionError):
    """Proxmox refused the user, the password or the token.

    Cure: check C(api_user) with its realm, and the token's name and secret.
    """

    code = "AuthenticationFailed"


class PermissionDenied(CollectionError):
    """The user or token lacks a privilege; the message is Proxmox's and names the path and the privilege.

    Cure: grant it; a privilege-separated token needs rights of its own.
    """

    code = "PermissionDenied"


class ApiError(CollectionError):
    """Proxmox refused a call for another reason, which the message gives.

    Cure: the message is Proxmox's own and names the field, the VM or the node.
    """

    code = "ApiError"


class NoQuorum(ApiError):
    """The cluster has no quorum: more than half of its nodes do not see each other, and nothing can be changed.

    Cure: bring the other nodes back. Nothing was written, unless the message says so.
    """

    code = "NoQuorum"


class TaskFailed(CollectionError):
    """A Proxmox task (create, clone, start, ...) ended with an error.

    Cure: the message ends with the last lines of the task's log.
    """

    code = "TaskFailed"


class TaskTimeout(CollectionError):
    """A Proxmox task was still running when C(timeout) ran out, or could not be followed; it goes on on the cluster.

    Cure: look at the task by the UPID in the message, raise C(timeout), and run again: the VM is found by its name, and
    finished where that is left to do.
    """

    code = "TaskTimeout"


class Interrupted(TaskTimeout):
    """The task was interrupted (Ctrl-C, a cancelled job) before something was begun, or while it was under way.

    Cure: the message says what is done, under way on the cluster, and not begun; run again for the rest.
    """

    code = "Interrupted"


class LedgerUnavailable(CollectionError):
    """The ledger of reservations cannot be opened, reached or locked.

    Cure: check C(reservations), the file's directory or the database. A VM that fails with it was not touched; what
    became of the task's other VMs stands in their own entries.
    """

    code = "LedgerUnavailable"


class LedgerIncompatible(CollectionError):
    """The ledger's schema is of another version of this collection, or the file is damaged.

    Cure: update all controllers to one version; or move the file away when nothing is being created.
    """

    code = "LedgerIncompatible"


class MissingLibrary(CollectionError):
    """A Python package that this option needs is not installed.

    Cure: install the package that the message names for the interpreter that it names.
    """

    code = "MissingLibrary"


class InvalidSnapshot(CollectionError):
    """C(snapshot) is not a mapping of API paths to answers, or lacks C(/cluster/resources).

    Cure: record one with M(qemu_scheduler.proxmox.cluster_snapshot_info).
    """

    code = "InvalidSnapshot"


class DriftNotApplicable(CollectionError):
    """C(update) was asked for, and the VM differs in what cannot be changed: a smaller disk, another storage, say.

    Cure: the message says for each option why; change the VM by hand, or ask for what is there. Nothing was changed.
    """

    code = "DriftNotApplicable"


class LimitExceeded(CollectionError):
    """A VM that exists was to grow or to start, and a limit of its node, or a placement rule of the VM, forbids it.

    Cure: the message says what its node has room for and which other nodes could run it; free capacity, migrate the VM,
    request less, or go on with C(limits=warn). Nothing was changed.
    """

    code = "LimitExceeded"


class GuestLocked(CollectionError):
    """A VM is locked by its creation, and no task is working on it: Proxmox broke the creation off.

    Cure: as root on its node, remove it with C(qm destroy VMID --skiplock), or keep it as it is with C(qm unlock VMID).
    """

    code = "GuestLocked"


class GuestVanished(CollectionError):
    """A VM that was there when the cluster was read was gone, or called differently, a moment later.

    Cure: run again; somebody else works on the same VM.
    """

    code = "GuestVanished"
