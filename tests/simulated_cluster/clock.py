# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proxmox seconds: the scaled time in which tasks run, statistics lag and refusals are slow."""

from __future__ import annotations

import asyncio
import time


class Clock:
    """Turns Proxmox seconds into real ones: one Proxmox second takes ``scale`` real seconds; 0 means no waiting."""

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self._epoch = time.time()
        self._started = self._machine_time()
        self._skipped = 0.0

    @property
    def instant(self) -> bool:
        return self.scale <= 0

    def now(self) -> float:
        """Seconds since the epoch in simulated time."""
        elapsed = self._machine_time() - self._started
        return self._epoch + self._skipped + (elapsed if self.instant else elapsed / self.scale)

    def _machine_time(self) -> float:
        return time.monotonic()

    def skip(self, seconds: float) -> None:
        """Jump ahead; what sleeps already keeps sleeping its own time."""
        self._skipped += seconds

    async def sleep(self, seconds: float) -> None:
        real = seconds * self.scale
        if real > 0:
            await asyncio.sleep(real)
