# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replication jobs, as far as moves depend on them."""

from __future__ import annotations

from typing import Any

from ..routing import Call, route


@route("GET", "/cluster/replication")
def jobs(call: Call) -> list[dict[str, Any]]:
    """The jobs, each of which copies the disks of a guest to one node."""
    return [
        {"id": f"{job['guest']}-{number}", "jobnum": number, "type": "local", "schedule": "*/15", **job}
        for number, job in enumerate(call.cluster.replication)
    ]
