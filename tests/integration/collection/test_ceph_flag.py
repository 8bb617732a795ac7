# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Flags of Ceph, through the module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulated_cluster.build import AUTOMATION_ROLE
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions

ROLE = {"Automation": [*AUTOMATION_ROLE, "Sys.Modify"]}
NODES: dict[str, Any] = {"nodes": [{"name": "pve1", "cores": 8, "memory": 8192}], "storages": []}
CEPH = {"status": "HEALTH_OK", "checks": {}}


@both_versions
def test_ceph_flag__is_set_and_cleared_once_where_there_is_ceph(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller], version: str
) -> None:
    without = control(start({**NODES, "version": version})).run("ceph_flag", name="noout")
    assert (without["changed"], without["ceph"]) == (False, False)
    refused = control(start({**NODES, "version": version, "ceph": CEPH})).run("ceph_flag", name="noout")
    assert (refused["error_code"], "Sys.Modify" in refused["msg"]) == ("PermissionDenied", True)
    cluster = start({**NODES, "version": version, "ceph": CEPH, "roles": ROLE})
    controller = control(cluster)

    def changed(**options: Any) -> bool:
        return bool(controller.run("ceph_flag", name="noout", **options)["changed"])

    assert [changed(check=True), changed(), changed()] == [True, True, False]
    assert cluster.state()["ceph_flags"] == ["noout"]
    assert controller.run("node_health_info", name=["pve1"])["healthy"]
    assert [changed(state="absent"), changed(state="absent")] == [True, False]
    assert cluster.state()["ceph_flags"] == []
