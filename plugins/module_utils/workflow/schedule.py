# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A qemu_schedule task, from its options to its result."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from ..errors import InvalidRequest
from ..proxmox.inventory.snapshot import read_settled
from ..proxmox.options.values import check_range
from .access import Access
from .job import Job
from .options.common import search_steps
from .options.entries import Entry
from .options.rules import facts_of
from .options.task import Task
from .placing import Placer
from .progress import Progress, ProgressFile
from .report import VMReport
from .result import RunFailed, failure_of, result_of, warnings_of
from .run import Run

if t.TYPE_CHECKING:
    from .applying import Approved
    from .clusters.multi_cluster import MultiClusterRun
    from .moves.options import MoveOptions
    from .moves.room import RoomMaker

LEAST = {"decision_nodes": 0, "parallel_creates": 1, "timeout": 1, "wait_for_capacity": 0}
"""Minimum values of numeric options."""


class Done(t.NamedTuple):
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
    for option, least in LEAST.items():
        check_range(option, params[option], least)
    _check_shutdown_timeout(params["shutdown_timeout"], force=params["force"])
    if params["apply"] is not None:
        # A plan that is carried out only in part is a different plan.
        params = {**params, "all_or_nothing": True}
    task = Task.of(params, per_vm, time.time())
    for entry in task.entries:
        _check_host_vars(entry)
    work = _on_clusters if params.get("clusters") is not None else _on_one
    progress = ProgressFile(params["progress_file"]) if params.get("progress_file") else None
    run, reports, cautions, room, plan = work(params, task, progress, check_mode=check_mode)
    for text in (*cautions, *run.warnings, *warnings_of(reports)):
        warn(text)
    result = result_of(
        reports,
        run.nodes,
        single=params.get("vms") is None,
        in_full=params["decision_nodes"],
        with_guests=params["node_guests"],
    )
    result["check_mode"] = check_mode
    if room is not None:
        room.add_moves(result, wrote=not check_mode)
    if plan:
        result["vm_plan"] = plan
    if any(report.error is not None for report in reports):
        message, code = failure_of(
            reports,
            all_or_nothing=params["all_or_nothing"],
            wrote=run.wrote or (room is not None and room.moved),
            interrupted=run.interrupted,
        )
        raise RunFailed(message, code, result)
    return result


def _on_one(params: Mapping[str, t.Any], task: Task, progress: Progress | None, *, check_mode: bool) -> Done:
    options = _room_options(params)
    approved = _approved(params)
    if approved is not None:
        task = replace(task, entries=approved.held(task.entries, task.series), series=())
    plan: dict[str, t.Any] = {}
    access = Access.open(params, facts_of(params.get("nodes")))
    try:
        removals, cautions = task.surplus(lambda: read_settled(access.reader, patience=0).guests)
        profiles, profile = task.profiles, task.default_profile
        placer = Placer(access, profiles, profile, task.device_attributes, task.pools, search_steps(params))

        def room_maker() -> RoomMaker:
            from .moves.room import RoomMaker

            return RoomMaker(access, placer, profiles, profile, options, params.get("progress_file"))

        def keep(jobs: Sequence[Job]) -> None:
            file = params["plan_file"]
            if approved is not None:
                plan.update(approved.document)
            elif check_mode or file is not None:
                plan.update(_kept(jobs, access.identity(), run.room, file))

        entries = [*task.entries, *removals]
        run = Run(params, access, placer, entries, progress, room_maker, approved=approved, keep=keep)
        reports = run.execute(check_mode=check_mode)
    finally:
        access.close()
    return Done(run, reports, [*cautions, *placer.doubts], run.room, plan)


def _on_clusters(params: Mapping[str, t.Any], task: Task, progress: Progress | None, *, check_mode: bool) -> Done:
    from .clusters.connections import clusters_of
    from .clusters.multi_cluster import MultiClusterRun

    clusters = clusters_of(params)
    run = MultiClusterRun(params, clusters, task.profiles, task.default_profile, task.device_attributes, progress)
    try:
        removals, cautions = task.surplus(lambda: chain.from_iterable(run.guests().values()))
        reports = run.execute([*task.entries, *removals], check_mode=check_mode)
    finally:
        run.close()
    return Done(run, reports, cautions)


def _room_options(params: Mapping[str, t.Any]) -> MoveOptions | None:
    """What C(make_room) says; None when guests may not be moved."""
    if params.get("make_room") is None:
        return None
    from .moves.options import room_options

    return room_options(params)


def _approved(params: Mapping[str, t.Any]) -> Approved | None:
    if params["apply"] is None:
        return None
    from .applying import Approved
    from .vm_plan import read_plan

    return Approved(read_plan(params["apply"], "apply"))


def _kept(jobs: Sequence[Job], cluster: str, room: RoomMaker | None, path: str | None) -> dict[str, t.Any]:
    """Return the plan as a document. Writes it to path if one is given."""
    from ..files import write_json
    from .vm_plan import document_of

    plan = document_of(jobs, cluster, None if room is None else room.outcome)
    if path is not None:
        write_json("plan_file", path, plan)
    return plan


def _check_shutdown_timeout(seconds: int | None, *, force: bool) -> None:
    """Raise InvalidRequest unless these seconds can be given to a VM that is stopped with or without force."""
    if seconds is None:
        return
    check_range("shutdown_timeout", seconds, 0)
    if seconds == 0 and not force:
        raise InvalidRequest("shutdown_timeout: 0 stops a VM at once, expected force=true beside it, or more than 0")


def _check_host_vars(entry: Entry) -> None:
    """Raise InvalidRequest when a key of host_vars cannot be the name of a variable."""
    for key in entry.host_vars:
        if not str(key).isidentifier():
            expected = "an identifier of letters, digits and underscores"
            raise InvalidRequest(f"host_vars: {key!r} of {entry.label} is not a variable name, expected {expected}")
