# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that not every release of Proxmox VE has."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller


@pytest.mark.parametrize("version", ["8.4"])
@pytest.mark.parametrize("name", ["web-1", "spare"])
def test_option__that_the_release_lacks_is_refused_by_name(controller: Controller, name: str) -> None:
    failed = controller.fail("InvalidRequest", name=name, allow_ksm=False, update=True)
    assert "allow_ksm: requires Proxmox VE 9.1 or later, but the cluster runs 8.4" in failed["msg"]
    assert controller.schedule(name=name, state="absent", allow_ksm=False, check=True)


def test_option__that_the_release_has_is_set_and_settles(controller: Controller, cluster: SimulatedCluster) -> None:
    asked = {"name": "spare", "allow_ksm": False, "virtiofs": {"virtiofs0": "data"}, "update": True}
    controller.schedule(**asked)
    assert cluster.state()["guests"][102]["config"]["allow-ksm"] == 0
    assert controller.schedule(**asked)["changed"] is False


def test_cpu_affinity__is_for_root_alone(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    failed = control(start()).fail("PermissionDenied", name="web-1", cpu_affinity="0,2-3")
    assert "affinity: Proxmox VE lets only root@pam" in failed["msg"]
