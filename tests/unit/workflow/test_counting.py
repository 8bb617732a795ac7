# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a reservation stands in for its VM, when the cluster's own row counts, and when a reservation is done with."""

from __future__ import annotations

import json
import typing as t
from dataclasses import replace

import pytest
from support.identities import identity
from support.ledgers import reservation
from support.small_cluster import guest, node, scheduler

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import (
    ClusterState,
    assumed_guest,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    Decision,
    DeviceAllocation,
    GangRef,
    Guest,
    HAIntent,
    HARule,
    Request,
    Selector,
    Snapshot,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.freshness import KnownGuest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import Holder, Reservation
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.records import from_row, to_row
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.counting import (
    Counted,
    count_reservations,
    guest_of,
    known_guests,
    reservation_of,
    with_moves,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import Entry

CREATED = {"phase": "created"}
BINDING = {"phase": "binding"}


def mine(**values: t.Any) -> Reservation:
    return reservation(
        100,
        "web-1",
        **{"cores": 1, "memory": GIB, "holder": Holder.new(), "phase": "created", "running": True, **values},
    )


def counted(
    shown: Guest | None, held: Reservation, *, known: bool = False, online: bool = True, **more: t.Any
) -> Counted:
    nodes = (node("pve1", online=online),)
    guests = () if shown is None else (shown,)
    of = {held.vmid: KnownGuest(held.name, whole=True)} if known else {}
    return count_reservations(Snapshot(nodes=nodes, guests=guests), [held], of, **more)


def outcome(result: Counted) -> str:
    """Whether the reservation stands in, or is done with, or is only its holder's business."""
    if result.pending:
        assert not result.fulfilled
        assert not result.snapshot.guests, "a VM must not count twice"
        return "stands in"
    return "done with" if result.fulfilled else "not counted"


def web(**values: t.Any) -> Guest:
    return guest(100, "pve1", **{"name": "web-1", **values})


@pytest.mark.parametrize(
    ("shown", "phase", "expected"),
    [
        (None, "reserved", "stands in"),
        (None, "created", "stands in"),
        # It stays for other runs until it expires.
        (web(), "created", "not counted"),
        (web(name=None), "created", "stands in"),
        (web(gib=0), "created", "stands in"),
        (web(lock="create"), "created", "stands in"),
        (web(lock="clone"), "created", "stands in"),
        (web(lock="backup"), "created", "not counted"),
        # A clone is there before it has its sizes, and every VM before it is started.
        (web(), "binding", "stands in"),
        (web(), "reserved", "stands in"),
        (web(name="other"), "created", "done with"),
        (web(kind="lxc"), "created", "done with"),
        # Its holder, who lives, will learn that the VMID is taken.
        (web(name="other"), "binding", "not counted"),
        (web(name="other"), "reserved", "not counted"),
    ],
)
def test_reservation_against_what_was__read_a_moment_ago(shown: Guest | None, phase: str, expected: str) -> None:
    assert outcome(counted(shown, mine(phase=phase))) == expected


@pytest.mark.parametrize(
    "shown",
    [
        web(gib=2),
        web(cores=2),
        # Shown between its creation and its start.
        web(status="stopped"),
    ],
)
@pytest.mark.parametrize("why", [{"known": True}, {"online": False}])
def test_row_that_may_be_late__is_not_believed_when_it_disagrees(shown: Guest, why: dict[str, bool]) -> None:
    assert outcome(counted(shown, mine(), **why)) == "stands in"


@pytest.mark.parametrize(("name", "expected"), [(None, 1), ("web-1", 2)])
def test_row_without_a_name__has_placeholders_for_sizes(name: str | None, expected: int) -> None:
    (stand_in,) = counted(web(name=name, gib=2, cores=expected), mine(), known=name is not None).stand_ins
    assert (stand_in.memory, stand_in.cores) == (expected * GIB, expected)


def test_row_that_may_be_late__is_believed_when_it_agrees() -> None:
    assert outcome(counted(web(), mine(), online=False)) == "not counted"


def test_reservation_of_a_guest_that_is_known__stays_for_other_runs() -> None:
    result = counted(web(), mine(), known=True)

    assert outcome(result) == "not counted"
    assert result.snapshot.guests == (web(),)


def test_row_that_shows_more_than_was_reserved__counts_with_that() -> None:
    result = counted(web(gib=2, cores=4), mine(), known=True)

    assert [(each.memory, each.cores) for each in result.stand_ins] == [(2 * GIB, 4)]


def entry(name: str = "", vmid: int | None = None, state: str = "present") -> Entry:
    return Entry(0, Request(name, vmid=vmid), state)


@pytest.mark.parametrize(
    ("entries", "phase", "expected"),
    [
        ([], "binding", KnownGuest("web-1", whole=False)),
        ([entry("web-2", 101)], "created", KnownGuest("web-1", whole=True)),
        ([entry("web-1")], "created", KnownGuest("web-1", whole=True, proven=True)),
        ([entry("web-1", 100)], "created", KnownGuest("web-1", whole=True, proven=True)),
        # What is to be done depends on more than the config.
        ([entry("web-1")], "binding", None),
        ([entry("web-1", state="started")], "created", None),
        ([entry("web-1", state="absent")], "created", None),
        # It may have been renamed, or its VMID may be that of another VM by now.
        ([entry("web-1", 101)], "created", None),
        ([entry("web-2", 100)], "created", None),
        ([entry(vmid=100)], "created", None),
        ([entry("web-1"), entry(vmid=100)], "created", None),
    ],
)
def test_known_guests__what_an_entry_means_is_known_only_where_its_config_will_prove_it(
    entries: list[Entry], phase: str, expected: KnownGuest | None
) -> None:
    assert known_guests([mine(phase=phase)], entries) == ({} if expected is None else {100: expected})


@pytest.mark.parametrize("shown", [web(name=None, gib=0, status="stopped"), web(name=None), web(status="stopped")])
def test_count_reservations__a_vm_that_its_config_will_prove_counts_as_it_is_shown(shown: Guest) -> None:
    held = mine(storage_bytes={("fast", "pve1"): 5})
    known = {100: KnownGuest("web-1", whole=True, proven=True)}

    result = count_reservations(Snapshot(nodes=(node("pve1"),), guests=(shown,)), [held], known)

    (found,) = result.snapshot.guests
    assert (found.name, found.memory, found.status) == ("web-1", GIB, shown.status)
    assert bool(found.storage_pending) is (shown.name is None)
    assert (result.pending, result.fulfilled) == ((), ()), "the next run needs to know of it as well"


def test_count_reservations__the_name_on_a_node_that_is_offline_may_be_that_of_a_former_guest() -> None:
    assert outcome(counted(web(name="the-former-guest"), mine(), online=False)) == "stands in"


def test_count_reservations__another_name_is_another_vm_although_this_one_was_known() -> None:
    # What a row contradicts was read again.
    assert outcome(counted(web(name="other"), mine(), known=True)) == "done with"


@pytest.mark.parametrize(("phase", "expected"), [("created", "done with"), ("binding", "stands in")])
def test_count_reservations__a_vm_that_is_made_on_the_vmid_of_one_that_was_made_is_another(
    phase: str, expected: str
) -> None:
    assert outcome(counted(web(name=None, lock="create"), mine(phase=phase))) == expected


@pytest.mark.parametrize(
    ("phase", "gone", "expected", "asked"),
    [
        ("created", True, "done with", [("pve1", 100)]),
        ("created", False, "stands in", [("pve1", 100)]),
        ("binding", True, "stands in", []),
        ("reserved", True, "stands in", []),
    ],
)
def test_count_reservations__a_vm_that_was_made_and_is_gone_counts_no_longer(
    phase: str, gone: bool, expected: str, asked: list[tuple[str, int]]
) -> None:
    questions: list[tuple[str, int]] = []

    def ask_if_gone(node: str, vmid: int) -> bool:
        questions.append((node, vmid))
        return gone

    assert outcome(counted(None, mine(phase=phase), ask_if_gone=ask_if_gone)) == expected
    assert questions == asked


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (web(), "done with"),
        (web(name="other"), "done with"),
        # The row was read before the holder was done, who has ended since; or it died before it started the VM.
        (web(status="stopped"), "stands in"),
        (web(gib=0.5), "stands in"),
    ],
)
def test_dead_holders_reservation__is_done_with_when_its_vm_counts_for_as_much(shown: Guest, expected: str) -> None:
    assert outcome(counted(shown, mine(phase="binding", forsaken=True))) == expected


