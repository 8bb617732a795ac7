# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a plan that reaches the goals. The planner works on a copy of the cluster state and changes nothing.

It places what needs a node (guests of drained nodes, new VMs, guests whose node a rule forbids) largest first. The
profile's scores choose the nodes as long as no other guest has to move. Otherwise the search packs as tightly as it
can, because that moves the fewest guests.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...demand import ALLOCATED, PRESSURE, USED
from ...errors import CollectionError
from ...model import Guest
from ...plans import Balance, Bounds, Goals, Mobility, Plan, Stuck, UsedLoad
from ..cache import ClusterState
from ..framework.status import Category, Status
from ..profiles import Profile
from ..scheduling_cycle import Scheduler
from ..texts import of_one
from .attempts import Attempts, ItemToPlace
from .board import Board
from .calm import relieve
from .exact_model import Program, program
from .goals import balance, bring_back, broken_now, can_gain, consolidate, imbalance, load_of, repair
from .items import IMMOVABLE, Item, Part, guests_together, requests_together
from .writing import courses, loads, moves_of, order_legs, replay

NO_BOUNDS = Bounds()

NO_ORDER = "no order of the steps was found in which every filter agrees to each"
MOVE_OTHERS_FIRST = "move the guests that it has rules with first, and plan again"

MOST_EXTRA = 64
"""To place one item, the search moves at most this many guests that could stay. Its steps end it much earlier where
many small moves help nothing.
"""

REASONS_TOLD = 3
"""Of the reasons why a goal was not reached, this many are reported at most."""


def make_plan(
    state: ClusterState,
    profiles: Mapping[str, Profile],
    goals: Goals,
    mobility: Mapping[int, Mobility],
    bounds: Bounds = NO_BOUNDS,
    default_profile: str = "balanced",
    now: float = math.inf,
) -> Plan:
    """Make a plan that reaches the goals with as few moves as the search finds. It does not change state.

    mobility says how each guest can be moved; a guest without one is not moved. default_profile is that of guests, and
    of requests that name none. now is in seconds, on the clock of Request.created. Raises InvalidRequest and
    PluginFailed.
    """
    return _Planner(state, profiles, goals, mobility, bounds, default_profile, now).plan()


def problem(
    state: ClusterState,
    profiles: Mapping[str, Profile],
    goals: Goals,
    mobility: Mapping[int, Mobility],
    default_profile: str = "balanced",
) -> Program:
    """Return the exact model for placing the new VMs and draining the nodes. It ignores the other goals."""
    planner = _Planner(state, profiles, goals, mobility, NO_BOUNDS, default_profile, math.inf)
    return program(planner.board, [task.item for task in (*planner.drains(), *planner.creations())])


def broken_guests(
    state: ClusterState, profiles: Mapping[str, Profile], default_profile: str = "balanced"
) -> dict[int, Status]:
    """Return the guests that break a rule or a limit on their node, by VMID, each with the reason."""
    board = _Planner(state, profiles, Goals(), {}, NO_BOUNDS, default_profile, math.inf).board
    return {part.vmid: why for index, why in broken_now(board).items() for part in board.items[index].parts}


