# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks before any cluster is reached: what plugins would refuse in every cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from ..engine.framework.profile import Profile
from ..engine.guard import check_request
from ..engine.profiles import profile_of
from ..errors import InvalidRequest, PluginFailed
from .options.entries import Entry


def check_entries(entries: Sequence[Entry], profiles: Mapping[str, Profile], default: str) -> None:
    """Raise InvalidRequest for an unknown profile, and for what a plugin of the profile finds invalid in a request.

    VMs that shall be absent are not checked: they are not placed, and may name what no longer exists.
    """
    for entry in entries:
        if entry.state == "absent":
            continue
        try:
            profile = profile_of(entry.request, profiles, default)
            # Another exception of a plugin fails only its VM, when that is placed.
            with contextlib.suppress(PluginFailed):
                check_request(profile, entry.request)
        except InvalidRequest as error:
            text = error.message if len(entries) == 1 else f"{error.message}, for {entry.label}"
            raise InvalidRequest(text, **error.details) from error
