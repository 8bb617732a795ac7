# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever somebody wrote into the ledger's rows, it is refused with a typed error, or does no harm."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import typing as t
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ledgers import CLUSTER, reservation

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import LedgerIncompatible, LedgerUnavailable
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    AffinityTerm,
    Constraints,
    GangRef,
    Selector,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import Holder, open_ledger
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.records import (
    COLUMNS,
    from_row,
    holder_from_text,
    to_row,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.counting import guest_of

FULL = replace(
    reservation(
        100,
        cores=2,
        memory=1024,
        storage_bytes={("local", "pve1"): 5},
        devices=(("pve1", "pci/0"),),
        tags=frozenset({"web"}),
        constraints=Constraints(
            affinity=(AffinityTerm(False, Selector(name="db", tags=frozenset({"x"})), topology_key="rack"),),
            gang=GangRef("g", 2),
        ),
    ),
    holder=Holder.new(),
    expires=1.0,
)
ROW = dict(zip(COLUMNS.split(", "), to_row(FULL), strict=True))
RESOURCES: dict[str, t.Any] = json.loads(ROW["resources"])

Write = Callable[..., None]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
odd_texts = json_values.map(json.dumps) | st.text(max_size=10) | st.just("[" * 100_000)


@pytest.fixture
def write(where: str) -> Write:
    """Write into the tables behind the ledger's back."""

    def run(sql: str, *parameters: t.Any) -> None:
        if where.startswith("postgresql"):
            with psycopg.connect(where, autocommit=True) as database:
                assert database.execute(sql.replace("?", "%s").encode(), parameters).rowcount == 1
            return
        with contextlib.closing(sqlite3.connect(Path(where), timeout=30)) as file, file:
            assert file.execute(sql, parameters).rowcount == 1

    return run


def read(**changes: t.Any) -> None:
    """Read a row with these values, as far as it can be read, and count it."""
    try:
        found = from_row([{**ROW, **changes}[column] for column in COLUMNS.split(", ")])
    except LedgerIncompatible:
        return
    guest = guest_of(found)
    assert 0 <= guest.cores < float("inf")
    assert guest.memory >= 0
    str(found.holder)


@settings(max_examples=300, deadline=None)
@given(resources=odd_texts)
def test_from_row__refuses_resources_that_are_none(resources: str) -> None:
    with pytest.raises(LedgerIncompatible, match="VMID 100 on cluster 'cluster-a' is invalid"):
        from_row([{**ROW, "resources": resources}[column] for column in COLUMNS.split(", ")])


@settings(max_examples=600, deadline=None)
@given(key=st.sampled_from(sorted(RESOURCES)), value=json_values)
def test_from_row__reads_or_refuses_any_value_of_a_resource(key: str, value: t.Any) -> None:
    read(resources=json.dumps({**RESOURCES, key: value}))


@settings(max_examples=300, deadline=None)
@given(
    column=st.sampled_from(["vmid", "name", "phase", "created", "expires"]),
    value=st.none() | st.text(max_size=3) | st.floats() | st.integers(),
)
def test_from_row__reads_or_refuses_any_value_of_a_column(column: str, value: t.Any) -> None:
    read(**{column: value})


@settings(max_examples=300, deadline=None)
@given(text=odd_texts)
def test_holder_from_text__takes_for_alive_whom_it_does_not_understand(text: str) -> None:
    holder = holder_from_text(text)
    assert not holder.is_dead()
    assert str(holder) == "an unknown process"


def test_an_odd_row__is_refused_until_it_expires_and_then_dropped(where: str, write: Write) -> None:
    with open_ledger(where) as ledger:
        with ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0) as cycle:
            cycle.reserve([reservation(100), reservation(101)])
        write("UPDATE qemu_scheduler_reservations SET resources = '[]' WHERE vmid = ?", 100)
        with ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0) as cycle:
            again = [reservation(100)]
            for look in (lambda: ledger.reservations(CLUSTER), cycle.reservations, lambda: cycle.reserve(again)):
                with pytest.raises(LedgerIncompatible, match="VMID 100"):
                    look()
        ledger.forget(CLUSTER, [100])
        write("UPDATE qemu_scheduler_reservations SET expires = 0 WHERE vmid = ?", 100)
        assert [found.vmid for found in ledger.reservations(CLUSTER)] == [101]
        with ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0) as cycle:
            assert [found.vmid for found in cycle.reservations()] == [101]


def test_an_odd_holder__keeps_its_lease_until_it_expires(where: str, write: Write) -> None:
    with open_ledger(where) as ledger, ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0):
        write("UPDATE qemu_scheduler_leases SET holder = ?", '{"pid": "x"}')
        with (
            pytest.raises(LedgerUnavailable, match="an unknown process has held it"),
            ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0),
        ):
            pass
        write("UPDATE qemu_scheduler_leases SET expires = 0")
        with ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0):
            pass


@pytest.mark.parametrize("names", ["", "{", "null", "7", "[[]]"])
def test_an_odd_endpoint__is_not_known(where: str, write: Write, names: str) -> None:
    with open_ledger(where) as ledger:
        ledger.remember_endpoint("pve1", 8006, CLUSTER, ["pve1"])
        write("UPDATE qemu_scheduler_endpoints SET node_names = ?", names)
        assert ledger.endpoint("pve1", 8006) is None