class _Planner:
    """Builds one plan."""

    def __init__(
        self,
        state: ClusterState,
        profiles: Mapping[str, Profile],
        goals: Goals,
        mobility: Mapping[int, Mobility],
        bounds: Bounds,
        default_profile: str,
        now: float,
    ) -> None:
        copy = ClusterState(replace(state.snapshot, guests=tuple(state.guests.values())))
        self.goals, self.bounds = goals, bounds
        self.scheduler = Scheduler(copy, profiles, default_profile)
        self.board = Board(self.scheduler, goals.drain, now, goals.prefer)
        self.placer = Attempts(self.board, bounds, self.rank_by_score)
        self.mobility = {guest.vmid: mobility.get(guest.vmid, IMMOVABLE) for guest in copy.guests.values()}
        self.stuck: list[Stuck] = []
        self.unplaced: dict[str, str] = {}
        self.notes: list[str] = []
        guests = dict(sorted(copy.guests.items()))
        for group in guests_together(guests, self.mobility, copy.snapshot.ha_rules):
            self.board.add_guests([guests.pop(vmid) for vmid in group], self.mobility)
        for guest in guests.values():
            self.board.add_guests([guest], self.mobility)
        self._before = loads(self.board)

    def plan(self) -> Plan:
        """Reach the goals one after the other. Each keeps what the earlier ones decided."""
        board, goals = self.board, self.goals
        closed = board.reach.closed
        broken = repair(board, self.placer) if goals.repair else {}
        for index, why in broken.items():
            told, cure = reasons(board, board.items[index])
            self._leave(board.items[index], f"{why}, and {told}", cure)
        due = [*self.drains(), *(self.creations() if goals.place else ())]
        for task in self.placer.place(due, MOST_EXTRA):
            self._give_up(task)
        unreturned = bring_back(board, self.placer, goals.undo) if goals.undo else {}
        for vmid, why in unreturned.items():
            self._leave(board.item_of[vmid], why, "see why that node does not take it")
        for vmid in goals.resting & board.item_of.keys():
            board.hold(board.item_of[vmid])
        used: Mapping[str, Mapping[str, UsedLoad]] = {}
        waits: Sequence[str] = ()
        if goals.balance is not None and goals.usage is not None:
            used, notes, waits = relieve(board, self.placer, goals.balance, goals.usage)
            self.notes.extend(notes)
        elif goals.balance is not None:
            balance(board, self.placer, goals.balance)
            self._explain_imbalance(goals.balance)
        if goals.consolidate:
            consolidate(board, self.placer)
        legs, refused = replay(board, self.scheduler, closed)
        for step, status in refused:
            self._leave(step.item, *_why_not_in_order(board, board.nodes[step.target].name, status))
        order_legs(board, legs, [(load.cores, load.memory) for load in self._before])
        moves, creations = moves_of(board, legs)
        return Plan(
            goal=describe_goals(goals),
            feasible=not (self.stuck or self.unplaced or self.notes),
            moves=moves,
            creations=creations,
            stuck=tuple(sorted(self.stuck, key=lambda stuck: stuck.vmid)),
            unplaced=self.unplaced,
            notes=tuple(self.notes),
            nodes=courses(board, legs, self._before),
            used=used,
            waits=tuple(waits),
            steps=self.placer.steps,
            exhausted=self.placer.exhausted,
        )

    def rank_by_score(self, item: Item, nodes: Sequence[int]) -> Sequence[int]:
        """Return the nodes ordered by the profile's scores, best first."""
        self.board.show_all()
        scores = self.scheduler.scores(item.parts[0].request, self.board.now)
        return sorted(nodes, key=lambda node: (-scores.get(self.board.nodes[node].name, -1.0), node))

    # --- what has to be placed ---

    def drains(self) -> Iterable[ItemToPlace]:
        """Yield the guests of drained nodes, and record those that cannot move as stuck."""
        for item in list(self.board.items):
            names = sorted(self.board.nodes[home].name for home in item.homes & self.board.reach.closed)
            if not names:
                continue
            if item.movable:
                yield ItemToPlace(item, f"drains {', '.join(names)}")
                continue
            for part in item.parts:
                due = part.guest is not None and part.guest.node in self.goals.drain
                if due and part.guest is not None and part.vmid not in self.goals.stays:
                    self._stays(part.guest, *self._what_holds(item, part))

    def _what_holds(self, item: Item, part: Part) -> tuple[str, str]:
        """Return why a part of an immovable item stays, and the remedy."""
        for each in (part, *item.parts):
            if each.mobility.stuck[0]:
                why, cure = each.mobility.stuck
                return (why, cure) if each is part else (f"it moves only with {each.vmid}: {why}", cure)
        node = part.guest.node if part.guest is not None else ""
        return f"{node} is offline", f"bring {node} back, or remove it from the cluster"

    def creations(self) -> Iterable[ItemToPlace]:
        """Yield the new VMs, each with its VMID. VMs that must share a node form one item."""
        requests = list(self.goals.place)
        vmids: list[int | None] = []
        for request in requests:
            try:
                vmids.append(self.scheduler.pick_vmid(request))
                self.board.state.taken.add(vmids[-1] or 0)
            except CollectionError as error:
                self.unplaced[request.name] = error.message
                vmids.append(None)
        groups = requests_together(requests)
        alone = set(range(len(requests))) - {position for group in groups for position in group}
        for group in sorted([*groups, *((position,) for position in alone)]):
            parts = [
                Part(vmid, requests[p], None, cores=requests[p].cores, memory=requests[p].memory)
                for p in group
                if (vmid := vmids[p]) is not None
            ]
            if len(parts) == len(group):
                yield ItemToPlace(self.board.add_new(parts), "")

    def _give_up(self, task: ItemToPlace) -> None:
        """Record why an item found no place."""
        item = task.item
        why, cure = reasons(self.board, item)
        if item.index in self.placer.bounded:
            why, cure = "the plan would exceed its bounds", "raise max_moves or max_transfer"
        elif self.placer.exhausted and cure == CURES[Category.CAPACITY]:
            cure = f"{cure}, or raise search_time"
        for part in item.parts:
            guest = part.guest
            if guest is None:
                self.unplaced[part.request.name] = why
            elif guest.node in self.goals.drain:
                self._stays(guest, why, cure)

    def _leave(self, item: Item, why: str, cure: str) -> None:
        """Record that an item stays although a goal wants it to leave its node."""
        for part in item.parts:
            if part.guest is None:
                self.unplaced[part.request.name] = why
            else:
                held = not item.movable
                self._stays(part.guest, *(self._what_holds(item, part) if held else (why, cure)))

    def _explain_imbalance(self, wanted: Balance) -> None:
        """Note why nodes stay further apart than the threshold, and what would help."""
        board, found = self.board, imbalance(self.board, wanted)
        if found is None:
            return
        full, empty = found
        name = board.nodes[full].name
        why: Counter[tuple[str, str]] = Counter()
        for item in board.on[full].values():
            held = next((part.mobility.stuck for part in item.parts if part.mobility.stuck[0]), None)
            if held is not None:
                why[held] += 1
            elif any(part.vmid in self.goals.resting for part in item.parts):
                why["it was moved within the cooldown", "wait, or lower cooldown"] += 1
            elif not can_gain(board, item, wanted):
                why["its move would gain less than the margin", "lower the margin"] += 1
            else:
                why[reasons(board, item)] += 1
        told = "; ".join(
            f"{count} guest(s): {reason} (cure: {cure})" for (reason, cure), count in why.most_common(REASONS_TOLD)
        )
        self.notes.append(
            f"{name} with a load of {load_of(board, full):.0%} and {board.nodes[empty].name} with "
            f"{load_of(board, empty):.0%} stay further apart than the threshold of {wanted.threshold:.0%}, as no move "
            f"from {name} helps: {told or 'it has no guests'}"
        )

    def _stays(self, guest: Guest, why: str, cure: str) -> None:
        if all(stuck.vmid != guest.vmid for stuck in self.stuck):
            self.stuck.append(Stuck(guest.vmid, guest.name or "", guest.node, why, cure))


