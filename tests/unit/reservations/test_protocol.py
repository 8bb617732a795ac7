# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The protocol of the ledger gives no place and no name twice, whatever is paused, crashes or expires."""

from __future__ import annotations

import pytest
from model.protocol import FENCE, LEASE, PROTECTIONS, State, broken, explore, is_at_rest, steps

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import Cycle, Ledger
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.fence import Fence


@pytest.fixture(scope="module")
def states() -> set[State]:
    found, history = explore()
    assert history == []
    return found


def test_protocol__reaches_no_broken_state(states: set[State]) -> None:
    assert len(states) > 100_000
    assert not any(map(broken, states))


def test_protocol__makes_the_one_vm_when_no_controller_fails_for_good(states: set[State]) -> None:
    ends = [state for state in states if state.conditions == ("running", "running") and is_at_rest(state)]
    assert ends
    assert all([run.vm for run in state.runs].count("shown") == 1 for state in ends)


def test_protocol__gets_on_while_a_run_is_not_done(states: set[State]) -> None:
    for state in states:
        following = [step for step, after in steps(state) if after.conditions == state.conditions]
        assert is_at_rest(state) or following, state


def test_protocol__breaks_without_the_proof_of_the_lease() -> None:
    _states, history = explore(PROTECTIONS - {LEASE})
    assert history[-1] == "two VMs are in one place"


def test_protocol__breaks_without_the_fence_by_a_pause_between_mark_and_send() -> None:
    _states, history = explore(PROTECTIONS - {FENCE})
    marked, paused = history.index("run 0: mark_binding"), history.index("controller 0 is paused")
    assert marked < paused < history.index("run 0: expired") < history.index("run 0: send")
    assert history[-1] == "two VMs are in one place"


def test_protocol__names_its_steps_as_the_code_does(states: set[State]) -> None:
    named = {run.step for state in states for run in state.runs} - {"enter", "send", "done"}
    assert named == {"reservations", "reserve", "mark_binding", "mark_created"}
    for step in named:
        assert any(hasattr(kind, step) for kind in (Cycle, Ledger, Fence))
