# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The view of a result of capacity_info, for a page."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.texts import of_one
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.limits import limit_of


def capacity(result: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the view of a result. C(most) is the number of VMs that fit on the node with the most room."""
    nodes = [
        {
            **node,
            "limited_by": limit_of(node["limited_by"] or ""),
            "reason": of_one(node["reason"]) if node["reason"] else None,
        }
        for node in result["nodes"]
    ]
    return {
        **{key: result[key] for key in ("total", "reason", "shapes")},
        "limited_by": limit_of(result["limited_by"] or ""),
        "nodes": nodes,
        "most": max((node["fit"] for node in nodes), default=0),
    }
