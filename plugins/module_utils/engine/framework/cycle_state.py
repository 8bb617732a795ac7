# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data that plugins store during one scheduling cycle."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

T = t.TypeVar("T")


class CycleState(dict[t.Any, t.Any]):
    """Data of one request's scheduling cycle. A plugin stores it in PreFilter, under its own name, for its later
    extension points. Plugins do not use the entries of other plugins.
    """

    def once(self, key: t.Any, find: Callable[..., T], *args: t.Any) -> T:
        """The result of find for args. find is called once per key and cycle."""
        if key not in self:
            self[key] = find(*args)
        found: T = self[key]
        return found
