# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters that format plans of moves as lines of plain text."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterator, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.tables import EMPTY, table, width_for, wrap

GIB = 1024**3
MOVE = ("ID", "GUEST", "FROM", "TO", "HOW", "GIB", "AFTER", "OUTCOME", "WHY")
NODE = ("NODE", "BEFORE", "PEAK", "AFTER", "OF", "")
USED = ("NODE", "USED", "BEFORE", "PEAK", "AFTER")
HOTTEST = 5
"""Of the nodes whose use does not change, so many are shown at most."""


def moves_table(moves: Mapping[str, t.Any], width: int | None = None, options_in: str | None = None) -> list[str]:
    """Return a sentence, a row per move, a line per guest that stays, and a row per node that changes.

    options_in is the variable in which a role takes the options that cures name.

    moves is the result of a module that moves guests, a plan, or a plan of VMs. Of a result, the rows are the moves of
    all plans of the run. Lines are at most width characters long if possible; by default they fit the terminal.
    """
    plan = plan_of(moves)
    width = width_for(width)
    rows, stuck = rows_of(moves), moves.get("stuck", plan["stuck"])
    lines = wrap(_headline(plan["goal"], rows, len(stuck)), width, "    ")
    if rows:
        lines += table([MOVE, *map(_row, rows)], width)
    for guest in stuck:
        text = f"{guest['name'] or 'guest'} ({guest['vmid']}) stays on {guest['node']}: {guest['why']}; {guest['cure']}"
        lines += wrap(text, width, "    ")
    if stuck and options_in:
        lines += wrap(f"Options that these lines name belong in {options_in}, also with -e.", width, "    ")
    for guest in moves.get("stays", ()):
        lines += wrap(
            f"{guest['name'] or 'guest'} ({guest['vmid']}) stays on {guest['node']}, as the task says", width, "    "
        )
    changed = [(name, node) for name, node in sorted(loads_of(moves).items()) if changes(node)]
    if changed:
        lines += table([NODE, *(_node_row(name, node) for name, node in changed)], width)
    used = list(_used_rows(moves))
    lines += table([USED, *used], width) if used else []
    for text in waits_of(moves):
        lines += wrap(text, width, "    ")
    return lines


def plan_of(moves: t.Any) -> Mapping[str, t.Any]:
    """Return the plan of a result, or result itself if it is a plan. A plan of VMs contains a plan of the moves that
    make room for them.
    """
    plan = moves.get("plan", moves) if isinstance(moves, Mapping) else None
    if isinstance(plan, Mapping) and "plan" not in moves and isinstance(plan.get("vm_plan"), Mapping):
        plan = plan["vm_plan"]
    if isinstance(moves, Mapping) and moves.get("failed") and not {"plan", "vm_plan", "moves"} & moves.keys():
        raise AnsibleFilterError(f"there is nothing to show, because the module failed: {moves.get('msg')}")
    if not isinstance(plan, Mapping) or "moves" not in plan or not ("goal" in plan or "vms" in plan):
        raise AnsibleFilterError("expected a plan, or the result of a module that moves guests")
    if "goal" in plan:
        return plan
    new = sum(vm["status"] == "absent" and bool(vm["actions"]) for vm in plan["vms"])
    return {**plan, "goal": f"place {new} VM(s)", "stuck": []}


def rows_of(moves: Mapping[str, t.Any]) -> list[Mapping[str, t.Any]]:
    """Return the moves of a plan; of a result, those of all plans of the run, each with its outcome if it was begun.

    A move of the first plan that was not begun is left out if a later plan moved its guest.
    """
    ended = {move["id"]: move for move in (moves.get("moves") or () if "plan" in moves else ())}
    planned = [{**move, **ended.pop(move["id"], {})} for move in plan_of(moves)["moves"]]
    later = {move["vmid"] for move in ended.values()}
    return [*(row for row in planned if "outcome" in row or row["vmid"] not in later), *ended.values()]


def loads_of(moves: Mapping[str, t.Any]) -> Mapping[str, t.Any]:
    """Return the courses of the nodes: as planned, or, of a result, as far as the moves were made."""
    loads: Mapping[str, t.Any] = moves["loads"] if "loads" in moves else plan_of(moves)["nodes"]
    return loads


def how_of(move: Mapping[str, t.Any], by_ha: str) -> str:
    """Return how a guest is moved, followed by by_ha if the HA manager moves it."""
    return str(move["how"]) + (by_ha if move["via"] == "ha" else "")


def size_of(move: Mapping[str, t.Any]) -> int:
    """Return the bytes that a move transfers."""
    return int(move["memory"]) + int(move["copied"])


def changes(node: Mapping[str, t.Any]) -> bool:
    """Whether the allocated amounts of a node change during the plan."""
    return bool(node["before"] != node["peak"] or node["before"] != node["after"])


def usage_of(moves: Mapping[str, t.Any]) -> list[tuple[str, Mapping[str, t.Any]]]:
    """Return what nodes use, if they were balanced by that: the hottest first."""
    nodes: Mapping[str, t.Any] = (moves.get("usage") or {}).get("nodes") or {}
    return sorted(nodes.items(), key=lambda item: (-max(each["before"] for each in item[1].values()), item[0]))


def waits_of(moves: Mapping[str, t.Any]) -> Sequence[str]:
    """Return why nodes that used more than others are not relieved now."""
    return (moves.get("usage") or {}).get("waits") or ()


def _used_rows(moves: Mapping[str, t.Any]) -> Iterator[tuple[str, ...]]:
    """Yield the table rows of what nodes use: those that the plan changes, and the hottest others."""
    others = 0
    for name, resources in usage_of(moves):
        changed = any(each["before"] != each["after"] for each in resources.values())
        others += not changed
        if changed or others <= HOTTEST:
            for resource, each in resources.items():
                yield (name, resource.replace("_", " "), *(f"{each[when]:.0%}" for when in ("before", "peak", "after")))


def _headline(goal: str, rows: Sequence[Mapping[str, t.Any]], stuck: int) -> str:
    sent = sum(map(size_of, rows)) / GIB
    text = f"{goal}: {len(rows)} move(s), {sent:.1f} GiB" if rows else f"{goal}: nothing moves"
    return text + (f", {stuck} guest(s) stay" if stuck else "")


def _row(move: Mapping[str, t.Any]) -> tuple[str, ...]:
    """Return the cells of a move in the table."""
    outcome = f"{move['outcome']} ({move['seconds']:.0f} s)" if "outcome" in move else EMPTY
    return (
        str(move["id"]),
        f"{move['name'] or 'guest'} ({move['vmid']})",
        move["from"],
        move["to"],
        how_of(move, ", ha"),
        f"{size_of(move) / GIB:.1f}",
        ",".join(map(str, move["after"])) or EMPTY,
        outcome,
        move["why"],
    )


def _node_row(name: str, node: Mapping[str, t.Any]) -> tuple[str, ...]:
    """Return the memory of a node, or its vCPUs if it is these that are rather full."""
    times = ("before", "peak", "after", "allocatable")
    if _fullness(node, "cores") > _fullness(node, "memory"):
        return (name, *(f"{node[when]['cores']:g}" for when in times), "vCPUs")
    return (name, *(f"{node[when]['memory'] / GIB:.1f}" for when in times), "GiB of memory")


def _fullness(node: Mapping[str, t.Any], what: str) -> float:
    """Return the share of what a node may allocate that is allocated at the peak."""
    return float(node["peak"][what] / max(node["allocatable"][what], 1e-9))


class FilterModule:
    """The filters by their names."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        return {"moves_table": moves_table}
