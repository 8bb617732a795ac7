# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shuts a whole cluster down, and starts it again as it was.

What ran and what is set is in a record on the cluster before anything is done. So a run that is killed, or fails, can
be repeated, and the other direction undoes it at any moment.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ...errors import ApiError, ConnectionFailed
from ...proxmox.api.session import Session
from ...proxmox.tasks import Poller
from ..stopping import Stop
from .cluster_off import ClusterShutdown
from .cluster_on import Start
from .cluster_options import OFF, ClusterOptions
from .cluster_work import Warn

PAUSE = 5.0
"""Seconds between two tries to reach a cluster that is starting."""


def switch_cluster(params: Mapping[str, t.Any], *, check_mode: bool, warn: Warn) -> dict[str, t.Any]:
    """Do what a task says, and return the module's result.

    Raises RunFailed with the result if the cluster must not be shut down, or was so only in part, and what the API
    answers.
    """
    options, stop = ClusterOptions.of(params), Stop()
    starts = params["state"] != OFF
    session = _connect(params, stop, options.wait if starts and not check_mode else 0.0)
    try:
        work = Start(session, stop, options, warn) if starts else ClusterShutdown(session, stop, options, warn)
        return work.run(check_mode)
    finally:
        session.close()


def _connect(params: Mapping[str, t.Any], stop: Stop, patience: float) -> Session:
    """Connect, and wait for a node that is starting."""
    poller = Poller(sleep=stop.sleep)
    deadline = poller.clock() + patience
    while True:
        session: Session | None = None
        try:
            session = Session.connect(params, before_write=stop.check)
            session.get("/version")
            return session
        except (ApiError, ConnectionFailed):
            if session is not None:
                session.close()
            if poller.clock() >= deadline:
                raise
        poller.sleep(PAUSE)
