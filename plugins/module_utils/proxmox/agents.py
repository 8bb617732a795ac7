# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which guest agents answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..errors import ApiError, ConnectionFailed
from .api.reader import Reader, in_parallel
from .inventory.rows import Row


def find_answering(reader: Reader, nodes: Mapping[int, str]) -> frozenset[int]:
    """Return those of these running VMs whose guest agent answers. One request for each. nodes: where they are.

    Raises PermissionDenied.
    """

    def answers(vmid: int) -> bool:
        try:
            reader.get(f"/nodes/{nodes[vmid]}/qemu/{vmid}/agent/network-get-interfaces")
        except (ApiError, ConnectionFailed):
            return False
        return True

    return frozenset(vmid for vmid, answer in in_parallel(answers, nodes).items() if answer)


def find_silent(reader: Reader, vmids: Collection[int]) -> dict[int, str]:
    """Return the names of those of these VMs that run and whose guest agent does not answer. Those that are gone or off
    are left out.
    """
    rows: list[Row] = reader.get("/cluster/resources", type="vm")
    there = {int(row["vmid"]): row for row in rows if int(row["vmid"]) in vmids and row.get("status") == "running"}
    answers = find_answering(reader, {vmid: str(row["node"]) for vmid, row in there.items()})
    return {vmid: str(row.get("name") or "") for vmid, row in sorted(there.items()) if vmid not in answers}


def has_agent(config: Row) -> bool:
    """Whether a VM is configured to have a guest agent."""
    first = str(config.get("agent") or "0").partition(",")[0]
    return first.removeprefix("enabled=").lower() in ("1", "yes", "on", "true")
