# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VCPULimit: a VM never starts on a node that has fewer CPUs than the VM has vCPUs."""

from __future__ import annotations

import pytest
from support.looking import allowed, reasons
from support.small_cluster import cluster, node, profile, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.how_many import how_many
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Request

NODES = [node("pve1", cores=2), node("pve2", cores=4), node("pve3", cores=8)]


def test_vcpu_limit__rejects_nodes_with_fewer_cpus_than_vcpus() -> None:
    outcome = scheduler(cluster(NODES)).schedule(vm(cores=4))
    assert allowed(outcome) == {"pve2", "pve3"}
    assert reasons(outcome, "VCPULimit") == {
        "pve1": "had fewer CPUs than the VM has vCPUs (4 vCPUs, the node has 2)",
    }


def test_vcpu_limit__counts_vcpus_that_can_be_plugged_in() -> None:
    assert allowed(scheduler(cluster(NODES)).schedule(vm(cores=1, cores_max=8))) == {"pve3"}


@pytest.mark.parametrize("request_", [vm(cores=9), vm(cores=1, cores_max=9)])
def test_vcpu_limit__is_not_waited_for(request_: Request) -> None:
    assert not scheduler(cluster(NODES)).schedule(request_).resolvable


def test_vcpu_limit__leaves_nodes_of_unknown_size_to_others() -> None:
    """It may have the CPUs once it is back."""
    assert scheduler(cluster([node("pve1", cores=0, online=False)])).schedule(vm(cores=64)).resolvable


def test_vcpu_limit__can_be_turned_off() -> None:
    off = {"filters": {"VCPULimit": {"enable": False}}}
    assert allowed(scheduler(cluster(NODES[:1]), off).schedule(vm(cores=3))) == {"pve1"}


def test_vcpu_limit__holds_for_capacity_as_well() -> None:
    report = how_many(cluster(NODES[:1]), {"balanced": profile()}, [vm(cores=3)])
    assert (report.total, report.limited_by) == (0, "VCPULimit")
