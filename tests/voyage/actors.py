# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Threads of controllers as greenlets, on a clock that only the scheduler moves.

Each actor runs until it waits for something: then the scheduler gets control back, and decides who is next. So a seed
decides the order of everything, and no real time passes.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Callable
from dataclasses import dataclass, field

from greenlet import getcurrent, greenlet


class Killed(BaseException):
    """The process of this thread is gone. What it still tries to do on its way out has no effect."""


@dataclass(eq=False)
class Process:
    """A process of which the threads are actors.

    Attributes:
        host: where it runs; processes of one host see whether the others live.
        clock_error: seconds by which its wall clock is ahead.
        frozen_until: it does nothing before this moment.
        interrupted: whether its main thread is to be interrupted at its next step.
        deaf: whether it ignores signals, as modules do after the first one.
        abandoned: whether the process that it works for has ended.
        actors: those of its threads that have not ended.
    """

    pid: int
    name: str
    host: str
    clock_error: float = 0.0
    frozen_until: float = 0.0
    killed: bool = False
    interrupted: bool = False
    deaf: bool = False
    abandoned: bool = False
    actors: list[Actor] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return not self.actors

    def interrupt(self) -> None:
        """Send it a signal."""
        if not self.deaf:
            self.interrupted = self.deaf = True


@dataclass(eq=False)
class Actor:
    """One thread of a process: ready tells whether what it waits for is there, wake is when it goes on anyway."""

    process: Process
    is_main: bool
    ready: Callable[[], bool] | None = None
    wake: float | None = None
    ended: bool = False


class Actors:
    """All actors, and the clock.

    Attributes:
        now: seconds since the epoch.
        current: the actor that runs; None while the scheduler does.
    """

    def __init__(self, now: float) -> None:
        self.now = now
        self.all: list[Actor] = []
        self.current: Actor | None = None
        self._scheduler = getcurrent()
        self._threads: dict[Actor, greenlet] = {}

    @property
    def thread(self) -> Actor:
        """The running actor."""
        if self.current is None:
            raise RuntimeError("no actor is running")
        return self.current

    @property
    def process(self) -> Process:
        """The process of the running actor."""
        return self.thread.process

    def spawn(self, process: Process, action: Callable[[], object]) -> Actor:
        """Begin a thread of a process. It runs when the scheduler chooses it."""
        actor = Actor(process, is_main=not process.actors)
        self._threads[actor] = greenlet(lambda: self._run(actor, action), parent=self._scheduler)
        self.all.append(actor)
        process.actors.append(actor)
        return actor

    def wait(self, ready: Callable[[], bool] | None = None, seconds: float | None = None) -> None:
        """Give control back until ready, or until so many seconds are over; without either, for a moment."""
        actor = self.current
        if actor is None:
            raise RuntimeError("only actors wait")
        if actor.process.killed:
            raise Killed
        if ready is not None and seconds is None and ready():
            return
        actor.ready = ready
        actor.wake = None if seconds is None else self.now + max(seconds, 0.0)
        self._scheduler.switch()
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
        first, now = math.inf, self.now
        for actor in self.all:
            frozen, wake = actor.process.frozen_until, actor.wake
            if frozen > now:
                first = min(first, frozen)
            elif wake is not None and now < wake < first:
                first = wake
        return None if first == math.inf else first

    def resume(self, actor: Actor) -> None:
        """Let an actor go on, and return when it waits. What it raises at its end is raised here."""
        self.current = actor
        try:
            self._threads[actor].switch()
        finally:
            self.current = None
            if actor.ended:
                self.all.remove(actor)
                actor.process.actors.remove(actor)
                del self._threads[actor]

    def _may_go_on(self, actor: Actor) -> bool:
        process, ready, wake = actor.process, actor.ready, actor.wake
        if process.killed:
            return True
        if process.frozen_until > self.now:
            return False
        if wake is not None and wake <= self.now:
            return True
        if ready is None:
            return wake is None or (actor.is_main and process.interrupted)
        return ready() or (actor.is_main and process.interrupted)

    def _run(self, actor: Actor, action: Callable[[], object]) -> None:
        try:
            if not actor.process.killed:
                action()
        except Killed:
            pass
        finally:
            actor.ended = True


def waiting(actors: Actors, ready: Callable[[], bool]) -> t.Any:
    """Wait until ready, in an actor; elsewhere it has to be so already."""
    if actors.current is not None:
        actors.wait(ready)
    elif not ready():
        raise RuntimeError("nobody else runs")
