# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user is told whose rights do not suffice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.controller import Controller
from support.versions import both_versions

SECRET = "12345678-1234-4234-8234-123456789abc"
FEW = {"PROXMOX_USER": "few@pve", "PROXMOX_TOKEN_ID": "tok", "PROXMOX_TOKEN_SECRET": SECRET}


def described(privileges: list[str]) -> dict[str, Any]:
    """The quiet cluster of three nodes, with a user who holds these privileges everywhere."""
    description = yaml.safe_load((CLUSTERS / "three-nodes.yml").read_text(encoding="utf-8"))
    description.update(
        roles={"Few": privileges},
        users=[{"name": "few@pve"}],
        tokens=[{"id": "few@pve!tok", "secret": SECRET, "privsep": False}],
        acl=[{"path": "/", "user": "few@pve", "role": "Few"}] if privileges else [],
    )
    return dict(description)


@both_versions
def test_a_user_who_sees_nothing__is_told_which_privileges_show_sizes_and_storages(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    request = {"name": "web-1", "memory": 1024, "scsi": {"scsi0": {"size": 8}}}
    failed = control(start(described([]))).fail("NoNodesAvailable", env=FEW, **request)
    assert "3 node(s) showed no CPU and memory sizes: the user needs Sys.Audit on /nodes" in failed["msg"]
    assert "no storage is visible: the user needs Datastore.Audit on /storage" in failed["msg"]
    assert "overcommit" not in failed["msg"]


@both_versions
def test_option_that_only_root_may_set__may_be_unset_where_there_is_none(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    """Playbooks for proxmox_kvm pass an empty text for args, whose default there was another one."""
    assert controller.schedule(name="web-1", args="", memory=512)["changed"] is True
    cluster.set_guest(102, config={"args": "-device x"})
    cluster.requests(reset=True)
    for check in (True, False):
        failed = controller.fail("PermissionDenied", name="spare", args="", update=True, check=check)
        assert "args: Proxmox VE lets only root@pam" in failed["msg"]
    cluster.set_guest(9000, config={"args": "-device x"})
    failed = controller.fail("PermissionDenied", name="web-2", clone="debian-13", args="")
    assert "args: Proxmox VE lets only root@pam" in failed["msg"]
    assert [r for r in cluster.requests() if r["method"] != "GET"] == []
