# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which guests others are moving or creating at present."""

from __future__ import annotations

import typing as t
from collections.abc import Collection

import pytest
from support.ledgers import reservation
from support.small_cluster import guest, node

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Guest, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import Holder, Reservation
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.counting import count_reservations
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.sight import (
    CREATED_BY_OTHERS,
    MOVED_BY_OTHERS,
    busy_guests,
    incoming_guests,
)

NODES = (node("pve1"), node("pve2"))
HERE = Holder.new()


def busy(shown: Guest, held: Collection[Reservation] = (), migrations: Collection[int] = ()) -> str | None:
    """What the guest is busy with, if at all."""
    counted = count_reservations(Snapshot(nodes=NODES, guests=(shown,)), held)
    found = busy_guests(counted, migrations)
    assert found.keys() <= {shown.vmid}
    return found.get(shown.vmid)


def move(**values: t.Any) -> Reservation:
    vmid = values.pop("vmid", 101)
    return reservation(vmid, f"move:{vmid}", **{"node": "pve2", "source": "pve1", "holder": HERE, **values})


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ({}, None),
        ({"lock": "migrate"}, None),
        ({"lock": "backup"}, None),
        ({"ha_managed": True, "ha_state": "started"}, None),
        ({"ha_managed": True, "ha_state": "migrate"}, MOVED_BY_OTHERS),
        ({"ha_managed": True, "ha_state": "relocate"}, MOVED_BY_OTHERS),
        ({"ha_managed": False, "ha_state": "migrate"}, None),
    ],
)
def test_guest__is_being_moved_by_the_state_of_its_ha_resource_and_not_by_a_lock(
    shown: dict[str, t.Any], expected: str | None
) -> None:
    assert busy(guest(101, "pve1", **shown)) == expected


def test_guest_whose_migration_runs__is_being_moved() -> None:
    assert busy(guest(101, "pve1", lock="migrate"), migrations=[101, 999]) == MOVED_BY_OTHERS


@pytest.mark.parametrize(
    ("held", "at", "expected"),
    [
        (move(), "pve1", MOVED_BY_OTHERS),
        (move(phase="binding"), "pve1", MOVED_BY_OTHERS),
        (move(phase="created"), "pve2", None),
        (move(phase="binding", forsaken=True, quiet=2.0), "pve1", MOVED_BY_OTHERS),
        (move(phase="binding", forsaken=True, quiet=60.0), "pve1", None),
    ],
    ids=["reserved", "sent", "arrived", "of a process that was just killed", "of a dead process"],
)
def test_guest_whose_move_is_reserved__is_being_moved_until_it_has_arrived(
    held: Reservation, at: str, expected: str | None
) -> None:
    assert busy(guest(101, at), [held]) == expected


def test_guest_that_a_living_process_creates__is_being_created() -> None:
    made = guest(101, "pve1", name="web", lock="create")
    assert busy(made, [reservation(101, "web", phase="binding", holder=HERE)]) == CREATED_BY_OTHERS


@pytest.mark.parametrize(
    ("held", "coming"),
    [
        ({"node": "pve2"}, {101}),
        ({"node": "pve1"}, set()),
        ({"node": "pve2", "source": ""}, set()),
        ({"node": "pve2", "vmid": 999}, set()),
    ],
)
def test_guest__is_coming_to_a_node_while_its_move_there_is_reserved(
    held: dict[str, t.Any], coming: set[int]
) -> None:
    state = ClusterState(Snapshot(nodes=NODES, guests=(guest(101, "pve1"),)))
    there = move(**{"vmid": 101, **held})
    assert incoming_guests({"pve2"}, state, [there]) == coming
    assert incoming_guests({"pve1"}, state, [there]) == set()


def test_guest_that_has_arrived__is_not_coming() -> None:
    state = ClusterState(Snapshot(nodes=NODES, guests=(guest(101, "pve2"),)))
    assert incoming_guests({"pve2"}, state, [move()]) == set()
