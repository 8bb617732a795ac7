# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a migration is asked for, and how it can fail."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model import Node


@dataclass
class Options:
    """What a migration was asked for. ``storages`` maps storages to those on the target; "" stands for all others."""

    online: bool = False
    local_disks: bool = False
    storages: dict[str, str] = field(default_factory=dict)
    bwlimit: int | None = None
    secure: bool = False
    conntrack: bool = False
    by_manager: bool = False

    def storage(self, name: str) -> str:
        return self.storages.get(name, self.storages.get("", name))


class TargetLost(Exception):
    """The target node went away in the middle."""


class Aborted(Exception):
    """The move cannot go on; the text is the cause."""


def ssh(node: Node) -> str:
    """The command line that Proxmox logs for a node."""
    return (
        f"/usr/bin/ssh -e none -o 'BatchMode=yes' -o 'HostKeyAlias={node.name}'"
        f" -o 'UserKnownHostsFile=/etc/pve/nodes/{node.name}/ssh_known_hosts' -o 'GlobalKnownHostsFile=none'"
        f" root@{node.address}"
    )
