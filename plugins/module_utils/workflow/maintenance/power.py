# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shuts guests of a node down, and starts them again. VMs and containers."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ...engine.texts import whole_number
from ...errors import TaskFailed, TaskTimeout
from ...foreign_text import visible
from ...model import Identity
from ...proxmox.api.reader import Reader, in_parallel
from ...proxmox.api.session import Session
from ...proxmox.identity import identity_of
from ...proxmox.moves.drain_marks import recognizes
from ...proxmox.options.kinds import STARTUP
from ...proxmox.tasks import Poller, TaskFollower
from ...proxmox.writes import GuestWriter

SHUTDOWN_SECONDS = 180
"""Seconds that Proxmox VE gives a guest to shut down, unless C(down) of its C(startup) says otherwise."""

STOPPED, RUNS = "stopped", "running"

MARGIN = 60.0
"""Seconds beyond the time to shut down within which the end of it must show: the HA manager acts every ten seconds."""


@dataclass(frozen=True, slots=True)
class Running:
    """A guest on a node. order, up and down are those of its option startup; down is None if it is not given."""

    vmid: int
    name: str
    kind: str
    node: str
    running: bool
    config: Mapping[str, t.Any]
    order: float = math.inf
    up: int = 0
    down: int | None = None

    @property
    def label(self) -> str:
        return f"{self.name or 'guest'} ({self.vmid})"

    @property
    def identity(self) -> Identity:
        return identity_of(self.config, self.node, self.kind)

    @property
    def path(self) -> str:
        return f"/nodes/{self.node}/{self.kind}/{self.vmid}"


def read_guests(reader: Reader, node: str) -> list[Running]:
    """Return the guests on a node as the node itself shows them, without templates. Two requests, and one per guest."""
    rows = [
        (kind, row)
        for kind in ("qemu", "lxc")
        for row in reader.get(f"/nodes/{node}/{kind}")
        if not row.get("template")
    ]
    paths = {int(row["vmid"]): f"/nodes/{node}/{kind}/{row['vmid']}/config" for kind, row in rows}
    configs = in_parallel(lambda vmid: reader.get(paths[vmid]), sorted(paths))
    found = []
    for kind, row in rows:
        vmid, config = int(row["vmid"]), configs[int(row["vmid"])]
        startup = STARTUP.read(str(config.get("startup", "")))
        numbers = {key: whole_number(startup.get(key, "")) for key in ("order", "up", "down")}
        order = math.inf if numbers["order"] is None else numbers["order"]
        runs = str(row.get("status")) == RUNS
        # Names with control characters must not come into messages.
        name = visible(str(row.get("name") or ""))
        found.append(Running(vmid, name, kind, node, runs, config, order, numbers["up"] or 0, numbers["down"]))
    return found


class GuestPower:
    """Shuts guests down and starts them. May be used from several threads."""

    def __init__(self, session: Session, tasks: TaskFollower, poller: Poller, timeout: float) -> None:
        self._session = session
        self._tasks = tasks
        self._poller = poller
        self._timeout = timeout

    def shut_down(self, guest: Running, seconds: int | None, *, force: bool) -> None:
        """Ask a guest to shut down, and wait until it is off. With force, it is stopped after that time.

        Raises TaskFailed if it still runs.
        """
        within = seconds or guest.down or SHUTDOWN_SECONDS
        try:
            self._writer(guest).command(guest.node, "shutdown", {"timeout": within, "forceStop": int(force)})
        except TaskFailed as error:
            if self._status(guest) != STOPPED:
                hint = "shut it down by hand, or set shutdown.force to stop it"
                raise TaskFailed(
                    f"{guest.label} on {guest.node} does not shut down within {within} s: {error.message}; {hint}",
                    **error.details,
                ) from error
        self._wait_for(guest, STOPPED, within + MARGIN)

    def start(self, guest: Running, mark: str) -> bool:
        """Start a guest if it is off, and is the one with this fingerprint. Returns whether it was started."""
        if guest.running or not recognizes(mark, guest.identity):
            return False
        self._writer(guest).command(guest.node, "start", {})
        self._wait_for(guest, RUNS, self._timeout)
        if guest.up:
            self._poller.sleep(float(guest.up))
        return True

    def _writer(self, guest: Running) -> GuestWriter:
        return GuestWriter(self._session, self._tasks, guest.vmid, guest.identity, digest=guest.config.get("digest"))

    def _status(self, guest: Running) -> str:
        return str(self._session.get(f"{guest.path}/status/current").get("status"))

    def _wait_for(self, guest: Running, status: str, seconds: float) -> None:
        """Wait until a guest has the status: the HA manager takes its time to do what the task has asked it for."""
        reached = self._poller.until(lambda: True if self._status(guest) == status else None, seconds)
        if not reached:
            raise TaskTimeout(f"{guest.label} on {guest.node} is not {status} after {seconds:g} s", node=guest.node)
