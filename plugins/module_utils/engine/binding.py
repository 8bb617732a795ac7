# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The binding cycle's extension points, for the one who creates the VM.

Nothing here knows Proxmox: what a Bind plugin does is its own business.
"""

from __future__ import annotations

from ..errors import CollectionError
from ..model import Decision
from .framework.interface import BindPlugin, PostBindPlugin, PreBindPlugin
from .framework.profile import Profile
from .framework.status import SKIP, Code, Status
from .guard import asked, guarded


def run_pre_bind(profile: Profile, decision: Decision) -> Status | None:
    """Run the PreBind plugins; the first that refuses ends it, and the VM must not be created then.

    Raises PluginFailed.
    """
    plugins: list[PreBindPlugin] = profile.plugins("pre_binds")
    for plugin in plugins:
        status = asked(plugin, plugin.pre_bind, decision)
        if status is not None and status.code is not Code.SKIP:
            return status
    return None


def run_bind(profile: Profile, decision: Decision) -> Status | None:
    """Have the VM created by the first Bind plugin that does not skip it; tell if that one could not.

    SKIP says that no plugin took it: the caller has to create the VM. Raises PluginFailed.
    """
    plugins: list[BindPlugin] = profile.plugins("binds")
    for plugin in plugins:
        status = asked(plugin, plugin.bind, decision)
        if status is None:
            return None
        if status.code is not Code.SKIP:
            return status
    return SKIP


def run_post_bind(profile: Profile, decision: Decision) -> list[CollectionError]:
    """Tell the PostBind plugins that the VM was created.

    It exists whatever they do: what they raise is returned, to be shown as warnings.
    """
    failures: list[CollectionError] = []
    plugins: list[PostBindPlugin] = profile.plugins("post_binds")
    for plugin in plugins:
        try:
            guarded(plugin, plugin.post_bind, decision)
        except CollectionError as failure:
            failures.append(failure)
    return failures
