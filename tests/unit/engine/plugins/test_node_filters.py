# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NodeName, NodeRegex and NodeReady: which nodes a request means, and which are there."""

from __future__ import annotations

import pytest
from support.looking import allowed, reasons
from support.small_cluster import cluster, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    DeviceClaim,
    Disk,
    Expression,
    Request,
    Storage,
)

NODES = [node("pve1"), node("pve10"), node("db1")]


def test_named_node__is_the_only_one() -> None:
    outcome = scheduler(cluster(NODES)).schedule(vm(node="pve1"))
    assert allowed(outcome) == {"pve1"}
    assert reasons(outcome, "NodeName")["pve10"] == "didn't match the requested node name"


def test_no_name__accepts_every_node() -> None:
    assert allowed(scheduler(cluster(NODES)).schedule(vm())) == {"pve1", "pve10", "db1"}


def test_pattern__must_match_the_whole_name() -> None:
    outcome = scheduler(cluster(NODES)).schedule(vm(node_regex="pve1"))
    assert allowed(outcome) == {"pve1"}
    assert reasons(outcome, "NodeRegex")["pve10"] == "didn't match node regex 'pve1'"


def test_pattern__may_stand_in_the_context() -> None:
    request = vm(context={"node.qemu-scheduler/regex": "db.*"})
    assert allowed(scheduler(cluster(NODES)).schedule(request)) == {"db1"}


def test_broken_pattern__is_named() -> None:
    error = scheduler(cluster(NODES)).schedule(vm(node_regex="pve[")).error
    assert isinstance(error, InvalidRequest)
    assert "node_regex: invalid regular expression 'pve['" in error.message


def test_node_regex__refuses_what_could_take_exponential_time() -> None:
    error = scheduler(cluster(NODES)).schedule(vm(node_regex="(?=pve)pve1")).error
    assert isinstance(error, InvalidRequest)
    assert "node_regex: invalid regular expression '(?=pve)pve1': look-ahead is not supported" in error.message


def test_patterns_and_names__are_final() -> None:
    """No change among the guests can help, so nobody waits for one."""
    assert not scheduler(cluster(NODES)).schedule(vm(node="pve7")).resolvable
    assert not scheduler(cluster(NODES)).schedule(vm(node_regex="x")).resolvable


def test_nodes_that_are_offline_or_being_emptied__are_left_out() -> None:
    nodes = [node("pve1", online=False), node("pve2", maintenance=True), node("pve3"), node("pve4", drained=True)]
    outcome = scheduler(cluster(nodes)).schedule(vm())
    assert reasons(outcome, "NodeReady") == {
        "pve1": "were offline",
        "pve2": "were in HA maintenance",
        "pve4": "were drained",
    }
    assert allowed(outcome) == {"pve3"}


def test_node_ready__a_node_of_unknown_size_is_rejected_with_the_privilege_that_shows_it() -> None:
    outcome = scheduler(cluster([node("pve1", cores=0, gib=0), node("pve2")])).schedule(vm())
    assert reasons(outcome, "NodeReady") == {
        "pve1": "showed no CPU and memory sizes: the user needs Sys.Audit on /nodes"
    }
    assert allowed(outcome) == {"pve2"}


@pytest.mark.parametrize(
    ("request_", "resolvable"),
    [
        (vm(), True),
        # Its devices are not read: they may be there.
        (vm(devices=(DeviceClaim("card", mapping="gpu"),)), True),
        # Proxmox lists storages by their definition, on offline nodes too.
        (vm(disks=(Disk("scsi0", GIB, storage="fast"),)), True),
        (vm(disks=(Disk("scsi0", GIB, storage="fats"),)), False),
        (vm(node_required=(Expression("disk", "In", ("nvme",)),)), False),
    ],
)
def test_offline_node__may_come_back_unless_it_would_not_help(request_: Request, resolvable: bool) -> None:
    storages = (Storage("fast", "pve1", active=False, total=0),)
    state = cluster([node("pve1", online=False), node("pve2", gib=0.5)], storages=storages)
    outcome = scheduler(state).schedule(request_)
    assert outcome.error is not None
    assert outcome.resolvable is resolvable
