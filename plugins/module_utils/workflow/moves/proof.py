# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Has a solver prove that no plan needs fewer moves, or that there is no plan.

The solver HiGHS (the Python package highspy) runs in a separate process with a time limit: it shares no memory with
this one, and it can be terminated.
"""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace

from ...engine.cache import ClusterState
from ...engine.planner.exact_model import Program
from ...engine.planner.planner import problem
from ...engine.profiles import Profile
from ...errors import MissingLibrary
from ...plans import Goals, Mobility, Plan

SECONDS = 10.0
"""The default time limit of the solver in seconds."""

ROUNDED = 1e-6
"""How far a result of the solver may be from a whole number."""

_GRACE = 5.0
"""Seconds that the process may take in addition to the solver, as it has to start."""

_SOLVE = """
import json, sys
import highspy
data = json.load(sys.stdin)
solver = highspy.Highs()
solver.setOptionValue("output_flag", False)
solver.setOptionValue("threads", 1)
solver.setOptionValue("time_limit", data["seconds"])
# All costs are whole numbers: less than one apart is equal.
solver.setOptionValue("mip_abs_gap", 0.99)
solver.setOptionValue("mip_rel_gap", 0.0)
for upper, cost in zip(data["upper"], data["cost"]):
    column = solver.getNumCol()
    solver.addVar(0.0, upper)
    solver.changeColCost(column, cost)
    solver.changeColIntegrality(column, highspy.HighsVarType.kInteger)
infinite = highspy.kHighsInf
for lowest, highest, columns, factors in data["rows"]:
    lowest = -infinite if lowest is None else lowest
    highest = infinite if highest is None else highest
    solver.addRow(lowest, highest, len(columns), columns, factors)
solver.run()
status = solver.getModelStatus()
told = {highspy.HighsModelStatus.kOptimal: "optimal", highspy.HighsModelStatus.kInfeasible: "infeasible"}
bound = solver.getInfo().mip_dual_bound
print(json.dumps({"status": told.get(status, "unknown"), "bound": bound if abs(bound) < infinite else None}))
"""


def add_proof(
    plan: Plan,
    state: ClusterState,
    profiles: Mapping[str, Profile],
    goals: Goals,
    mobility: Mapping[int, Mobility],
    default_profile: str = "balanced",
    seconds: float = SECONDS,
) -> Plan:
    """Return the plan with what was proved of it: optimal, moves_lower_bound and impossible.

    The other arguments are those that the plan was made of. seconds limits the solver. Raises MissingLibrary when
    highspy is not installed.
    """
    status, bound = solve(problem(state, profiles, goals, mobility, default_profile), seconds)
    moves = sum(1 + len(move.together) for move in plan.moves)
    if status == "infeasible":
        return replace(plan, optimal=False, impossible=True)
    if bound is None:
        return replace(plan, optimal=False, impossible=False)
    return replace(plan, optimal=plan.feasible and moves <= bound, moves_lower_bound=bound, impossible=False)


def solve(program: Program, seconds: float) -> tuple[str, int | None]:
    """Return C(optimal), C(infeasible) or C(unknown), and the fewest moves that any solution has, as far as that was
    found.

    Raises MissingLibrary.
    """
    if importlib.util.find_spec("highspy") is None:
        raise MissingLibrary(
            f"the Python package highspy, which proves plans, is not installed for {sys.executable}",
            package="highspy",
            interpreter=sys.executable,
        )
    if not program.upper:
        return "optimal", 0
    rows = [
        (None if low == float("-inf") else low, None if high == float("inf") else high, list(row), list(row.values()))
        for low, high, row in program.rows
    ]
    data = {"upper": program.upper, "cost": program.cost, "rows": rows, "seconds": seconds}
    try:
        # No module is there whose run_command could do it, and it does not end a program after a time.
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            [sys.executable, "-c", _SOLVE],
            input=json.dumps(data),
            capture_output=True,
            text=True,
            timeout=seconds + _GRACE,
            check=True,
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return "unknown", None
    found = json.loads(done.stdout)
    bound = found["bound"]
    return found["status"], None if bound is None else max(0, math.ceil(bound - ROUNDED))
