# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters that format the maintenance of several nodes as lines of plain text."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Mapping

from ansible.errors import AnsibleFilterError

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.moves import GIB, size_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.texts import join_words
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.tables import EMPTY, table, width_for, wrap

STEP = ("ID", "NODE", "MOVES", "GIB", "BACK", "VOTES", "NOT MOVED", "NOTES")


def tour_table(result: Mapping[str, t.Any], width: int | None = None, options_in: str | None = None) -> list[str]:
    """Return a sentence, a row per turn, a line per node that is not maintained, and a line per reason of a refusal.

    options_in is the variable in which a role takes the options that cures name.

    result is that of maintenance_tour, or a tour. Lines are at most width characters long if possible.
    """
    tour = result.get("tour", result) if isinstance(result, Mapping) else None
    if not isinstance(tour, Mapping) or "steps" not in tour:
        kind = type(result).__name__
        raise AnsibleFilterError(f"expected a tour or the result of maintenance_tour, got {kind} without steps")
    names: Mapping[str, str] = result.get("names") or {}
    width, refused = width_for(width), result.get("refused") or ()
    moves = sum(count_guests(step[key]) for step in tour["steps"] for key in ("moves", "back"))
    what = f"refused, for {len(refused)} reason(s)" if refused else f"{moves} move(s)"
    lines = wrap(f"{tour['goal']}: {what}", width, "    ")
    if tour["steps"]:
        rows = [_row(number, step, names) for number, step in enumerate(tour["steps"], start=1)]
        lines += table([STEP, *rows], width)
    for name, why in sorted(tour["skipped"].items()):
        lines += wrap(f"{name} is not maintained: {why}", width, "    ")
    for name in tour["unfinished"]:
        lines += wrap(f"{name} only becomes active again: an earlier run has begun its maintenance", width, "    ")
    for each in refused:
        where = f"{each['node']}: " if each["node"] else ""
        lines += wrap(f"{where}{each['why']}; {each['cure']}", width, "    ")
    if refused and options_in:
        lines += wrap(f"Options that these lines name belong in {options_in}, also with -e.", width, "    ")
    return lines


def count_guests(moves: Iterable[Mapping[str, t.Any]]) -> int:
    """Return how many guests move; one that moves twice counts twice."""
    return sum(1 + len(move["together"]) for move in moves)


def fates_of(step: Mapping[str, t.Any], names: Mapping[str, str]) -> list[str]:
    """Return what becomes of each guest that is not moved. names are those of the guests, by VMID as text."""
    kept = [*((vmid, "is shut down") for vmid in step["shut_down"]), *((vmid, "stays") for vmid in step["stay"])]
    return [f"{names.get(str(vmid)) or 'guest'} ({vmid}) {what}" for vmid, what in kept]


def nodes_of(step: Mapping[str, t.Any]) -> list[str]:
    """Return the nodes of a turn."""
    return [step["node"], *step.get("beside", ())]


def notes_of(step: Mapping[str, t.Any]) -> list[str]:
    """Return why the nodes of a turn need maintenance, and what could not be absorbed meanwhile."""
    return [*step["needs"], *([f"meanwhile, {step['stranded']}"] if step["stranded"] else [])]


def _row(number: int, step: Mapping[str, t.Any], names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the cells of a turn in the table."""
    votes = f"{step['votes']} (needs {step['votes_needed']})" if step["votes_needed"] else EMPTY
    return (
        str(number),
        join_words(nodes_of(step)),
        str(count_guests(step["moves"])),
        f"{sum(map(size_of, step['moves'])) / GIB:.1f}",
        str(count_guests(step["back"])) if step["back"] else EMPTY,
        votes,
        "; ".join(fates_of(step, names)) or EMPTY,
        "; ".join(notes_of(step)) or EMPTY,
    )


class FilterModule:
    """The filters by their names."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        return {"tour_table": tour_table}
