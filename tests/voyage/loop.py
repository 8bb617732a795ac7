# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An asyncio loop for the simulated cluster on the clock of the actors."""

from __future__ import annotations

import asyncio
import typing as t
from asyncio.base_events import BaseEventLoop

from .actors import Actors


class _Selector:
    """Stands for the network, of which there is none."""

    def select(self, _timeout: float | None) -> list[t.Any]:
        return []


class Loop(BaseEventLoop):
    """Runs what is due, and returns.

    Attributes:
        turns: how often there was something to run.
    """

    def __init__(self, actors: Actors) -> None:
        super().__init__()
        self._actors = actors
        self._selector = _Selector()
        # Seconds since the epoch have no nanoseconds as a float.
        self._clock_resolution = 1e-6
        self.turns = 0

    def time(self) -> float:
        return self._actors.now

    def settle(self) -> None:
        """Run everything that is due at this moment."""
        if not self._is_due():
            return
        self.turns += 1
        asyncio._set_running_loop(self)
        try:
            while self._is_due():
                self._run_once()  # type: ignore[attr-defined]
        finally:
            asyncio._set_running_loop(None)

    def _is_due(self) -> bool:
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return bool(self._ready) or bool(timers and timers[0].when() <= self._actors.now)  # type: ignore[attr-defined]

    def next_time(self) -> float | None:
        """When the next thing is due."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if timers and not timers[0].cancelled():
            return timers[0].when()
        return min((handle.when() for handle in timers if not handle.cancelled()), default=None)

    def _process_events(self, _events: list[t.Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def new_loop(actors: Actors) -> Loop:
    """Return a loop that is the present one."""
    loop = Loop(actors)
    asyncio.set_event_loop(loop)
    return loop
