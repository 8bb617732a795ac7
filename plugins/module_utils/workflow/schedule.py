# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A qemu_schedule task, from its options to its result."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache, partial

from ..errors import InvalidRequest
from ..files import write_json
from ..proxmox.inventory.snapshot import read_settled
from .access import Access
from .job import Job
from .options.entries import Entry
from .options.rules import facts_of
from .options.run_options import RunOptions
from .options.task import Task, surplus_entries
from .placing import FindSurplus, Placer
from .progress import Progress, ProgressFile
from .report import VMReport
from .result import RunFailed, failure_of, result_of, warnings_of
from .run import Run

if t.TYPE_CHECKING:
    from .applying import Approved
    from .clusters.multi_cluster import MultiClusterRun
    from .moves.room import RoomMaker


class FinishedRun(t.NamedTuple):
    """A finished run, its reports, warnings, the RoomMaker if guests had to move, and the plan if one was kept."""

    run: Run | MultiClusterRun
    reports: list[VMReport]
    cautions: list[str]
    room: RoomMaker | None = None
    plan: Mapping[str, t.Any] | None = None


def schedule(
    params: Mapping[str, t.Any],
    per_vm: Iterable[str],
    *,
    check_mode: bool,
    warn: Callable[[str], None],
) -> dict[str, t.Any]:
    """Run a qemu_schedule task and return the module's result.

    per_vm names the options of one VM; warn receives warnings for the user. Raises RunFailed with the result if a VM
    failed, and other CollectionErrors if the task failed before it looked at any VM.
    """
    options, task = RunOptions.of(params), Task.of(params, per_vm, time.time())
    for entry in task.entries:
        if entry.host_vars:
            _check_host_vars(entry)
    progress = None if options.progress_file is None else ProgressFile(options.progress_file)
    if params.get("clusters") is not None:
        from .clusters.connections import clusters_of
        from .clusters.multi_cluster import MultiClusterRun

        with closing(MultiClusterRun(options, clusters_of(params), task, progress)) as run:
            done = _run_on_clusters(run, task, check_mode=check_mode)
    else:
        approved = None if options.apply is None else _read_approved(options)
        with closing(Access.open(params, facts_of(params.get("nodes")))) as access:
            done = _run_on_one(access, task, options, approved, progress, check_mode=check_mode)
    for text in (*done.cautions, *done.run.warnings, *warnings_of(done.reports)):
        warn(text)
    return _result(done, options, check_mode=check_mode)


def _run_on_one(
    access: Access,
    task: Task,
    options: RunOptions,
    approved: Approved | None,
    progress: Progress | None,
    *,
    check_mode: bool,
) -> FinishedRun:
    """Run a task about one cluster."""
    read = cache(partial(read_settled, access.reader, patience=0))
    task, left_nodes = task.on_each_node(read)
    if approved is not None:
        task = replace(task, entries=approved.hold(task.entries, task.series), series=())
    placer = Placer(access, task, options.steps)
    plan: dict[str, t.Any] = {}

    def room_maker() -> RoomMaker:
        from .moves.room import RoomMaker

        return RoomMaker(access, placer, task.profiles, task.default_profile, options)

    def keep(jobs: Sequence[Job]) -> None:
        if approved is not None:
            plan.update(approved.document)
        else:
            plan.update(_keep_plan(jobs, access.identity(), run.room, options.plan_file))

    keeps = check_mode or approved is not None or options.plan_file is not None
    run = Run(
        options,
        access,
        placer,
        [Job(entry) for entry in task.entries],
        progress,
        room_maker,
        approved=approved,
        keep=keep if keeps else None,
        surplus=_surplus_of(task),
    )
    reports = run.execute(check_mode=check_mode)
    of_moves = () if run.room is None else run.room.warnings
    of_addresses = () if placer.addresses is None else placer.addresses.doubts
    return FinishedRun(run, reports, [*of_addresses, *of_moves, *left_nodes], run.room, plan)


def _run_on_clusters(run: MultiClusterRun, task: Task, *, check_mode: bool) -> FinishedRun:
    return FinishedRun(run, run.execute(task.entries, check_mode=check_mode, surplus=_surplus_of(task)), [])


def _surplus_of(task: Task) -> FindSurplus | None:
    return partial(surplus_entries, task.series, task.entries) if task.series else None


def _result(done: FinishedRun, options: RunOptions, *, check_mode: bool) -> dict[str, t.Any]:
    """Return the module's result. Raises RunFailed with it if a VM failed."""
    run, reports, _cautions, room, plan = done
    result = result_of(
        reports,
        run.nodes,
        single=not options.many and len(reports) == 1,
        in_full=options.decision_nodes,
        with_guests=options.node_guests,
    )
    result["check_mode"] = check_mode
    if room is not None:
        room.add_moves(result, wrote=not check_mode)
    if plan:
        result["vm_plan"] = plan
    if any(report.job.error is not None for report in reports):
        message, code = failure_of(
            reports,
            all_or_nothing=options.all_or_nothing,
            wrote=run.wrote or (room is not None and room.moved),
            interrupted=run.interrupted,
        )
        raise RunFailed(message, code, result)
    return result


def _read_approved(options: RunOptions) -> Approved:
    """Return the plan that is applied."""
    from .applying import Approved
    from .vm_plan import read_plan

    return Approved(read_plan(options.apply, "apply"))


def _keep_plan(jobs: Sequence[Job], cluster: str, room: RoomMaker | None, path: str | None) -> dict[str, t.Any]:
    """Return the plan as a document. Writes it to path if one is given."""
    from .vm_plan import document_of

    plan = document_of(jobs, cluster, None if room is None else room.outcome)
    if path is not None:
        write_json("plan_file", path, plan)
    return plan


def _check_host_vars(entry: Entry) -> None:
    """Raise InvalidRequest when a key of host_vars cannot be the name of a variable."""
    for key in entry.host_vars:
        if not str(key).isidentifier():
            expected = "an identifier of letters, digits and underscores"
            raise InvalidRequest(f"host_vars: {key!r} of {entry.label} is not a variable name, expected {expected}")