def reasons(board: Board, item: Item) -> tuple[str, str]:
    """Return why no node takes the item at present, and the remedy."""
    rows, found, cures, takers = board.reach.rows(item), Counter[str](), Counter[str](), 0
    for info in board.nodes:
        if info.index in board.reach.closed or info.index in item.homes:
            continue
        status = rows.refusals.get(info.index)
        if info.name in item.not_to and info.node.is_open:
            found[item.not_to[info.name]] += 1
        else:
            status = status or board.refusal(item, info.index)
            if status is not None:
                found[status.reason] += 1
                cures[_cure(board, status) if info.node.is_open else BRING_BACK] += 1
            takers += status is None
    told = ", ".join(
        f"{count} node(s) {reason}" for reason, count in sorted(found.items(), key=lambda e: (-e[1], e[0]))
    )
    if not found and takers:
        return "no way was found to move it", "raise search_time"
    if not told:
        return "there is no other node", "drain fewer nodes at once" if len(board.nodes) > 1 else "stop it"
    particular = next((part.mobility.cure for part in item.parts if part.mobility.cure), "")
    return f"no node takes it: {told}", particular or (cures.most_common(1)[0][0] if cures else CURES[Category.RULE])


def _cure(board: Board, status: Status) -> str:
    return board.cures.get(status.plugin) or CURES[status.category]


def _why_not_in_order(board: Board, target: str, status: Status | None) -> tuple[str, str]:
    """Return why a step could not be put in order, and the remedy. status is the last refusal of its target."""
    if status is None:
        return f"{NO_ORDER}: {target} has no room for it before others have left", CURES[Category.CAPACITY]
    cure = MOVE_OTHERS_FIRST if status.category is Category.RULE else _cure(board, status)
    return f"{NO_ORDER}: {target} {of_one(status.text)}", cure


BRING_BACK = "bring the nodes back that are offline, in maintenance or drained"

CURES = {
    Category.CAPACITY: "free room on the other nodes, or stop it",
    Category.STORAGE: "free space on a storage of another node, or move its disks to a shared one",
    Category.DEVICE: "free a device of that kind on another node",
    Category.PLACEMENT: "let it run on more nodes",
    Category.RULE: "change the rule that keeps it off the other nodes",
}

BALANCE_BY = {ALLOCATED: "balance", USED: "balance by what is used", PRESSURE: "balance by pressure"}


def describe_goals(goals: Goals) -> str:
    """Return the goals in words, for the user."""
    parts = [f"place {len(goals.place)} VM(s)"] if goals.place else []
    parts += [f"drain {', '.join(sorted(goals.drain))}"] if goals.drain else []
    parts += ["repair"] if goals.repair else []
    parts += [BALANCE_BY[goals.balance.by]] if goals.balance is not None else []
    parts += ["consolidate"] if goals.consolidate else []
    parts += [f"bring guests back to {', '.join(sorted(set(goals.undo.values())))}"] if goals.undo else []
    return ", ".join(parts) or "nothing"
