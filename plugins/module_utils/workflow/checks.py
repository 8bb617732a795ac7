# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plugins would refuse in any cluster, found before one is reached."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from ..engine.framework.profile import Profile
from ..engine.guard import check_request
from ..engine.profiles import profile_of
from ..errors import InvalidRequest, PluginFailed
from .entries import Entry


def check_entries(entries: Sequence[Entry], profiles: Mapping[str, Profile], default: str) -> None:
    """Raise InvalidRequest for an unknown profile, and for what a plugin of a request's profile finds wrong in it.

    What is to be absent is not placed, and may name what is not there any more.
    """
    for entry in entries:
        if entry.state == "absent":
            continue
        try:
            profile = profile_of(entry.request, profiles, default)
            # A plugin that raises anything else fails its VM, and no other, when that is placed.
            with contextlib.suppress(PluginFailed):
                check_request(profile, entry.request)
        except InvalidRequest as error:
            text = error.message if len(entries) == 1 else f"{error.message}, for {entry.label}"
            raise InvalidRequest(text, **error.details) from error
