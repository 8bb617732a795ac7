# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pools of VMs that exist, for users who may see them and for users who may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.controller import Controller
from support.versions import both_versions

SECRET = "12345678-1234-4234-8234-123456789abc"
PRIVILEGES = "Datastore.Audit Datastore.AllocateSpace SDN.Use Sys.Audit VM.Allocate VM.Audit VM.Config.Options"


def writes(cluster: SimulatedCluster) -> list[str]:
    return [f"{r['method']} {r['path']}" for r in cluster.requests() if r["method"] != "GET"]


@both_versions
def test_vm__is_moved_to_its_pool(controller: Controller, cluster: SimulatedCluster) -> None:
    told = controller.schedule(name="app-1", pool="web", diff=True)
    assert told["vms"][0]["drift"] == {"pool": {"old": None, "new": "web"}}
    assert (told["changed"], writes(cluster)) == (False, [])
    moved = controller.schedule(name="app-1", pool="web", update=True, diff=True)
    assert "pool: web" in moved["diff"][0]["after"]
    assert cluster.state()["guests"][100]["pool"] == "web"
    again = controller.schedule(name="app-1", pool="web", update=True)
    assert (again["changed"], again["vms"][0]["drift"]) == (False, {})


@pytest.mark.parametrize("name", ["app-1", "spare"])
def test_unknown_pool__is_refused_before_anything_is_written(
    controller: Controller, cluster: SimulatedCluster, name: str
) -> None:
    controller.schedule(name="app-1", pool="web", update=True)
    cluster.requests(reset=True)
    failed = controller.fail("DriftNotApplicable", name=name, cores=8, pool="nope", update=True, adopt=True)
    assert "pool: pool 'nope' does not exist" in failed["msg"]
    assert writes(cluster) == []


@both_versions
def test_pool__settles_for_a_user_who_may_not_see_pools(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    description = yaml.safe_load((CLUSTERS / "three-nodes.yml").read_text(encoding="utf-8"))
    description.update(
        users=[{"name": "scheduler@pve"}],
        tokens=[{"id": "scheduler@pve!awx", "secret": SECRET, "privsep": False}],
        roles={"Scheduler": PRIVILEGES.split()},
        acl=[{"path": "/", "user": "scheduler@pve", "role": "Scheduler"}],
    )
    cluster = start(description)
    controller = control(cluster)
    token = {"PROXMOX_USER": "scheduler@pve", "PROXMOX_TOKEN_ID": "awx", "PROXMOX_TOKEN_SECRET": SECRET}
    asked: dict[str, Any] = {"name": "web-1", "pool": "web", "update": True, "env": token}
    vmid = controller.schedule(**asked)["vmid"]
    assert cluster.state()["guests"][vmid]["pool"] == "web"
    cluster.advance(120)
    again = controller.schedule(**asked)
    assert (again["changed"], again["vms"][0]["drift"], again["warnings"]) == (False, {}, [])
