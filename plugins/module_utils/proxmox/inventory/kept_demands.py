# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests used, as runs on this host have read it within the last hour, so that each guest is read once an hour.

A file for each cluster, user and window has the curves by VMID, and nothing else. A file that is missing, damaged or of
another version is no error: the guests are read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import typing as t
from collections.abc import Iterable, Mapping
from pathlib import Path

from ...demand import MEASURED, Curve, Demand, Grid
from ...files import MIB, keep_json, recall_json
from ...model import Guest

VERSION = 1
FRESH = 3600.0
"""What was read is used again for less than so many seconds."""

LARGEST = 64 * MIB
MOST_GUESTS = 20_000
MOST_FILES = 100
"""The oldest files beyond these are removed."""

_TOO_MUCH = 2.0**63

Demands = Mapping[str, Demand]


class KeptDemands:
    """The demand of guests of one cluster, as one user may read it. Keeps nothing if folder is None."""

    def __init__(self, folder: Path | None, owner: str) -> None:
        """owner is the cluster and the user."""
        self._folder = folder
        self._owner = owner

    def recall(self, guests: Iterable[Guest], grid: Grid) -> dict[int, Demands]:
        """Return what is known of these guests, as curves on this grid. Slots that have ended since have the last known
        value.
        """
        stored = self._read(grid)
        found = {}
        for guest in guests:
            entry = stored.get(str(guest.vmid))
            demands = _demands_of(entry, guest, grid) if isinstance(entry, dict) else None
            if demands is not None:
                found[guest.vmid] = demands
        return found

    def keep(self, demands: Mapping[int, Demands], guests: Iterable[Guest], grid: Grid) -> None:
        """Store what was just read of guests."""
        if self._folder is None or not demands or grid.window <= FRESH:
            return
        names = {guest.vmid: guest.name for guest in guests}
        recent = {vmid: entry for vmid, entry in self._read(grid).items() if _age(entry, grid) is not None}
        for vmid, each in demands.items():
            curves = {resource: [_short(value) for value in demand.curve] for resource, demand in each.items()}
            recent[str(vmid)] = {"name": names.get(vmid), "end": grid.end, "curves": curves}
        newest = dict(list(recent.items())[-MOST_GUESTS:])
        with contextlib.suppress(OSError):
            _remove_oldest(self._folder)
        keep_json(self._path(self._folder, grid), {"version": VERSION, "guests": newest})

    def _read(self, grid: Grid) -> dict[str, t.Any]:
        """Return what earlier runs have stored for this window. What cannot be read counts as nothing."""
        if self._folder is None:
            return {}
        content = recall_json(self._path(self._folder, grid), LARGEST)
        guests = content.get("guests") if content.get("version") == VERSION else None
        return guests if isinstance(guests, dict) else {}

    def _path(self, folder: Path, grid: Grid) -> Path:
        key = hashlib.sha256(repr((self._owner, grid.slot, grid.count)).encode()).hexdigest()
        return folder / f"{key[:32]}.json"


NOTHING_KEPT = KeptDemands(None, "")


def _demands_of(entry: Mapping[str, t.Any], guest: Guest, grid: Grid) -> Demands | None:
    """Return what an entry says of a guest; None if it is about another guest, too old or damaged."""
    age, curves = _age(entry, grid), entry.get("curves")
    if age is None or entry.get("name") != guest.name or not isinstance(curves, dict):
        return None
    if not all(_is_curve(curve, grid.count) for curve in curves.values()):
        return None
    return {resource: Demand(MEASURED, _shift(curve, round(age / grid.slot))) for resource, curve in curves.items()}


def _age(entry: t.Any, grid: Grid) -> float | None:
    """Return by how many seconds a grid is later than that of an entry; None if that is too much, or no number of
    slots.
    """
    end = entry.get("end") if isinstance(entry, dict) else None
    if not _is_number(end):
        return None
    age = grid.end - end
    return age if 0 <= age < FRESH and age % grid.slot == 0 else None


def _is_curve(curve: t.Any, count: int) -> bool:
    return (
        isinstance(curve, list)
        and len(curve) == count
        and all(value is None or (_is_number(value) and value >= 0) for value in curve)
    )


def _is_number(value: t.Any) -> t.TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _TOO_MUCH


def _shift(curve: list[float | None], slots: int) -> Curve:
    return (*curve[slots:], *[curve[-1]] * slots)


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _remove_oldest(folder: Path) -> None:
    files = sorted(folder.glob("*.json"), key=os.path.getmtime)
    for path in files[:-MOST_FILES]:
        path.unlink()
