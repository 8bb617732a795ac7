# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read before nodes are maintained: votes, kernels, Ceph, rights, and the record of a tour."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import ApiError, PermissionDenied
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.ceph import (
    monitors_lost,
    nodes_with_ceph,
    pools_that_stop,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.moves.shutdown_record import shutdown_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.moves.tour_record import (
    TourRecord,
    record_of,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.node_needs import newer_kernel
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.quorum import Quorum, read_quorum
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.maintenance.obstacles import is_granted
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.maintenance.survey import Survey

MARK = "0123abcd.0123abcd"


class Answers:
    """A reader with prepared answers."""

    def __init__(self, answers: dict[str, t.Any]) -> None:
        self._answers = answers

    def get(self, path: str, params: t.Any = None, /, **_more: t.Any) -> t.Any:
        return self._answers[path]

    def server_time(self) -> float | None:
        return None


def cluster_of(count: int, **qdevice: str) -> Answers:
    names = [f"pve{number}" for number in range(1, count + 1)]
    members: list[dict[str, t.Any]] = [{"type": "node", "name": name, "online": 1} for name in names]
    return Answers({
        "/cluster/status": [{"type": "cluster", "name": "lab", "quorate": 1}, *members],
        "/cluster/config/nodes": [{"node": name, "quorum_votes": "1"} for name in names],
        "/cluster/config/qdevice": qdevice,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("count", "qdevice", "needed", "left"),
    [
        (3, {}, 2, 2),
        (4, {}, 3, 3),
        (2, {}, 2, 1),
        (2, {"State": "Connected", "Algorithm": "Fifty-Fifty split"}, 2, 2),
        (2, {"State": "Connect failed", "Algorithm": "Fifty-Fifty split"}, 2, 1),
        # It has as many votes as all nodes but one.
        (4, {"State": "Connected", "Algorithm": "LMS"}, 4, 6),
    ],
)
def test_quorum__counts_a_qdevice_by_its_algorithm(count: int, qdevice: dict[str, str], needed: int, left: int) -> None:
    found = read_quorum(cluster_of(count, **qdevice))

    assert (found.needed, found.votes_without({"pve1"})) == (needed, left)
    assert bool(found.objection({"pve1"})) is (left < needed)


def test_standalone_node__has_no_quorum_to_lose() -> None:
    found = read_quorum(Answers({"/cluster/status": [{"type": "node", "name": "pve1", "online": 1}]}))

    assert found == Quorum(online=frozenset({"pve1"}))
    assert found.objection({"pve1"}) == ""


def test_kernel__is_compared_by_numbers() -> None:
    def rows(*installed: str) -> list[dict[str, t.Any]]:
        names = [f"proxmox-kernel-{name}-signed" for name in installed]
        packages = [{"Package": name, "CurrentState": "Installed"} for name in names]
        gone = {"Package": "proxmox-kernel-7.0.0-1-pve-signed", "CurrentState": "ConfigFiles"}
        return [{"Package": "proxmox-ve", "RunningKernel": "6.8.9-4-pve"}, *packages, gone]

    assert newer_kernel(rows("6.8.9-4-pve", "6.8.4-10-pve")) == []
    assert newer_kernel(rows("6.8.12-1-pve")) == ["it runs kernel 6.8.9-4-pve, and 6.8.12-1-pve is installed"]
    assert newer_kernel([]) == []


def test_ceph__loses_no_majority_of_monitors_and_stops_no_pool() -> None:
    status = {"quorum_names": ["pve1", "pve2", "pve3"], "monmap": {"mons": [{"name": f"pve{n}"} for n in (1, 2, 3)]}}
    down = {**status, "quorum_names": ["pve1", "pve2"]}
    pools = [{"pool_name": "vms", "size": 3, "min_size": 2}, {"pool_name": "two", "size": 2, "min_size": 2}]

    assert monitors_lost(Answers({"/cluster/ceph/status": status}), ["pve1", "pve4"]) == []
    assert monitors_lost(Answers({"/cluster/ceph/status": down}), ["pve1", "pve3"]) == ["pve1"]
    assert pools_that_stop(Answers({"/nodes/pve1/ceph/pool": pools}), "pve1", 1) == [
        "pool two has size 2 and min_size 2"
    ]


def test_nodes_that_may_be_away_at_once__leave_a_quorum_and_one_of_them_has_ceph_at_most() -> None:
    class Nodes(Answers):
        def get(self, path: str, params: t.Any = None, /, **_more: t.Any) -> t.Any:
            if path.startswith("/nodes/pve3"):
                raise ApiError("binary not installed: /usr/bin/ceph-mon")
            if path.startswith("/nodes/pve2"):
                raise PermissionDenied("Permission check failed")
            return []

    with_ceph = nodes_with_ceph(Nodes({}), ["pve1", "pve2", "pve3"])
    survey = Survey(read_quorum(cluster_of(5)), TourRecord(), with_ceph=with_ceph)

    # A node that does not tell may have Ceph.
    assert with_ceph == {"pve1", "pve2"}
    assert survey.may_be_away(frozenset({"pve1", "pve3"}))
    assert not survey.may_be_away(frozenset({"pve1", "pve2"}))
    assert not survey.may_be_away(frozenset({"pve3", "pve4", "pve5"}))


def test_right__is_held_by_an_entry_for_the_path_or_one_above_that_propagates() -> None:
    held = {"/": {"Sys.Audit": 1, "Sys.Modify": 0}, "/pool": {"Pool.Allocate": 1}, "/pool/b": {}}

    assert is_granted(held, "Pool.Allocate", "/pool/a")
    assert not is_granted(held, "Pool.Allocate", "/pool/b")
    assert is_granted(held, "Sys.Modify", "/")
    assert not is_granted(held, "Sys.Modify", "/nodes/pve1")


@pytest.mark.parametrize(
    "data",
    [
        {"begun": 5, "done": [], "set": {"noout": 1}, "off": [1]},
        {"begun": ["../pve1", 7, None], "done": {"pve1": "soon", "a b": 1}, "set": ["pause"], "off": {"pve1": 5}},
        {"off": {"pve1": {"x": MARK, "100": "rm -rf", "-1": MARK}, "{{ x }}": {"100": MARK}}},
        # The role would log in to it.
        {"begun": ["mallory"], "ha_maintenance": ["mallory"], "done": {"mallory": 5}, "agents": {"mallory": [100]}},
    ],
)
def test_record__that_others_have_changed_says_nothing(data: dict[str, t.Any]) -> None:
    assert record_of(data, ["pve1", "pve2"]) == TourRecord()


def test_record_of_a_shutdown__has_only_flags_that_a_shutdown_sets() -> None:
    assert shutdown_of({"flags": ["noscrub", "noup", "noout", "pause"]}).flags == {"noout", "pause"}


def test_record__keeps_what_is_left_to_do() -> None:
    data = {"begun": ["pve1"], "done": {"pve2": 5}, "set": ["noout"], "off": {"pve1": {"100": MARK}}}
    record = record_of(data, ["pve1", "pve2"])

    ended = record.with_done("pve1", 9.5)

    assert (ended.begun, ended.done, ended.off) == ((), {"pve2": 5, "pve1": 9}, {"pve1": {100: MARK}})
    assert record.with_begun("pve1") == record
