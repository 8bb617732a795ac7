# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Threads of which one at a time runs, on a clock that only the scheduler moves.

Each actor is a thread that holds the baton until it waits for something: then the scheduler gets it back, and decides
who is next. So a seed decides the order of everything, and no real time passes.
"""

from __future__ import annotations

import threading
import typing as t
from collections.abc import Callable
from dataclasses import dataclass, field


class Killed(BaseException):
    """The process of this thread is gone. What it still tries to do on its way out has no effect."""


@dataclass(eq=False)
class Process:
    """A process of which the threads are actors.

    Attributes:
        host: where it runs; processes of one host see whether the others live.
        clock_error: seconds by which its wall clock is ahead.
        frozen_until: it does nothing before this moment.
    """

    pid: int
    name: str
    host: str
    clock_error: float = 0.0
    frozen_until: float = 0.0
    killed: bool = False
    interrupted: bool = False
    actors: list[Actor] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return all(actor.ended for actor in self.actors)


@dataclass(eq=False)
class Actor:
    """One thread of a process: ready tells whether what it waits for is there, wake is when it goes on anyway."""

    process: Process
    is_main: bool
    ready: Callable[[], bool] | None = None
    wake: float | None = None
    ended: bool = False
    go: threading.Lock = field(default_factory=threading.Lock)


class Actors:
    """All actors, and the clock. now is in seconds since the epoch."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.all: list[Actor] = []
        self._here = threading.local()
        self._baton = threading.Lock()
        self._baton.acquire()
        self.failure: BaseException | None = None

    @property
    def current(self) -> Actor | None:
        """The actor whose thread this is; None in the scheduler's own."""
        return getattr(self._here, "actor", None)

    @property
    def process(self) -> Process:
        """The process of the running actor."""
        if self.current is None:
            raise RuntimeError("this is not the thread of an actor")
        return self.current.process

    def spawn(self, process: Process, action: Callable[[], object]) -> Actor:
        """Begin a thread of a process. It runs when the scheduler chooses it."""
        actor = Actor(process, is_main=not process.actors)
        actor.go.acquire()
        self.all.append(actor)
        process.actors.append(actor)
        threading.Thread(target=self._run, args=(actor, action), daemon=True).start()
        return actor

    def wait(self, ready: Callable[[], bool] | None = None, seconds: float | None = None) -> None:
        """Give the baton back until ready, or until so many seconds are over; without either, for a moment."""
        actor = self.current
        if actor is None:
            raise RuntimeError("only actors wait")
        if actor.process.killed:
            raise Killed
        if ready is not None and seconds is None and ready():
            return
        actor.ready = ready
        actor.wake = None if seconds is None else self.now + max(seconds, 0.0)
        self._baton.release()
        actor.go.acquire()
        if actor.process.killed:
            raise Killed
        if actor.is_main and actor.process.interrupted:
            actor.process.interrupted = False
            raise KeyboardInterrupt

    def runnable(self) -> list[Actor]:
        """The actors that may go on now, in the order in which they began."""
        return [actor for actor in self.all if self._may_go_on(actor)]

    def next_time(self) -> float | None:
        """When the first of those that only wait for time goes on."""
        times = [
            max(actor.wake, actor.process.frozen_until)
            for actor in self.all
            if actor.wake is not None and not actor.ended
        ]
        frozen = [actor.process.frozen_until for actor in self.all if actor.process.frozen_until > self.now]
        return min((time for time in (*times, *frozen) if time > self.now), default=None)

    def resume(self, actor: Actor) -> None:
        """Hand an actor the baton, and return when it gives it back."""
        actor.go.release()
        self._baton.acquire()
        if actor.ended:
            self.all.remove(actor)
        if self.failure is not None:
            raise self.failure

    def _may_go_on(self, actor: Actor) -> bool:
        process = actor.process
        if process.killed:
            return True
        if process.frozen_until > self.now:
            return False
        if actor.ready is not None and actor.ready():
            return True
        if actor.is_main and process.interrupted:
            return True
        return (actor.wake is not None and actor.wake <= self.now) or (actor.ready is None and actor.wake is None)

    def _run(self, actor: Actor, action: Callable[[], object]) -> None:
        self._here.actor = actor
        actor.go.acquire()
        try:
            if not actor.process.killed:
                action()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the scheduler raises it
            self.failure = error
        actor.ended = True
        self._baton.release()


def waiting(actors: Actors, ready: Callable[[], bool]) -> t.Any:
    """Wait until ready, in an actor; elsewhere it has to be so already."""
    if actors.current is not None:
        actors.wait(ready)
    elif not ready():
        raise RuntimeError("nobody else runs")
