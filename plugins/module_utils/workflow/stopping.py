# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ending a run before its time: nothing more is sent to Proxmox, and the run waits a moment for what is under way."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ..errors import Interrupted

GRACE = 5.0
"""Seconds for which what is under way is still followed. Containers are killed ten seconds after being told to end."""


SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""Those that ask a process to end: Ctrl-C, a job that is cancelled, a terminal that is closed."""


def leave_signals_alone() -> None:
    """To be called by every thread but the first, which alone acts on signals.

    One that the system hands to another thread would wait there until the first has something to do.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


class Stop:
    """Whether a run is to end. Threads share one."""

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
        """From now on nothing new is begun. Asked twice, it is no different."""
        if not self.asked:
            self._until = self._clock() + GRACE
            self._event.set()

    def check(self) -> None:
        """Raise Interrupted when the run is to end: to be called before anything is sent that writes."""
        if self.asked:
            raise Interrupted("interrupted before anything more was sent")

    def sleep(self, seconds: float) -> None:
        """Sleep between two looks at something. Raises Interrupted when the run is to end and its grace is over."""
        if not self._event.wait(seconds):
            return
        left = self._until - self._clock()
        if left <= 0:
            raise Interrupted("interrupted while it was under way")
        self._sleep(min(seconds, left))

    @contextlib.contextmanager
    def threads(self, count: int) -> Iterator[ThreadPoolExecutor]:
        """Threads that are through when the block ends. When it raises, the run is to end: what waits is dropped."""
        pool = ThreadPoolExecutor(count, initializer=leave_signals_alone)
        try:
            yield pool
        except BaseException:
            self.ask()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
