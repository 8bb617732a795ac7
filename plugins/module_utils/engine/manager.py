# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One scheduler for each cluster: what is decided for one never meets what is assumed of another."""

from __future__ import annotations

from collections.abc import Mapping

from .cache import ClusterState
from .framework.profile import Profile
from .scheduling_cycle import Scheduler


class Manager:
    """Hands out schedulers by cluster. All of them place by the same profiles."""

    def __init__(self, profiles: Mapping[str, Profile], default_profile: str = "balanced") -> None:
        self.profiles = profiles
        self.default_profile = default_profile
        self._schedulers: dict[str, Scheduler] = {}

    def get_or_create_scheduler(self, state: ClusterState) -> Scheduler:
        """The scheduler of the cluster that state is of, looking at state from now on."""
        cluster = state.snapshot.cluster
        scheduler = self._schedulers.get(cluster)
        if scheduler is None:
            scheduler = self._schedulers[cluster] = Scheduler(state, self.profiles, self.default_profile)
        else:
            scheduler.observe(state)
        return scheduler
