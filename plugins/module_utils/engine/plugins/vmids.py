# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plugins that restrict which VMIDs a VM may get."""

from __future__ import annotations

from ...errors import InvalidRequest
from ...model import Request
from ..framework.interface import VMIDPlugin
from ..vmids.choice import InvalidVMIDChoice, VMIDChoice, parse_range

RANGE_KEY = "vmid.qemu-scheduler/range"


class Range(VMIDPlugin):
    """The lowest free VMID in C(vmid_range), or in the context key C(vmid.qemu-scheduler/range).

    A range is written C(100-150), both ends included; several are separated by commas, as in C(100-150,200).
    """

    name = "Range"
    about = ("vmid_range", "context")

    def choice(self, request: Request) -> VMIDChoice | None:
        text = request.vmid_range or request.context.get(RANGE_KEY)
        if not text:
            return None
        try:
            return parse_range(text)
        except InvalidVMIDChoice as error:
            raise InvalidRequest(f"vmid_range: {error}") from error


REGEX_KEY = "vmid.qemu-scheduler/regex"


class Regex(VMIDPlugin):
    """The lowest free VMID that matches C(vmid_regex), or the context key C(vmid.qemu-scheduler/regex), in full.

    For example C((12[0-9]|130)).
    """

    name = "Regex"
    about = ("vmid_regex", "context")

    def choice(self, request: Request) -> VMIDChoice | None:
        text = request.vmid_regex or request.context.get(REGEX_KEY)
        if not text:
            return None
        from ..vmids.pattern import compile_pattern

        try:
            return compile_pattern(text)
        except InvalidVMIDChoice as error:
            raise InvalidRequest(f"vmid_regex: {error}") from error
