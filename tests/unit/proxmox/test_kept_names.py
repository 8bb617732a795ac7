# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names that the inventory plugin has read are kept for an hour, and believed only where they are about this guest."""

from __future__ import annotations

import json
import typing as t
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Guest, Node, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.kept_names import KeptNames

GIB = 1024**3
NODES = (Node("pve1", cores=8, memory=GIB), Node("pve2", cores=8, memory=GIB))
DEAD = (NODES[0], replace(NODES[1], online=False))
THERE = Guest(110, "mail", "pve1", status="running")
LOST = (Guest(101, "db", "pve2"), Guest(102, "web", "pve2"))
NAMED = Snapshot(nodes=NODES, guests=(*LOST, THERE))
SILENT = Snapshot(nodes=DEAD, guests=(*(replace(guest, name=None, status="unknown") for guest in LOST), THERE))


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def names(folder: Path, host: str = "192.0.2.1", clock: t.Callable[[], float] | None = None) -> KeptNames:
    return KeptNames(folder / "names", (host, 8006), clock or Clock())


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    names(tmp_path).keep(NAMED)
    return tmp_path


def test_names__are_those_of_the_guests_that_are_asked_for(kept: Path) -> None:
    assert names(kept).recall(SILENT, {101, 103}) == {101: "db"}
    (path,) = (kept / "names").iterdir()
    assert (path.stat().st_mode | path.parent.stat().st_mode) & 0o077 == 0


def test_names__are_known_although_no_other_guest_shows_one(tmp_path: Path) -> None:
    names(tmp_path).keep(replace(NAMED, guests=LOST))
    assert names(tmp_path).recall(replace(SILENT, guests=SILENT.guests[:2]), {101}) == {101: "db"}


@pytest.mark.parametrize(
    "other",
    [
        replace(SILENT, nodes=DEAD[1:]),
        replace(SILENT, nodes=NODES),
        replace(SILENT, guests=(Guest(101, None, "pve1"), Guest(103, None, "pve2"), THERE)),
        # Another cluster with nodes of the same names, behind the same address.
        replace(SILENT, guests=(*SILENT.guests[:2], replace(THERE, name="shop"))),
        replace(SILENT, guests=SILENT.guests[:2]),
    ],
)
def test_names__of_another_cluster_or_guest_are_not_known(kept: Path, other: Snapshot) -> None:
    assert names(kept).recall(other, {101, 102, 103}) == {}


def test_name_of_a_guest__is_not_that_of_a_new_one_with_its_vmid(tmp_path: Path) -> None:
    there = (THERE, Guest(111, "wiki", "pve1", status="running"))
    names(tmp_path).keep(replace(NAMED, guests=(*LOST, *there, Guest(112, "old", "pve1"))))
    new = Guest(112, None, "pve1", status="running")
    assert names(tmp_path).recall(replace(SILENT, guests=(*SILENT.guests, there[1], new)), {101, 112}) == {101: "db"}


def test_names__behind_another_address_are_not_known(kept: Path) -> None:
    assert names(kept, "192.0.2.2").recall(SILENT, {101}) == {}


def test_names__are_known_for_an_hour_or_as_long_as_they_are_kept_again(kept: Path) -> None:
    clock = Clock()
    for clock.now in (4599.0, 8198.0):
        found = names(kept, clock=clock).recall(SILENT, {101, 102})
        assert found == {101: "db", 102: "web"}
        names(kept, clock=clock).keep(
            replace(SILENT, guests=tuple(replace(g, name=found.get(g.vmid, g.name)) for g in SILENT.guests))
        )
    for clock.now in (8198.0 + 3600, 8197.0):
        assert names(kept, clock=clock).recall(SILENT, {101}) == {}


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", "null", "[" * 100_000, json.dumps({"nodes": ["pve1", "pve2"], "guests": []}), "\udcff"]
    + [
        json.dumps({"nodes": ["pve1", "pve2"], "guests": {"101": row, "110": {"name": "mail"}}})
        for row in (None, 7, ["db"], {"name": "db", "node": "pve2"}, {"name": 7, "node": "pve2", "at": 1000.0},
                    {"name": "db", "node": "pve2", "at": True}, {"name": "db", "node": "pve2", "at": "1000"})
    ],
)  # fmt: skip
def test_names__in_a_damaged_file_are_not_known(kept: Path, content: str) -> None:
    (path,) = (kept / "names").iterdir()
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert names(kept).recall(SILENT, {101}) == {}


def test_names__are_not_kept_without_a_place_for_them(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("a file")
    names(tmp_path).keep(NAMED)
    KeptNames(None, ("192.0.2.1", 8006)).keep(NAMED)
    assert names(tmp_path).recall(SILENT, {101}) == {}
