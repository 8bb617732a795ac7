# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base class of filters that take long for each node. A plain filter does not need it."""

from __future__ import annotations

import abc
import typing as t

from .interface import FilterPlugin

if t.TYPE_CHECKING:
    from ..cache import ClusterState


class DeferredFilter(FilterPlugin):
    """A filter that takes long for each node. A count of VMs asks it about a node only if the node would be chosen
    without it.
    """

    @abc.abstractmethod
    def is_certain(self, cluster: ClusterState) -> bool:
        """Whether it certainly accepted the node of every assumed guest, when that guest was placed."""
