# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plugins of one profile remember about one kind of request, from PreFilter to Reserve."""

from __future__ import annotations

import typing as t


class CycleState(dict[str, t.Any]):
    """Data that a plugin leaves under its own name for its later extension points; other plugins' entries are none of
    its business.
    """
