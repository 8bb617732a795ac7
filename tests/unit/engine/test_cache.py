# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cache: sums by difference, and what becomes of a VM that was decided and then shows up."""

from __future__ import annotations

import itertools
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.small_cluster import cluster, guest, node

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import (
    COLUMNS_KEPT,
    ClusterState,
    NodeInfo,
    assumed_guest,
    of_sums,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    NO_CONSTRAINTS,
    AffinityTerm,
    Constraints,
    Decision,
    Guest,
    Request,
    Selector,
    Storage,
)

NODES = [node("pve1"), node("pve2")]
APART = AffinityTerm(False, Selector(name="web-.*"))


def sums(info: NodeInfo | None) -> tuple[float, float, float, float]:
    assert info is not None
    return info.cores, info.memory / GIB, info.cores_all, info.memory_all / GIB


def decision(vmid: int = 100, at: str = "pve1", **fields: t.Any) -> Decision:
    return Decision(Request("web-1", cores=2, memory=4 * GIB, **fields), at, vmid)


@pytest.mark.parametrize("parts", list(itertools.permutations([0.1, 0.2, 0.3])))
def test_parts_of_cpus__sum_up_to_the_same_in_whatever_order(parts: tuple[float, ...]) -> None:
    state = cluster(NODES, [guest(100 + number, "pve1", cores, 1) for number, cores in enumerate(parts)])
    assert sums(state.by_name.get("pve1")) == (0.6, 3, 0.6, 3)
    state.assume(assumed_guest(decision(200)))
    state.forget(200)
    assert sums(state.by_name.get("pve1")) == (0.6, 3, 0.6, 3)


def test_what_runs__is_summed_and_templates_never_are() -> None:
    guests = [
        guest(100, "pve1", 2, 4),
        guest(101, "pve1", 1, 1, status="stopped"),
        guest(102, "pve1", 8, 8, status="running", template=True),
        guest(103, "elsewhere", 8, 8),
    ]
    state = cluster(NODES, guests)
    assert sums(state.by_name.get("pve1")) == (2, 4, 3, 5)
    assert sums(state.by_name.get("pve2")) == (0, 0, 0, 0)
    assert {100, 101, 102, 103} <= set(state.taken)


def test_assumed_vm__counts_until_it_is_forgotten() -> None:
    state = cluster(NODES)
    state.assume(assumed_guest(decision()))
    assert sums(state.by_name.get("pve1")) == (2, 4, 2, 4)
    assert 100 in state.taken
    state.forget(100)
    assert sums(state.by_name.get("pve1")) == (0, 0, 0, 0)
    assert 100 not in state.taken
    assert state.guests.get(100) is None


def test_vm_that_the_cluster_shows__cannot_be_forgotten() -> None:
    state = cluster(NODES, [guest(100, "pve1")])
    state.forget(100)
    assert state.guests.get(100) is not None


def test_vmid__is_assumed_once() -> None:
    state = cluster(NODES, [guest(100, "pve1")])
    with pytest.raises(ValueError, match="VMID 100 is taken by 'vm-100'"):
        state.assume(assumed_guest(decision()))


def test_restoring__believes_what_is_there() -> None:
    state = cluster(NODES)
    state.assume(assumed_guest(decision()))
    state.restore(guest(100, "pve2", 1, 2, name="other"))
    assert sums(state.by_name.get("pve1")) == (0, 0, 0, 0)
    assert sums(state.by_name.get("pve2")) == (1, 2, 1, 2)
    state.forget(100)
    assert state.guests.get(100) is not None


def holders(state: ClusterState) -> list[int]:
    """The VMIDs of the guests that must be apart."""
    return [vmid for there in state.repelling.get(APART, {}).values() for vmid in there]


def test_repelling_terms__of_decided_vms_are_known_as_long_as_they_are_there() -> None:
    state = cluster(NODES)
    state.assume(assumed_guest(decision(100, affinity=(APART,))))
    state.assume(assumed_guest(decision(101, affinity=(APART,))))
    state.assume(assumed_guest(decision(102)))
    assert holders(state) == [100, 101]
    state.forget(100)
    assert holders(state) == [101]
    state.forget(101)
    assert not state.repelling


GUESTS = st.builds(
    Guest,
    vmid=st.integers(100, 106),
    name=st.sampled_from(["a", "b"]),
    node=st.sampled_from(["pve1", "pve2", "gone"]),
    status=st.sampled_from(["running", "stopped", "assumed"]),
    template=st.booleans(),
    cores=st.integers(0, 4),
    memory=st.integers(0, 4),
    constraints=st.sampled_from([NO_CONSTRAINTS, Constraints(affinity=(APART,))]),
    storage_pending=st.sampled_from([{}, {("ceph", "pve1"): 3}, {("local", "pve2"): 5}]),
)


@given(st.lists(st.tuples(st.sampled_from(["assume", "forget", "restore"]), GUESTS), max_size=25))
def test_sums_by_difference__are_those_of_a_fresh_count(steps: list[tuple[str, Guest]]) -> None:
    storages = [Storage(name, at, shared=name == "ceph") for name in ("ceph", "local") for at in ("pve1", "pve2")]
    state = cluster(NODES, storages=storages)
    for action, shown in steps:
        if action == "assume" and state.guests.get(shown.vmid) is None:
            state.assume(shown)
        elif action == "forget":
            state.forget(shown.vmid)
        elif action == "restore":
            state.restore(shown)
    counted = cluster(NODES, list(state.guests.values()), storages=storages)
    assert picture(state) == picture(counted)


def picture(state: ClusterState) -> object:
    nodes = [
        (sums(info), set(info.by_vmid), {name: seen.use.pending for name, seen in info.storages.items()})
        for info in state.nodes
    ]
    return nodes, sorted(state.taken), set(holders(state))


class Memory:
    """Derives the memory of nodes, and notes of which ones."""

    def __init__(self) -> None:
        self.looked_at: list[str] = []

    def __call__(self, nodes: t.Sequence[NodeInfo]) -> list[int]:
        self.looked_at += [info.name for info in nodes]
        return [info.memory for info in nodes]


def test_column__has_the_changed_nodes_looked_at_again_and_no_others() -> None:
    state, memory = cluster(NODES), Memory()
    assert of_sums(state.nodes, "memory", memory) == [0, 0]
    state.assume(assumed_guest(decision(100)))
    memory.looked_at.clear()
    assert of_sums(state.nodes, "memory", memory) == [4 * GIB, 0]
    state.forget(100)
    assert of_sums(state.nodes, "memory", memory) == [0, 0]
    assert memory.looked_at == ["pve1", "pve1"]


def test_column__after_more_changes_than_nodes_has_each_looked_at_once() -> None:
    state, memory = cluster(NODES), Memory()
    of_sums(state.nodes, "memory", memory)
    for vmid in range(100, 110):
        state.assume(assumed_guest(decision(vmid)))
    memory.looked_at.clear()
    assert of_sums(state.nodes, "memory", memory) == [40 * GIB, 0]
    assert memory.looked_at == ["pve1", "pve2"]


def test_columns__are_kept_for_some_keys_and_for_all_nodes_together() -> None:
    state, memory = cluster(NODES), Memory()
    for key in range(COLUMNS_KEPT + 1):
        of_sums(state.nodes, key, memory)
    assert len(state.nodes.columns) == COLUMNS_KEPT
    memory.looked_at.clear()
    of_sums(state.nodes, COLUMNS_KEPT, memory)
    assert memory.looked_at == []
    assert of_sums(state.nodes[1:], COLUMNS_KEPT, memory) == [0]