def test_stand_in__counts_like_its_vm() -> None:
    apart = AffinityTerm(False, Selector(name="db-.*", tags=frozenset({"x"}), pool="p", group="h"), topology_key="rack")
    request = Request(
        "web-1",
        cores=4,
        memory=8 * GIB,
        tags=frozenset({"web"}),
        pool="shop",
        gang=GangRef("g"),
        running=False,
        affinity=(apart, replace(apart, required=False), replace(apart, together=True)),
        ha=HAIntent(rule="keep-apart"),
    )
    device = DeviceAllocation("gpu", "pci", "0000:41:00", "pve1", "gpus", "hostpci0", "mapping=gpus")
    decision = Decision(request, "pve1", 100, storage_bytes={("local", "pve1"): GIB}, devices=(device,))
    held = from_row(to_row(replace(reservation_of(decision, "lab"), holder=Holder.new())))
    assert (held.cluster, held.vmid, held.name, held.node) == ("lab", 100, "web-1", "pve1")
    stand_in = guest_of(held)
    assert stand_in == assumed_guest(decision), "to others it is what it is to the run that decided it"
    assert (stand_in.cores, stand_in.memory, stand_in.tags, stand_in.pool) == (4, 8 * GIB, request.tags, "shop")
    assert (stand_in.group, stand_in.devices) == ("g", (("pci", "0000:41:00"),))
    assert stand_in.storage_pending == {("local", "pve1"): GIB}
    assert stand_in.constraints == request.constraints, "whatever the request says of where it may be"
    assert stand_in.running, "it counts at once, as its sizes will soon"


