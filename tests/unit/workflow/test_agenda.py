# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which moves of a plan start when."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Move
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.agenda import Agenda
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.move_options import Caps
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import MOVES_OPTIONS


def move(number: int, source: str, target: str, after: tuple[int, ...] = (), estimate: float = 1.0) -> Move:
    return Move(number, 100 + number, "web", source, target, "drains a", after=after, estimate=estimate)


def started(agenda: Agenda) -> list[int]:
    return [move.id for move in agenda.start()]


def test_caps__are_by_default_what_the_option_says() -> None:
    options = MOVES_OPTIONS["parallel"]["options"]
    assert Caps(**{name: spec["default"] for name, spec in options.items()}) == Caps()


def test_agenda__a_move_waits_for_all_that_it_comes_after() -> None:
    moves = [move(1, "a", "b"), move(2, "c", "d"), move(3, "d", "e", after=(1, 2))]
    agenda = Agenda(moves, Caps())
    assert started(agenda) == [1, 2]
    agenda.end(moves[0])
    assert started(agenda) == []
    agenda.end(moves[1])
    assert started(agenda) == [3]


def test_agenda__starts_as_many_as_each_node_and_the_cluster_may_have_the_longest_first() -> None:
    moves = [move(number, "a", "b", estimate=number) for number in (1, 2, 3)] + [move(4, "c", "b"), move(5, "c", "d")]
    free = {"cluster": 9, "per_node_in": 9, "per_node_out": 9, "per_link": 9}
    assert started(Agenda(moves, Caps(**{**free, "per_node_in": 2}))) == [3, 2, 5]
    assert started(Agenda(moves, Caps(**{**free, "per_node_out": 1}))) == [3, 4]
    assert started(Agenda(moves, Caps(**{**free, "cluster": 2}))) == [3, 2]


def test_agenda__counts_both_directions_of_a_link() -> None:
    moves = [move(1, "a", "b"), move(2, "b", "a"), move(3, "a", "b"), move(4, "a", "c")]
    assert started(Agenda(moves, Caps(cluster=9, per_node_in=9, per_node_out=9, per_link=2))) == [1, 2, 4]


GIB = 1024**3
FREE = Caps(cluster=9, per_node_in=2, per_node_out=2, per_link=2)


def large(number: int, source: str, target: str, after: tuple[int, ...] = (), gib: int = 4) -> Move:
    return replace(move(number, source, target, after, estimate=10.0 * gib), memory=gib * GIB)


def test_agenda__starts_the_move_with_the_longest_chain_behind_it() -> None:
    moves = [
        large(1, "a", "b", gib=8),
        large(2, "a", "c"),
        large(3, "c", "d", after=(2,)),
        large(4, "d", "a", after=(3,)),
    ]
    assert started(Agenda(moves, Caps(cluster=1))) == [2]


def test_agenda__gives_a_link_to_one_large_move_at_a_time_while_others_have_their_own() -> None:
    moves = [large(1, "a", "b"), large(2, "a", "c"), large(3, "c", "a"), large(4, "b", "a"), large(5, "d", "b")]
    agenda = Agenda(moves, FREE)
    assert started(agenda) == [1, 3]
    agenda.end(moves[0])
    assert started(agenda) == [2, 5]


def test_agenda__fills_the_link_of_a_node_that_is_drained() -> None:
    agenda = Agenda([large(1, "a", "b"), large(2, "a", "c"), large(3, "a", "d")], FREE)
    assert started(agenda) == [1, 2]


def test_agenda__does_not_hold_small_moves_back() -> None:
    assert started(Agenda([large(1, "a", "b"), move(2, "a", "c"), large(3, "c", "d")], FREE)) == [1, 3, 2]


def test_agenda__bears_moves_that_wait_for_each_other() -> None:
    assert started(Agenda([move(1, "a", "b", after=(2,)), move(2, "a", "b", after=(1,)), move(3, "a", "b")], FREE)) == [
        3
    ]
