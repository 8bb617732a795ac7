# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""That a node has a bridge is kept for an hour, for the same cluster and user, and never believed when damaged."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Node
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.known_bridges import KnownBridges

NODES = (Node("a", online=True), Node("b", online=True), Node("c", online=False))


@dataclass
class Cluster:
    """Nodes with bridges, and the nodes that were asked; it is the reader and the clock, too."""

    has: dict[str, list[str]] = field(default_factory=lambda: {"a": ["vmbr0"], "b": ["vmbr0"]})
    now: float = 1000.0
    asked: list[str] = field(default_factory=list)

    def get(self, path: str, params: t.Any = None, /, **more: t.Any) -> t.Any:
        node = path.split("/")[2]
        self.asked.append(node)
        return [{"iface": bridge} for bridge in self.has[node]]

    def server_time(self) -> float | None:
        return None

    def known(self, folder: Path | None, owner: str = "cluster op@pve") -> KnownBridges:
        """What a new run knows."""
        self.asked.clear()
        return KnownBridges(self, folder, owner, lambda: self.now)

    def seen(self, known: KnownBridges, *wanted: str, of_all: bool = False) -> list[frozenset[str] | None]:
        return [node.bridges for node in known.add_to(NODES, set(wanted), of_all=of_all)]


VMBR0 = frozenset({"vmbr0"})


@pytest.mark.parametrize(("seconds", "asked"), [(3599, []), (3600, ["a"]), (-1, ["a"])])
def test_within_the_hour__it_is_known(tmp_path: Path, seconds: float, asked: list[str]) -> None:
    cluster = Cluster()
    assert cluster.seen(cluster.known(tmp_path / "usage"), "vmbr0") == [None, None, None]
    assert cluster.asked == []
    assert cluster.known(tmp_path / "usage").read_for(NODES[:1], {"vmbr0"}) == {"a": VMBR0}
    cluster.now += seconds
    known = cluster.known(tmp_path / "usage")
    assert known.read_for(NODES[:1], {"vmbr0"}) == {"a": VMBR0}
    assert cluster.asked == asked
    (path,) = (tmp_path / "usage").iterdir()
    assert path.stat().st_mode & 0o077 == 0


def test_of_all__the_unknown_ones_that_are_online_are_read_once(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.known(tmp_path).read_for(NODES[:1], {"vmbr0"})
    known = cluster.known(tmp_path)
    for _ in range(2):
        assert cluster.seen(known, "vmbr0", of_all=True) == [VMBR0, VMBR0, None]
    assert cluster.asked == ["b"]


def test_bridge_that_was_not_there__is_looked_for_again_on_all(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.known(tmp_path).read_for(NODES[:1], {"vmbr9"})
    cluster.has["a"].append("vmbr9")
    known = cluster.known(tmp_path)
    assert known.read_for(NODES[:1], {"vmbr9"}) == {"a": {"vmbr0", "vmbr9"}}
    cluster.has["a"].remove("vmbr9")
    cluster.known(tmp_path).read(NODES)
    known = cluster.known(tmp_path)
    assert cluster.seen(known, "vmbr9") == [VMBR0, VMBR0, None]
    assert sorted(cluster.asked) == ["a", "b"]


@pytest.mark.parametrize("known_by", ["cluster other@pve", "other op@pve"])
def test_what_another_user_may_see__is_not_known(tmp_path: Path, known_by: str) -> None:
    cluster = Cluster()
    cluster.known(tmp_path, known_by).read(NODES)
    assert cluster.seen(cluster.known(tmp_path), "vmbr0") == [None, None, None]


def test_bridges_that_the_user_may_not_see__are_unknown_and_asked_for_again(tmp_path: Path) -> None:
    cluster = Cluster({"a": [], "b": []})
    for _ in range(2):
        known = cluster.known(tmp_path)
        assert known.read_for(NODES[:1], {"vmbr0"}) == {"a": None}
        assert known.read_for(NODES[:1], {"vmbr0"}) == {"a": None}
        assert cluster.asked == ["a"]


def test_forgetting__applies_to_this_run_and_the_next(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.known(tmp_path).read(NODES)
    known = cluster.known(tmp_path)
    known.forget()
    assert cluster.seen(known, "vmbr0") == [None, None, None]
    assert cluster.seen(cluster.known(tmp_path), "vmbr0") == [None, None, None]


@pytest.mark.parametrize(
    "row",
    [None, [], {}, {"at": "x", "bridges": []}, {"at": 1000.0, "bridges": "vmbr0"}, {"at": 1000.0, "bridges": [1]},
     {"at": float("nan"), "bridges": ["vmbr0"]}, {"at": 1e308, "bridges": ["vmbr0"]}],
)  # fmt: skip
def test_damaged_row__is_not_believed(tmp_path: Path, row: t.Any) -> None:
    cluster = Cluster()
    cluster.known(tmp_path).read(NODES)
    (path,) = tmp_path.iterdir()
    path.write_text(json.dumps({"a": row}), encoding="utf-8")
    assert cluster.known(tmp_path).read_for(NODES[:1], {"vmbr0"}) == {"a": VMBR0}
    assert cluster.asked == ["a"]


def test_without_a_folder__nothing_is_kept() -> None:
    cluster = Cluster()
    assert cluster.known(None).read_for(NODES[:1], {"vmbr0"}) == {"a": VMBR0}
    assert cluster.seen(cluster.known(None), "vmbr0") == [None, None, None]