def test_reservation_of_an_older_version__is_understood() -> None:
    held = mine()
    row = list(to_row(held))
    resources = json.loads(row[-1])
    for key in ("constraints", "identity", "task"):
        del resources[key]
    assert from_row([*row[:-1], json.dumps(resources)]) == held


def moved(**values: t.Any) -> Reservation:
    return reservation(
        100, "move:100", **{"node": "pve2", "source": "pve1", "holder": Holder.new(), "phase": "binding", **values}
    )


def moving(shown: Guest, held: Reservation) -> Counted:
    return count_reservations(Snapshot(nodes=(node("pve1"), node("pve2")), guests=(shown,)), [held])


@pytest.mark.parametrize(("shown_on", "counted_on"), [("pve1", "pve2"), ("pve2", "pve1")])
def test_a_guest_that_is_being_moved__counts_on_both_nodes(shown_on: str, counted_on: str) -> None:
    shown = guest(100, shown_on, name="web-1", lock="migrate")

    result = moving(shown, moved(storage_bytes={("fast", "pve2"): 5}))

    assert result.snapshot.guests == (shown,)
    assert (result.pending, result.fulfilled) == ((), ())
    (other,) = result.under_way
    assert (other.node, other.memory, other.running) == (counted_on, GIB, True)
    assert other.vmid not in (shown.vmid, 0)
    assert other.storage_pending == {("fast", "pve2"): 5}


@pytest.mark.parametrize(
    ("held", "shown", "over"),
    [
        ({}, {}, False),
        ({"forsaken": True, "quiet": 9.0}, {}, False),
        ({"forsaken": True, "quiet": 1.0}, {"node": "pve2"}, True),
        ({"forsaken": True, "quiet": 1.0}, {"node": "pve2", "lock": "migrate"}, False),
        ({"quiet": 1.0}, {"node": "pve2"}, False),
        ({"forsaken": True, "quiet": 11.0}, {}, True),
        ({"forsaken": True, "quiet": 11.0}, {"ha_managed": True, "ha_state": "started"}, False),
        ({"forsaken": True, "quiet": 31.0}, {"ha_managed": True, "ha_state": "started"}, True),
        ({"forsaken": True, "quiet": 2000.0}, {"ha_managed": True, "ha_state": "migrate"}, False),
        ({"forsaken": True, "quiet": 2000.0}, {"lock": "migrate"}, False),
        ({"phase": "created"}, {}, False),
        ({"phase": "created"}, {"node": "pve2"}, True),
        ({"phase": "created"}, {"node": "pve2", "lock": "migrate"}, False),
    ],
)
def test_a_move__is_over_when_the_cluster_shows_it_or_its_holder_is_gone_and_nothing_shows(
    held: dict[str, t.Any], shown: dict[str, t.Any], over: bool
) -> None:
    found = moving(replace(guest(100, "pve1", name="web-1"), **shown), moved(**held))
    assert (bool(found.fulfilled), found.under_way == ()) == (over, over)


def test_a_move_of_a_killed_controller__is_not_over_while_its_task_runs() -> None:
    cluster = Snapshot((node("pve1"), node("pve2")), (guest(100, "pve1", name="web-1"),), migrating=frozenset({100}))
    found = count_reservations(cluster, [moved(forsaken=True, quiet=2000.0)])
    assert (found.fulfilled, [other.node for other in found.under_way]) == ((), ["pve2"])


