# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run knows of the nodes' bridges and VNets: what it has read, and what was read on this host within an hour.

Only one thing is kept for later runs: that a node has a bridge. A bridge that a node lacked is looked for again, as it
may have been added. A file that is missing or damaged is no error: the nodes are read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
import typing as t
from collections.abc import Callable, Iterable, Set
from dataclasses import replace
from pathlib import Path

from ...files import MIB, keep_json, recall_json
from ...model import Node
from ..api.reader import Reader
from .nodes import with_bridges

LASTS = 3600.0
LARGEST = 16 * MIB


class KnownBridges:
    """The bridges of the nodes of one cluster, as one user sees them: None if a node was not read or did not answer, or
    the user sees none of its bridges. Keeps nothing if folder is None.
    """

    def __init__(
        self, reader: Reader, folder: Path | None, owner: str, clock: Callable[[], float] = time.time
    ) -> None:
        """owner is the cluster and the user."""
        key = hashlib.sha256(owner.encode()).hexdigest()
        self._reader = reader
        self._path = None if folder is None else folder / f"bridges-{key[:32]}.json"
        self._clock = clock
        self._read: dict[str, frozenset[str] | None] = {}
        self._kept = self._recall()

    def add_to(self, nodes: Iterable[Node], wanted: Set[str], *, of_all: bool) -> tuple[Node, ...]:
        """Return nodes with their bridges, as far as they are known. of_all: whether to read those of all online nodes.

        Where a node lacked one of those wanted, all are read, so that each decision about them knows every node.
        """
        nodes = tuple(nodes)
        lacking = any(node.online and wanted - self._kept.get(node.name, wanted) for node in nodes)
        if of_all or lacking:
            self.read(node for node in nodes if lacking or node.name not in self._kept)
        return tuple(replace(node, bridges=self._known(node)) for node in nodes)

    def read_for(self, nodes: Iterable[Node], wanted: Set[str]) -> dict[str, frozenset[str] | None]:
        """Return the bridges of nodes by name. One request for each that is not known to have those wanted."""
        nodes = tuple(nodes)
        self.read(node for node in nodes if not wanted <= self._kept.get(node.name, frozenset()))
        return {node.name: self._known(node) for node in nodes}

    def read(self, nodes: Iterable[Node]) -> None:
        """Read the bridges of nodes that are online, unless this run has read them for this snapshot."""
        due = [node for node in nodes if node.online and node.name not in self._read]
        if due:
            found = {node.name: node.bridges for node in with_bridges(self._reader, due)}
            self._read |= found
            self._keep({name: bridges for name, bridges in found.items() if bridges})

    def forget(self) -> None:
        """Forget what was kept: a VM could not be made or started, perhaps because a bridge is gone."""
        self._kept.clear()
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _known(self, node: Node) -> frozenset[str] | None:
        return self._read[node.name] if node.name in self._read else self._kept.get(node.name)

    def _recall(self) -> dict[str, frozenset[str]]:
        now = self._clock()
        return {name: frozenset(row["bridges"]) for name, row in self._stored().items() if _is_fresh(row, now)}

    def _stored(self) -> dict[str, t.Any]:
        return {} if self._path is None else recall_json(self._path, LARGEST)

    def _keep(self, found: dict[str, frozenset[str]]) -> None:
        if self._path is None or not found:
            return
        now = self._clock()
        fresh = {name: row for name, row in self._stored().items() if _is_fresh(row, now)}
        rows = {name: {"at": now, "bridges": sorted(bridges)} for name, bridges in found.items()}
        keep_json(self._path, {**fresh, **rows})


def _is_fresh(row: t.Any, now: float) -> bool:
    """Whether this is what was stored of a node within the last hour."""
    at, bridges = (row.get("at"), row.get("bridges")) if isinstance(row, dict) else (None, None)
    names = isinstance(bridges, list) and all(isinstance(name, str) for name in bridges)
    return names and isinstance(at, float) and 0 <= now - at < LASTS
