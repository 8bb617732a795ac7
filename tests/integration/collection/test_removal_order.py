# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates and their linked clones: the clones are removed first, and a template with other clones not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions


@pytest.fixture
def cluster(cluster: SimulatedCluster, control: Callable[..., Controller]) -> SimulatedCluster:
    """Three nodes with two linked clones of the template debian-13."""
    control(cluster).schedule(clone="debian-13", full=False, vms=[{"name": "tz-1"}, {"name": "tz-2"}])
    cluster.advance(60)
    cluster.requests(reset=True)
    return cluster


def names(cluster: SimulatedCluster) -> set[str]:
    return {guest["name"] for guest in cluster.state()["guests"].values()}


@both_versions
def test_clones__are_removed_before_their_template(controller: Controller, cluster: SimulatedCluster) -> None:
    doomed = [{"name": "debian-13"}, {"name": "tz-1"}, {"name": "spare"}, {"name": "tz-2"}]
    result = controller.schedule(state="absent", vms=doomed)
    assert [vm["actions"] for vm in result["vms"]] == [["delete"]] * 4
    assert not names(cluster) & {"debian-13", "tz-1", "tz-2", "spare"}


@both_versions
@pytest.mark.parametrize("check", [True, False])
def test_template__whose_clones_stay_is_refused_by_name(
    controller: Controller, cluster: SimulatedCluster, check: bool
) -> None:
    doomed = [{"name": "debian-13"}, {"name": "tz-1"}, {"name": "spare"}]
    failed = controller.fail("InvalidRequest", state="absent", vms=doomed, check=check)
    assert 'VM "debian-13" (9000 on pve1) is not removed: it is the template of the linked clones tz-2' in failed["msg"]
    assert {"debian-13", "tz-1", "tz-2", "spare"} <= names(cluster)
    assert not [request for request in cluster.requests() if request["method"] == "DELETE"]
