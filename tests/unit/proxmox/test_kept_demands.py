# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests used is kept for an hour, for the same guest, user and window, and never believed when it is damaged."""

from __future__ import annotations

import json
import typing as t
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.demand import CPU, MEASURED, Demand, Grid
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Guest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory import kept_demands
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.kept_demands import KeptDemands

GRID = Grid(7200.0, 1800.0, 4)
VM = Guest(101, "web", "pve1", status="running")
DEMANDS = {CPU: Demand(MEASURED, (1.0, None, 2.0, 3.0))}


def later(seconds: float) -> Grid:
    return replace(GRID, start=GRID.start + seconds)


@pytest.fixture
def kept(tmp_path: Path) -> KeptDemands:
    found = KeptDemands(tmp_path / "usage", "cluster op@pve")
    found.keep({101: DEMANDS}, [VM], GRID)
    return found


def test_within_the_hour__it_is_known_and_shifted(kept: KeptDemands, tmp_path: Path) -> None:
    assert kept.recall([VM], GRID) == {101: DEMANDS}
    assert kept.recall([VM], later(1800))[101][CPU].curve == (None, 2.0, 3.0, 3.0)
    (path,) = (tmp_path / "usage").iterdir()
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("guest", "grid", "owner"),
    [
        (VM, later(3600), None),
        (VM, later(-1800), None),
        (VM, later(900), None),
        (replace(VM, name="another"), GRID, None),
        (replace(VM, vmid=102), GRID, None),
        (VM, replace(GRID, count=2), None),
        (VM, GRID, "cluster other@pve"),
    ],
)
def test_anything_else__is_read_again(
    kept: KeptDemands, tmp_path: Path, guest: Guest, grid: Grid, owner: str | None
) -> None:
    found = KeptDemands(tmp_path / "usage", owner) if owner else kept

    assert found.recall([guest], grid) == {}


ENTRY: dict[str, t.Any] = {"name": "web", "end": GRID.end, "curves": {CPU: [1, 2, 3, 4]}}


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "null", '{"version": 1}', '{"version": 2, "guests": {}}', "\udcff", "[" * 100_000,
        *(
            json.dumps({"version": 1, "guests": guests})
            for guests in (
                [], {"101": None}, {"101": {}}, {"101": {**ENTRY, "end": "x"}}, {"101": {**ENTRY, "end": True}},
                {"101": {**ENTRY, "end": 10**400}},
                *({"101": {**ENTRY, "curves": curves}} for curves in (
                    None, [1], {CPU: 1}, {CPU: [1, 2]}, {CPU: [1, 2, 3, "x"]}, {CPU: [1, 2, 3, -1]},
                    {CPU: [1, 2, 3, float("nan")]}, {CPU: [1, 2, 3, float("inf")]}, {CPU: [True] * 4},
                )),
            )
        ),
    ],
)  # fmt: skip
def test_damaged_file__is_no_error_and_not_believed(kept: KeptDemands, tmp_path: Path, content: str) -> None:
    (path,) = (tmp_path / "usage").iterdir()
    path.write_text(content, encoding="utf-8", errors="surrogateescape")

    assert kept.recall([VM], GRID) == {}
    kept.keep({101: DEMANDS}, [VM], GRID)
    assert kept.recall([VM], GRID) == {101: DEMANDS}


def test_place_that_cannot_be_written__keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "usage").write_text("a file", encoding="utf-8")
    for folder in (None, tmp_path / "usage", tmp_path / "usage" / "below"):
        found = KeptDemands(folder, "cluster op@pve")
        found.keep({101: DEMANDS}, [VM], GRID)
        assert found.recall([VM], GRID) == {}


def test_old_guests_and_files__are_removed(kept: KeptDemands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_demands, "MOST_GUESTS", 2)
    monkeypatch.setattr(kept_demands, "MOST_FILES", 3)
    more = dict.fromkeys(range(201, 205), DEMANDS)
    kept.keep(more, [replace(VM, vmid=vmid) for vmid in more], later(1800))

    (path,) = (tmp_path / "usage").iterdir()
    assert json.loads(path.read_text(encoding="utf-8"))["guests"].keys() == {"203", "204"}
    for number in range(6):
        KeptDemands(tmp_path / "usage", f"user {number}").keep({101: DEMANDS}, [VM], GRID)
    assert len(list((tmp_path / "usage").iterdir())) <= 4
