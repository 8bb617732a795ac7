# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A qemu_schedule task, from its options to its result."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..engine.framework.profile import Profile
from ..errors import InvalidRequest
from ..model import Guest
from ..proxmox.snapshot import read_settled
from .access import Access
from .address_book import AddressBook
from .address_pools import parse_pools
from .checks import check_entries
from .clusters import clusters_of
from .counted import Series, expand, surplus_entries
from .device_options import device_attributes
from .entries import Entry, build_entries
from .guards import Guard
from .host_facts import check_host_vars
from .move_options import room_options
from .move_progress import move_progress
from .move_results import add_moves
from .multi_cluster import MultiClusterRun
from .node_facts import facts_of
from .placing import Placer
from .plugin_config import profiles_of
from .progress import Progress, ProgressFile
from .report import VMReport
from .result import RunFailed, failure_of, result_of
from .room import RoomMaker
from .run import Run

LEAST = {"decision_nodes": 0, "parallel_creates": 1, "timeout": 1, "wait_for_capacity": 0}
"""The smallest value of options that are numbers."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a task asks for, checked as far as that is possible without a cluster.

    Attributes:
        series: the entries that have a count.
    """

    entries: Sequence[Entry]
    series: Sequence[Series]
    profiles: Mapping[str, Profile]
    default_profile: str
    device_attributes: Mapping[str, Mapping[str, t.Any]]
    progress: Progress | None


class Done(t.NamedTuple):
    """A run, a report per VM, what the user should know besides, and who made room."""

    run: Run | MultiClusterRun
    reports: list[VMReport]
    cautions: list[str]
    room: RoomMaker | None = None


def schedule(
    params: Mapping[str, t.Any],
    per_vm: Iterable[str],
    *,
    check_mode: bool,
    warn: Callable[[str], None],
) -> dict[str, t.Any]:
    """Do what a qemu_schedule task says, and return the module's result.

    per_vm names the options of one VM; warn takes texts for the user.
    Raises RunFailed with the result when a VM failed, and other CollectionErrors when nothing was looked at.
    """
    _check_numbers(params)
    expanded = None if params.get("vms") is None else expand(params["vms"], params)
    if expanded is None:
        entries = build_entries(params, per_vm, time.time())
    else:
        entries = build_entries({**params, "vms": expanded.vms}, per_vm, time.time(), expanded.origins)
    for entry in entries:
        check_host_vars(entry)
    progress = ProgressFile(params["progress_file"]) if params.get("progress_file") else None
    profiles, profile = profiles_of(params)
    check_entries(entries, profiles, profile)
    attributes = device_attributes(params.get("device_attributes"))
    task = Task(entries, expanded.series if expanded else (), profiles, profile, attributes, progress)
    work = _on_clusters if params.get("clusters") is not None else _on_one
    run, reports, cautions, room = work(params, task, check_mode=check_mode)
    for text in (*cautions, *run.warnings, *(text for report in reports for text in report.warnings)):
        warn(text)
    result = result_of(reports, run.nodes, single=params.get("vms") is None, in_full=params["decision_nodes"])
    if room is not None and room.outcome is not None:
        add_moves(result, room.outcome, wrote=not check_mode)
    if any(report.error is not None for report in reports):
        message, code = failure_of(
            reports,
            all_or_nothing=params["all_or_nothing"],
            wrote=run.wrote or (room is not None and room.moved),
            interrupted=run.interrupted,
        )
        raise RunFailed(message, code, result)
    return result


def _on_one(params: Mapping[str, t.Any], task: Task, *, check_mode: bool) -> Done:
    options = room_options(params)
    access = Access.open(params, facts_of(params.get("nodes")))
    try:
        removals, cautions = _surplus(params, task, lambda: read_settled(access.reader, patience=0).guests)
        book = AddressBook(parse_pools(params["address_pools"]), access.reader)
        profiles, profile = task.profiles, task.default_profile
        placer = Placer(access, profiles, profile, task.device_attributes, book)
        room = RoomMaker(access, placer, profiles, profile, options, move_progress(params.get("progress_file")))
        run = Run(params, access, placer, [*task.entries, *removals], task.progress, room)
        reports = run.execute(check_mode=check_mode)
    finally:
        access.close()
    return Done(run, reports, [*cautions, *book.doubts], room)


def _on_clusters(params: Mapping[str, t.Any], task: Task, *, check_mode: bool) -> Done:
    clusters = clusters_of(params)
    run = MultiClusterRun(params, clusters, task.profiles, task.default_profile, task.device_attributes, task.progress)
    try:
        removals, cautions = _surplus(params, task, run.guests)
        reports = run.execute([*task.entries, *removals], check_mode=check_mode)
    finally:
        run.close()
    return Done(run, reports, cautions)


def _surplus(
    params: Mapping[str, t.Any], task: Task, read: Callable[[], Iterable[Guest]]
) -> tuple[list[Entry], list[str]]:
    """The entries that remove what larger counts left, and warnings. What read returns is needed for these only."""
    return surplus_entries(task.series, task.entries, read(), Guard.of(params)) if task.series else ([], [])


def _check_numbers(params: Mapping[str, t.Any]) -> None:
    for option, minimum in LEAST.items():
        if params[option] < minimum:
            raise InvalidRequest(f"{option}: {params[option]} is not possible, expected at least {minimum}")
