# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Quorum is asked for rarely, and its lack is told."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import NoQuorum, PermissionDenied
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import QuorumGuard

TEXT = "VM 100 was not deleted"


class Status:
    """Answers with the rows of C(/cluster/status) and counts how often."""

    def __init__(self, rows: list[dict[str, t.Any]] | PermissionDenied) -> None:
        self.rows = rows
        self.asked = 0

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        assert path == "/cluster/status"
        self.asked += 1
        if isinstance(self.rows, PermissionDenied):
            raise self.rows
        return self.rows

    def server_time(self) -> float | None:
        return None


def test_quorum__is_asked_for_once_in_two_seconds(recording):
    now = [100.0]
    status = Status(recording("8.4", "cluster-status")["body"]["data"])
    quorum = QuorumGuard(status, lambda: now[0])
    for second in (0.0, 1.0, 1.9, 2.1):
        now[0] = 100.0 + second
        quorum.require(TEXT)

    assert status.asked == 2


def test_quorum__its_lack_is_told_every_time(recording):
    quorum = QuorumGuard(Status(recording("8.4", "noquorum-cluster-status")["body"]["data"]), lambda: 0.0)
    for _time in range(2):
        with pytest.raises(NoQuorum, match=f"^the cluster has no quorum: {TEXT}$"):
            quorum.require(TEXT)


@pytest.mark.parametrize("rows", [[{"type": "node", "name": "pve"}], PermissionDenied("no")])
def test_quorum__a_lone_node_and_a_user_who_may_not_see_it_go_on(rows):
    QuorumGuard(Status(rows), lambda: 0.0).require(TEXT)
