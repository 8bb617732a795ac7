# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows moves by the HA manager.

The task of such a move only passes the request to the manager; the result shows in the list of the cluster's resources.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ...errors import ApiError, ConnectionFailed, TaskFailed, TaskTimeout
from ...plans import Move
from ..api.session import Session
from ..inventory.freshness import HA_BEGINS_WITHIN, HA_MOVING
from ..inventory.rows import Row
from ..tasks import WORKERS, TaskFollower, latest_task

SURE_AFTER = 3.0
"""Seconds for which a guest must not be shown as moving: rows of the cluster's list are up to two seconds old."""


class HAMoves:
    """Waits for guests that the HA manager moves. May be used from many threads."""

    def __init__(self, session: Session, tasks: TaskFollower) -> None:
        self._session = session
        self._tasks = tasks
        self._poller = tasks.poller

    def follow(self, move: Move, since: float | None, again: Callable[[], None]) -> None:
        """Return when the guest, and those that the manager moves along with it, have arrived on the target.

        since is the server's time at which the move was requested. again requests the move once more: the manager drops
        requests for a new resource that it does not manage yet.

        Raises:
            TaskFailed: the manager did not begin the move, or it failed; C(log) in the details is the migration's.
            TaskTimeout: the move still runs after the time limit of a task.
        """
        watch = _MoveWatch(self._session, move, self._poller.clock)
        outcome = self._poller.until(watch.look, self._tasks.timeout)
        if outcome == "ignored":
            again()
            watch.begin()
            outcome = self._poller.until(watch.look, self._tasks.timeout)
        if outcome is None:
            text = f"the HA manager has not moved {move.vmid} to {move.target} within {self._tasks.timeout:g} s"
            raise TaskTimeout(text, node=move.source)
        if outcome == "ignored":
            text = (
                f"the HA manager accepted the move twice and did not begin it within {2 * HA_BEGINS_WITHIN:g} s: is "
                f"{move.target} in maintenance or offline, or HA disarmed?"
            )
            raise TaskFailed(text, node=move.source, log=[])
        if outcome == "failed":
            raise self._failure(move, since)

    def _failure(self, move: Move, since: float | None) -> TaskFailed:
        # The task of the request has ended with OK; the one of the migration, on the source, knows the cause.
        upid = latest_task(self._session, move.source, move.vmid, WORKERS, since or 0.0)
        log = self._tasks.log_tail(upid) if upid else ()
        text = f"the HA manager moved {move.vmid} back, or could not move it to {move.target}"
        return TaskFailed(text, upid=upid, node=move.source, log=list(log))


class _MoveWatch:
    """One move by the HA manager, and what the looks at the cluster have shown of it so far."""

    def __init__(self, session: Session, move: Move, clock: Callable[[], float]) -> None:
        self._session = session
        self._move = move
        self._clock = clock
        self._seen = False
        self.begin()

    def begin(self) -> None:
        """Give the manager its time once more: it begins a move only after some seconds."""
        self._began = self._clock()
        self._resting_since: float | None = None

    def look(self) -> str | None:
        """Return how the move ended: C(arrived), C(failed) or C(ignored); None as long as that is open."""
        try:
            rows, offline = self._rows((self._move.vmid, *self._move.together))
        except (ApiError, ConnectionFailed):
            return None
        if any(row.get("node") in offline for row in rows.values()):
            # The manager keeps the request until the node is back, or starts the guest elsewhere.
            self.begin()
            return None
        if self._move.vmid not in rows or any(row.get("hastate") in HA_MOVING for row in rows.values()):
            self._seen, self._resting_since = True, None
            return None
        # The node changes before the move is over: hastate stays at migrate up to ten seconds longer.
        if all(row.get("node") == self._move.target for row in rows.values()):
            return "arrived"
        now = self._clock()
        self._resting_since = now if self._resting_since is None else self._resting_since
        if self._seen and now - self._resting_since >= SURE_AFTER:
            return "failed"
        # The manager says nothing of a request that it drops, for example because the target is in maintenance.
        return "ignored" if not self._seen and now - self._began >= HA_BEGINS_WITHIN else None

    def _rows(self, vmids: Collection[int]) -> tuple[dict[int, Row], frozenset[str]]:
        """Return the rows of these guests by VMID, and the nodes that are offline."""
        rows = self._session.get("/cluster/resources")
        nodes = [row for row in rows if row.get("type") == "node"]
        offline = frozenset(str(row.get("node")) for row in nodes if row.get("status") == "offline")
        return {row["vmid"]: row for row in rows if row.get("vmid") in vmids}, offline
