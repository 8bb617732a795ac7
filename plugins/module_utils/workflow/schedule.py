# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A qemu_schedule task, from its options to its result."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Iterable, Mapping

from ..errors import InvalidRequest
from ..proxmox.snapshot import read_settled
from .access import Access
from .address_book import AddressBook
from .address_pools import parse_pools
from .checks import check_entries
from .counted import expand, surplus_entries
from .device_options import device_attributes
from .entries import build_entries
from .guards import Guard
from .host_facts import check_host_vars
from .move_options import room_options
from .move_progress import move_progress
from .move_results import add_moves
from .node_facts import facts_of
from .placing import Placer
from .plugin_config import profiles_of
from .progress import ProgressFile
from .result import RunFailed, failure_of, result_of
from .room import RoomMaker
from .run import Run

LEAST = {"decision_nodes": 0, "parallel_creates": 1, "timeout": 1, "wait_for_capacity": 0}
"""The smallest value of options that are numbers."""


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
    options = room_options(params)
    check_entries(entries, profiles, profile)
    attributes = device_attributes(params.get("device_attributes"))
    access = Access.open(params, facts_of(params.get("nodes")))
    cautions: list[str] = []
    try:
        if expanded is not None and expanded.series:
            guests = read_settled(access.reader, patience=0).guests
            removals, cautions = surplus_entries(expanded.series, entries, guests, Guard.of(params))
            entries = [*entries, *removals]
        book = AddressBook(parse_pools(params["address_pools"]), access.reader)
        placer = Placer(access, profiles, profile, attributes, book)
        room = RoomMaker(access, placer, profiles, profile, options, move_progress(params.get("progress_file")))
        run = Run(params, access, placer, entries, progress, room)
        reports = run.execute(check_mode=check_mode)
    finally:
        access.close()
    for text in (*cautions, *book.doubts, *run.warnings, *(text for report in reports for text in report.warnings)):
        warn(text)
    result = result_of(reports, run.nodes, single=params.get("vms") is None, in_full=params["decision_nodes"])
    if room.outcome is not None:
        add_moves(result, room.outcome, wrote=not check_mode)
    if any(report.error is not None for report in reports):
        message, code = failure_of(
            reports,
            all_or_nothing=params["all_or_nothing"],
            wrote=run.wrote or room.moved,
            interrupted=run.interrupted,
        )
        raise RunFailed(message, code, result)
    return result


def _check_numbers(params: Mapping[str, t.Any]) -> None:
    for option, minimum in LEAST.items():
        if params[option] < minimum:
            raise InvalidRequest(f"{option}: {params[option]} is not possible, expected at least {minimum}")
