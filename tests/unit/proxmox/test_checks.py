# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Proxmox's check before a move says and this version does not know keeps a guest from being sent."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.moves.checks import unexplained_refusal


@pytest.mark.parametrize(
    ("kind", "check", "told"),
    [
        ("qemu", {"running": 1, "moon": "full"}, "the key 'moon'"),
        ("qemu", {"local_disks": [{"volid": "fast:101/x", "moon": 1}]}, "the key 'moon'"),
        ("qemu", {"not_allowed_nodes": {"pve2": {"moon": ["full"]}}}, "the key 'moon'"),
        ("qemu", {"allowed_nodes": ["pve3"]}, "not among the nodes that Proxmox VE allows"),
        ("lxc", {"allowed-nodes": ["pve3"], "running": 0}, "not among the nodes that Proxmox VE allows"),
        ("lxc", {"not-allowed-nodes": {"pve2": {"moon": ["full"]}}}, "the key 'moon'"),
        ("qemu", {"allowed_nodes": [], "not_allowed_nodes": {"pve2": {"unavailable_storages": ["fast"]}}}, None),
        ("qemu", {"running": 1, "moon": 0, "allowed_nodes": ["pve2"]}, None),
        ("lxc", {}, None),
    ],
)
def test_unexplained_refusal__is_what_this_version_does_not_know(
    kind: str, check: dict[str, t.Any], told: str | None
) -> None:
    found = unexplained_refusal(check, kind, "pve2")
    assert found is None if told is None else told in str(found)
