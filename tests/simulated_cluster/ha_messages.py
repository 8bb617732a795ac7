# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``ha-manager`` prints about a move that affects other resources."""

from __future__ import annotations


def blocked_lines(sid: str, target: str, enemies: list[str]) -> list[str]:
    return [f"cannot migrate resource '{sid}' to node '{target}':", ""] + [
        f"- resource '{enemy}' on target node '{target}' in negative affinity with resource '{sid}'"
        for enemy in enemies
    ]


def comigrated_lines(sid: str, target: str, partners: list[str]) -> list[str]:
    return [
        f"also migrate resource '{partner}' in positive affinity with resource '{sid}' to target node '{target}'"
        for partner in partners
    ]
