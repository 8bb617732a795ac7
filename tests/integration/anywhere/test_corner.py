# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests make is removed, and what others have is left alone."""

from __future__ import annotations

import pytest
from support.controller import Controller
from support.place import Cluster, Corner


def test_leave__removes_what_runs_and_what_ha_keeps(controller: Controller, corner: Corner, cluster: Cluster) -> None:
    base = controller.schedule(**corner.small("base", template=True))["vmid"]
    linked = corner.small("linked", clone=base, full=False)
    del linked["scsi"]
    controller.schedule(**linked)
    controller.schedule(**corner.small("web", state="started"))
    controller.schedule(**corner.small("db", ha={"state": "stopped"}, state="stopped"))
    assert len(corner.vms()) == 4
    corner.leave()
    assert corner.vms() == {}
    assert corner.pool not in {row["poolid"] for row in cluster.api.get("/pools")}


def test_corner__is_refused_where_somebody_has_one_of_its_vmids(corner: Corner, cluster: Cluster) -> None:
    ended = cluster.api.do("POST", f"/nodes/{cluster.nodes[0]}/qemu", vmid=corner.last, name=corner.name("other"))
    assert ended == "OK"
    with pytest.raises(AssertionError, match=rf"VMIDs \[{corner.last}\] are taken"):
        Corner(cluster, corner.first)
