# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Failures of the Proxmox API that the code reacts to; all others are only reported."""

from __future__ import annotations

from ...errors import ApiError, ConnectionFailed, InvalidSnapshot, PermissionDenied, VMIDConflict


class NodeUnreachable(ConnectionFailed):
    """The node that the call was for does not answer the node that took the call; nothing was done."""


class WrongConnection(ConnectionFailed):
    """Something answers, but not as the connection options say: this is a wrong option and no outage of the cluster."""


class OddAnswer(ConnectionFailed):
    """Something answered, but not as Proxmox VE does there."""


class AnswerLost(ConnectionFailed):
    """A write was sent and no answer came: it may or may not have been carried out."""


class NodeSilent(AnswerLost):
    """An AnswerLost where the node that took the call answered, but not the node that the call was for."""


class NotImplementedHere(ApiError):
    """This version of Proxmox VE does not know the path or the method."""


class VMIDTaken(VMIDConflict):
    """Another user or process has taken the VMID, perhaps a moment ago; nothing was left behind.

    Attributes:
        vmid: the id that is taken.
    """

    def __init__(self, message: str, vmid: int) -> None:
        super().__init__(message, vmid=vmid)
        self.vmid = vmid


class NotRecorded(InvalidSnapshot):
    """The recorded snapshot has no response for a requested path."""


UNREADABLE = (ApiError, ConnectionFailed, PermissionDenied, NotRecorded)
"""What a read raises if this user may not read something, if it cannot be read now, or if a recording lacks it."""
