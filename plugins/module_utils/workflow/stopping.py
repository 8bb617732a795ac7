# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ends a run early: nothing more is sent to Proxmox, and the run waits a moment for what is under way.

A run ends when it gets a signal to end, and when a process that it works for has ended.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
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

STARTED_BY = "QEMU_SCHEDULER_STARTED_BY"
"""The environment variable with the process ids of ansible-playbook and its worker, where a module runs on the same
machine. The action plugins set it.
"""

LOOK_EVERY = 0.5
"""Seconds between two looks at these processes."""


def leave_signals_alone() -> None:
    """Block these signals in a thread. Every thread but the first calls it; the first alone handles signals.

    A signal that the system delivers to another thread would wait there until the first thread has something to do.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


class Starters:
    """The processes that this one works for: its parent, and those of STARTED_BY.

    Nobody waits for the result once one of them has ended, and no signal says that it has: ansible-core starts workers
    in sessions of their own, which the end of a terminal does not reach, and a process that is killed forwards nothing.
    Linux can signal the death of the parent alone, but the parent of a module is a shell, which outlives the worker.
    """

    def __init__(self, pids: Iterator[int]) -> None:
        self._parent = os.getppid()
        self._others = [_Process(pid) for pid in pids if pid not in (self._parent, os.getpid())]

    @staticmethod
    def of_this_process() -> Starters:
        return _starters(os.getpid(), os.environ.get(STARTED_BY, ""))

    def have_ended(self) -> bool:
        """Whether at least one of them has ended."""
        return os.getppid() != self._parent or any(process.has_ended() for process in self._others)

    @contextlib.contextmanager
    def watch(self, number: signal.Signals) -> Iterator[None]:
        """Send this signal to the calling thread when they have ended, unless the block ends before."""
        done = threading.Event()
        caller = threading.get_ident()

        def watch() -> None:
            leave_signals_alone()
            while not done.wait(LOOK_EVERY):
                if self.have_ended():
                    signal.pthread_kill(caller, number)
                    return

        thread = threading.Thread(target=watch, name="look at the parent processes", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@functools.cache
def _starters(_pid: int, started_by: str) -> Starters:
    """One object per process: it opens files. A worker inherits that of the process that it is a fork of."""
    return Starters(int(pid) for pid in started_by.split() if pid.isdecimal())


class _Process:
    """Another process. It is recognized even if the system gives its id to another one, where the system allows it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._handle: int | None = None
        self._never_was = False
        try:
            # Linux 5.3 or later; a sandbox may forbid it.
            self._handle = os.pidfd_open(pid)
        except ProcessLookupError:
            self._never_was = True
        except (AttributeError, OSError):
            pass

    def has_ended(self) -> bool:
        if self._handle is None:
            return self._never_was or not _exists(self._pid)
        # Unlike its id, the handle also shows the end of a process that its parent has not waited for.
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(0))


def _exists(pid: int) -> bool:
    """Whether a process with this id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # It belongs to another user.
        return True
    return True


class Stop:
    """Tells the threads of a run whether it has to end."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        starters: Starters | None = None,
    ) -> None:
        """starters are those of this process, unless they are given."""
        self._clock = clock
        self._sleep = sleep
        self._starters = starters or Starters.of_this_process()
        self._event = threading.Event()
        self._until = 0.0

    def ask(self) -> None:
        """End the run: from now on nothing new is begun. May be called more than once."""
        if not self._event.is_set():
            self._until = self._clock() + GRACE
            self._event.set()

    def check(self) -> None:
        """Raise Interrupted if the run has to end, as it does when nobody waits for its result. Called before every
        write.
        """
        if self._starters.have_ended():
            self.ask()
        if self._event.is_set():
            raise Interrupted("interrupted before anything more was sent")

    def sleep(self, seconds: float) -> None:
        """Sleep between two polls. Raises Interrupted if the run has to end and its grace period is over."""
        if not self._event.wait(seconds):
            if self._starters.have_ended():
                self.ask()
            return
        left = self._until - self._clock()
        if left <= 0:
            raise Interrupted("interrupted while it was under way")
        self._sleep(min(seconds, left))

    @contextlib.contextmanager
    def threads(self, count: int) -> Iterator[ThreadPoolExecutor]:
        """Yield a pool whose threads end with the block. If the block raises, the run ends: waiting work is dropped."""
        pool = ThreadPoolExecutor(count, initializer=leave_signals_alone)
        try:
            yield pool
        except BaseException:
            self.ask()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
