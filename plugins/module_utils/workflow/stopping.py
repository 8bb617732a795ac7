# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ends a run early: nothing more is sent to Proxmox, and the run waits a moment for what is under way."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ..errors import Interrupted

GRACE = 5.0
"""Seconds for which running tasks are still followed. Containers are killed ten seconds after being told to end."""


SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""The signals that ask a process to end: Ctrl-C, a job that is cancelled, a terminal that is closed."""


def leave_signals_alone() -> None:
    """Block these signals in a thread. Every thread but the first calls it; the first alone handles signals.

    A signal that the system delivers to another thread would wait there until the first thread has something to do.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


class Stop:
    """Tells the threads of a run whether it has to end."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._event = threading.Event()
        self._until = 0.0

    @property
    def asked(self) -> bool:
        return self._event.is_set()

    def ask(self) -> None:
        """End the run: from now on nothing new is begun. May be called more than once."""
        if not self.asked:
            self._until = self._clock() + GRACE
            self._event.set()

    def check(self) -> None:
        """Raise Interrupted if the run has to end. Called before every write."""
        if self.asked:
            raise Interrupted("interrupted before anything more was sent")

    def sleep(self, seconds: float) -> None:
        """Sleep between two polls. Raises Interrupted if the run has to end and its grace period is over."""
        if not self._event.wait(seconds):
            return
        left = self._until - self._clock()
        if left <= 0:
            raise Interrupted("interrupted while it was under way")
        self._sleep(min(seconds, left))

    @contextlib.contextmanager
    def threads(self, count: int) -> Iterator[ThreadPoolExecutor]:
        """A pool whose threads end with the block. If the block raises, the run ends: waiting work is dropped."""
        pool = ThreadPoolExecutor(count, initializer=leave_signals_alone)
        try:
            yield pool
        except BaseException:
            self.ask()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
