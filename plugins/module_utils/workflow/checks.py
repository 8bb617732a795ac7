# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plugins would refuse in any cluster, found before one is reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..engine.framework.profile import Profile
from ..engine.node_selection import compiled_regex
from ..engine.plugins.vmids.range import Range
from ..engine.plugins.vmids.regex import Regex
from ..engine.plugins.volumes.volume_binding import VolumeBinding
from ..engine.profiles import profile_of
from ..engine.volumes import class_of
from ..errors import InvalidRequest
from ..model import Request
from .entries import Entry


def check_entries(entries: Sequence[Entry], profiles: Mapping[str, Profile], default: str) -> None:
    """Raise InvalidRequest for an unknown profile or storage class, for patterns and ranges that are none, and for a
    VMID that they do not allow.

    What is to be absent is not placed, and may name what is not there any more.
    """
    for entry in entries:
        if entry.state == "absent":
            continue
        try:
            check_request(entry.request, profile_of(entry.request, profiles, default))
        except InvalidRequest as error:
            text = error.message if len(entries) == 1 else f"{error.message}, for {entry.label}"
            raise InvalidRequest(text, **error.details) from error


def check_request(request: Request, profile: Profile) -> None:
    """The same for one request and its profile."""
    compiled_regex(request)
    for plugin in profile.all():
        if isinstance(plugin, (Range, Regex)):
            choice = plugin.choice(request)
            if choice is not None and request.vmid is not None and request.vmid not in choice:
                raise InvalidRequest(f"vmid: {request.vmid} contradicts {choice.describe()}", option="vmid")
        elif isinstance(plugin, VolumeBinding):
            for disk in request.disks:
                class_of(disk, plugin.classes)
