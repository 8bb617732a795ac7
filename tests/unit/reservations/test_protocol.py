# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The protocol of the ledger gives no place and no name twice, and no write reaches another guest than the one that was
meant, whatever is paused, crashes, expires or changes hands.
"""

from __future__ import annotations

import pytest
from model import identity, moves
from model.protocol import AS_READ, FENCE, LEASE, PROTECTIONS, Explored, State, explore, is_at_rest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import LeasedCycle, Ledger
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.ledger import Fence
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.gate import MoveGate


@pytest.fixture(scope="module")
def found() -> Explored[State]:
    return explore()


@pytest.fixture(scope="module")
def states(found: Explored[State]) -> set[State]:
    return found.states


def test_protocol__reaches_no_broken_state(found: Explored[State]) -> None:
    assert found.history == []
    assert len(found.states) > 200_000


def test_protocol__makes_the_one_vm_when_no_controller_fails_for_good(states: set[State]) -> None:
    ends = [state for state in states if state.conditions == ("running", "running") and is_at_rest(state)]
    assert ends
    assert all([run.vm for run in state.runs].count("shown") == 1 for state in ends)


def test_protocol__gets_on_while_a_run_is_not_done(found: Explored[State]) -> None:
    assert [state for state in found.ends if not is_at_rest(state)] == []


def test_protocol__breaks_without_the_proof_of_the_lease() -> None:
    history = explore(PROTECTIONS - {LEASE}).history
    assert history[-1] == "two VMs are in one place"


def test_protocol__breaks_without_the_fence_by_a_pause_between_mark_and_send() -> None:
    history = explore(PROTECTIONS - {FENCE}).history
    marked, paused = history.index("run 0: mark_binding"), history.index("controller 0 is paused")
    assert marked < paused < history.index("run 0: expired") < history.index("run 0: send")
    assert history[-1] == "two VMs are in one place"


def test_protocol__breaks_when_a_cycle_drops_what_was_renewed_since_it_was_read() -> None:
    history = explore(PROTECTIONS - {AS_READ}).history
    assert history.index("run 1: reservations") < history.index("run 0: send") < history.index("run 1: confirm")
    assert history[-1] == "two VMs are in one place"


def test_protocol__names_its_steps_as_the_code_does(states: set[State]) -> None:
    named = {run.step for state in states for run in state.runs} - {"enter", "send", "done"}
    assert named == {"reservations", "confirm", "reserve", "mark_binding", "mark_created"}
    for step in named:
        assert any(hasattr(kind, step) for kind in (LeasedCycle, Ledger, Fence))


@pytest.fixture(scope="module")
def found_of_moves() -> Explored[moves.State]:
    return moves.explore()


def test_protocol_of_moves__reaches_no_broken_state_and_gets_on(found_of_moves: Explored[moves.State]) -> None:
    assert found_of_moves.history == []
    assert len(found_of_moves.states) > 30_000
    assert [state for state in found_of_moves.ends if not moves.is_at_rest(state)] == []
    ends = [state for state in found_of_moves.ends if "dead" not in state.conditions and moves.is_at_rest(state)]
    assert {sum(guest.moved for guest in state.guests) for state in ends} == {0, 1}


@pytest.mark.parametrize("missing", sorted(moves.PROTECTIONS))
def test_protocol_of_moves__breaks_without_any_of_its_protections(missing: str) -> None:
    assert moves.explore(moves.PROTECTIONS - {missing}).history[-1] == "two guests are in one place"


def test_protocol_of_moves__names_its_steps_as_the_code_does(found_of_moves: Explored[moves.State]) -> None:
    named = {run.step for state in found_of_moves.states for run in state.runs} - {"enter", "send", "done"}
    assert named == {"reservations", "reserve", "mark_binding", "settle"}
    for step in named:
        assert any(hasattr(kind, step) for kind in (LeasedCycle, Ledger, Fence, MoveGate))


@pytest.fixture(scope="module")
def found_of_identity() -> Explored[identity.State]:
    return identity.explore()


def test_protocol_of_identity__reaches_no_other_guest_and_gets_on(found_of_identity: Explored[identity.State]) -> None:
    assert found_of_identity.history == []
    assert len(found_of_identity.states) > 1_000
    assert [state for state in found_of_identity.ends if not identity.is_at_rest(state)] == []
    undisturbed = [
        state
        for state in found_of_identity.states
        if state.there and not state.birth and "dead" not in state.conditions and identity.is_at_rest(state)
    ]
    assert {tuple(run.reached for run in state.runs) for state in undisturbed} >= {((0, 0), (0, 0), (0, 0))}


@pytest.mark.parametrize("missing", sorted(identity.PROTECTIONS))
def test_protocol_of_identity__breaks_without_any_of_its_protections(missing: str) -> None:
    history = identity.explore(identity.PROTECTIONS - {missing}).history
    assert "the guest is removed" in history
    assert history[-1] == "a write reaches another guest"


def test_protocol_of_identity__breaks_without_a_digest_between_the_proof_and_the_change() -> None:
    history = identity.explore(identity.PROTECTIONS - {identity.DIGEST}).history
    removed = history.index("the guest is removed")
    assert history.index("run 0: prove") < removed < history.index("run 0: update")


def test_protocol_of_identity__takes_another_guest_of_the_same_name_for_it_without_its_birth() -> None:
    assert "the VMID is used again for app" in identity.explore(identity.PROTECTIONS - {identity.BIRTH}).history
