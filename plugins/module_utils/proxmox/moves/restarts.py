# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves running VMs that cannot move live: shuts them down, has them moved, and starts them again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ...errors import ApiError, CollectionError, MoveFailed, TaskFailed, TaskTimeout
from ...plans import OFFLINE, Move
from ..api.session import Session
from ..lifecycle import Lifecycle
from ..outcomes import cause_of
from ..tasks import Poller, TaskFollower

SHUTDOWN_SECONDS = 300
"""How long a VM gets to shut down. It is not switched off: one that does not react stays where it is, and runs."""

START_SECONDS = 120.0
"""For how long its start is tried."""


def move_off(
    session: Session,
    tasks: TaskFollower,
    move: Move,
    fence: Callable[[], None],
    migrate: Callable[[Move], tuple[str, ...]],
    subject: str,
) -> tuple[str, ...]:
    """Shut the VM of a move down, have it migrated, and start it again: on its source if it was not moved. Returns what
    migrate returns.

    fence is called before the shutdown; subject is what messages call the VM. Raises MoveFailed, and what fence and
    migrate raise.
    """
    fence()
    _shut_down(session, tasks, move, subject)
    try:
        told = migrate(replace(move, how=OFFLINE))
    except TaskTimeout as error:
        text = f"{error.message}; {subject} was shut down for it: start it afterwards"
        raise TaskTimeout(text, **error.details) from error
    except CollectionError as error:
        node = str(error.details.get("node") or move.source)
        why = _start(session, move, node)
        if why is None:
            raise
        text = f"{error.message}; {subject} was shut down for its move, and could not be started again: {why}"
        raise MoveFailed(text, **{"vmid": move.vmid, "cause": error.message, "node": node, **error.details}) from error
    why = _start(session, move, move.target)
    if why is not None:
        text = f"{subject} was moved from {move.source} to {move.target}, and could not be started there: {why}"
        raise MoveFailed(
            text, vmid=move.vmid, source=move.source, target=move.target, cause=why, node=move.target, left_behind=[]
        )
    return told


def _shut_down(session: Session, tasks: TaskFollower, move: Move, subject: str) -> None:
    """Shut down the VM that cannot move while it runs. Raises MoveFailed."""
    lifecycle = Lifecycle(session, tasks)
    guest = lifecycle.writer(move.vmid, move.identities[move.vmid])
    try:
        lifecycle.shutdown(move.source, guest, seconds=SHUTDOWN_SECONDS)
    except (ApiError, TaskFailed) as error:
        cause = f"it was not shut down: {_cause(error)}"
        text = f"{subject} could not be moved from {move.source} to {move.target}: {cause}"
        raise MoveFailed(
            text, vmid=move.vmid, source=move.source, target=move.target, cause=cause, node=move.source, left_behind=[]
        ) from error


def _start(session: Session, move: Move, node: str) -> str | None:
    """Start the VM, also when the run has to end: it ran before. Returns why it could not be started."""
    own = session.until(time.monotonic() + START_SECONDS)
    lifecycle = Lifecycle(own, TaskFollower(own, START_SECONDS, Poller()))
    guest = lifecycle.writer(move.vmid, replace(move.identities[move.vmid], node=node))
    try:
        lifecycle.start(node, guest)
    except CollectionError as error:
        return _cause(error)
    return None


def _cause(error: CollectionError) -> str:
    return cause_of(error.details.get("log", ())) or error.message
