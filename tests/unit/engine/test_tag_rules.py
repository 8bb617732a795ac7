# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules that guests carry as tags hold for new VMs, in both directions."""

from __future__ import annotations

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import build_profiles
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.standing_rules import (
    StandingRules,
    ignoring_tag,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.testing import guest, node, vm

BY_TAGS = StandingRules()
NODES = (node("pve1"), node("pve2"), node("PVE3"))


def feasible(snapshot: Snapshot, tags: set[str]) -> set[str]:
    """The nodes that a new VM with these tags may have."""
    snapshot = BY_TAGS.add_to_guests(snapshot)
    scheduler = Scheduler(ClusterState(snapshot), build_profiles(builtin_registry()))
    refusals = scheduler.refusals(BY_TAGS.add_to_request(vm(tags=frozenset(tags)), NODES))
    return {each.name for each in snapshot.nodes if not refusals.get(each.name)}


def cluster(*tagged: tuple[str, set[str]]) -> Snapshot:
    """Guests with tags on their nodes."""
    guests = (guest(100 + n, name, name=f"g{n}", tags=frozenset(tags)) for n, (name, tags) in enumerate(tagged))
    return Snapshot(nodes=NODES, guests=tuple(guests))


def test_anti_affinity_tag__keeps_guests_with_the_same_tag_apart() -> None:
    snapshot = cluster(("pve1", {"plb_anti_affinity_dns"}), ("pve2", {"plb_anti_affinity_ntp"}))
    assert feasible(snapshot, {"plb_anti_affinity_dns"}) == {"pve2", "PVE3"}
    assert feasible(snapshot, {"Plb_Anti_Affinity_DNS"}) == {"pve2", "PVE3"}
    assert feasible(snapshot, {"other"}) == {"pve1", "pve2", "PVE3"}


def test_affinity_tag__keeps_guests_with_the_same_tag_together() -> None:
    snapshot = cluster(("pve2", {"plb_affinity_shop"}), ("pve1", {"shop"}))
    assert feasible(snapshot, {"plb_affinity_shop"}) == {"pve2"}
    assert feasible(cluster(), {"plb_affinity_shop"}) == {"pve1", "pve2", "PVE3"}


def test_pin_tags__allow_only_their_nodes_in_any_case() -> None:
    assert feasible(cluster(), {"plb_pin_pve1", "plb_pin_pve3"}) == {"pve1", "PVE3"}


def test_pin_of_a_request__must_name_a_node() -> None:
    with pytest.raises(InvalidRequest, match="tags: plb_pin_pve9 names no node of the cluster; its nodes: "):
        BY_TAGS.add_to_request(vm(tags=frozenset({"plb_pin_pve9"})), NODES)


def test_pin_of_a_guest__is_left_out_where_the_node_is_gone() -> None:
    (found,) = BY_TAGS.add_to_guests(cluster(("pve1", {"plb_pin_pve9"}))).guests
    assert found.constraints.node_required == ()


def test_prefixes__mean_nothing_without_a_name() -> None:
    tags = {"plb_affinity_", "plb_anti_affinity_", "plb_pin_"}
    snapshot = cluster(("pve1", tags))
    assert BY_TAGS.add_to_guests(snapshot) == snapshot
    assert feasible(snapshot, tags) == {"pve1", "pve2", "PVE3"}


@pytest.mark.parametrize(
    ("tags", "found"),
    [({"plb_ignore"}, "plb_ignore"), ({"a", "plb_ignore_db"}, "plb_ignore_db"), ({"plb_ignored"}, None), (set(), None)],
)
def test_ignore_tag__is_found(tags: set[str], found: str | None) -> None:
    assert ignoring_tag(tags) == found