@pytest.mark.parametrize("positive", [False, True])
def test_a_guest_that_is_being_moved__is_kept_apart_on_both_nodes_by_its_ha_rule(positive: bool) -> None:
    rule = HARule("rule", "resource-affinity", frozenset({100}), positive=positive)
    result = moving(guest(100, "pve1", name="web-1"), moved())

    whole = with_moves(replace(result.snapshot, ha_rules=(rule,)), result.under_way)
    refusals = scheduler(ClusterState(whole)).refusals(Request("db-1", ha=HAIntent(rule="rule")))

    refused = {name for name, statuses in refusals.items() if "HARules" in statuses}
    assert refused == ({"pve2"} if positive else {"pve1", "pve2"})


LATE = {"name": None, "gib": 0, "status": "stopped"}
"""How the cluster shows a guest that was created a moment ago."""


def test_a_guest_that_is_moved_right_after_its_creation__counts_as_created_on_both_nodes() -> None:
    held = mine(node="pve2", source="pve1", phase="binding", storage_bytes={("fast", "pve1"): 5})

    result = moving(web(**LATE), held)

    (there,), (other,) = result.snapshot.guests, result.under_way
    assert (there.name, there.node, there.memory) == ("web-1", "pve1", GIB)
    assert (other.name, other.node, other.memory, other.running) == ("web-1", "pve2", GIB, True)
    assert there.storage_pending == {("fast", "pve1"): 5}
    assert other.storage_pending == {}


def test_a_guest_that_arrived_right_after_its_creation__counts_whole_until_the_cluster_shows_it_so() -> None:
    held = mine(node="pve2", source="pve1", phase="created")

    late = moving(guest(100, "pve2", **LATE), held)
    shown = moving(guest(100, "pve2", name="web-1"), held)

    assert [(each.name, each.memory) for each in late.snapshot.guests] == [("web-1", GIB)]
    assert (late.under_way, late.fulfilled) == ((), ())
    assert [each.vmid for each in shown.fulfilled] == [100]


def test_a_guest_of_which_nothing_is_known_but_its_move__keeps_the_name_that_it_has() -> None:
    result = moving(web(**LATE), moved(memory=GIB))

    assert [(each.name, each.memory) for each in result.snapshot.guests] == [(None, GIB)]


def test_stand_in__of_a_created_vm_is_where_the_cluster_shows_it_and_under_ha_as_shown() -> None:
    shown = replace(guest(100, "pve2", **LATE), ha_managed=True, ha_state="started")

    (created,) = moving(shown, mine()).stand_ins
    (begun,) = moving(shown, mine(phase="binding")).stand_ins

    assert (created.node, created.ha_managed, created.ha_state) == ("pve2", True, "started")
    assert (begun.node, begun.ha_managed) == ("pve1", False)


def test_a_slow_clone__counts_for_what_was_asked_after_its_holder_fell_silent() -> None:
    held = mine(phase="binding", expired=True, forsaken=True)

    assert outcome(counted(web(name=None, lock="clone"), held)) == "stands in"
    assert outcome(counted(web(gib=8), held)) == "done with"
    assert outcome(counted(None, held)) == "done with"


def test_a_move__is_kept_by_the_ledger_with_the_node_that_it_leaves() -> None:
    held = moved(cluster="c", expires=1.0)

    assert from_row(to_row(held)) == held


def test_a_move_of_a_guest_whose_vmid_another_one_has_by_now__moves_no_other() -> None:
    payroll = guest(100, "pve1", name="payroll", lock="migrate")
    cluster = Snapshot(nodes=(node("pve1"), node("pve2")), guests=(payroll,))

    held = moved()
    result = count_reservations(cluster, [held], ask_if_another=lambda guest, _held: guest is payroll)

    assert (result.under_way, result.fulfilled, result.snapshot.guests) == ((), (held,), (payroll,))


def test_a_move__is_kept_with_the_identity_of_the_guest() -> None:
    held = moved(cluster="c", expires=1.0, identity=identity(7, "web-1"))

    assert from_row(to_row(held)) == held


def test_a_move__says_nothing_of_the_guests_name() -> None:
    assert known_guests([moved()]) == {}


@pytest.mark.parametrize("shown", [web(), web(name=None, lock="create")])
def test_a_vm_that_has_the_vmid_of_one_that_a_killed_run_created__counts_itself(shown: Guest) -> None:
    """The reservation stays and tells that the VM is another one."""
    result = counted(shown, mine(phase="binding", forsaken=True), ask_if_another=lambda guest, held: True)

    assert (outcome(result), result.snapshot.guests, result.fulfilled) == ("not counted", (shown,), ())
