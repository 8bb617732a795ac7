# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time, threads and processes as the collection knows them, made of actors.

They take the place of the modules and classes of Python in every module of the collection and of the simulated cluster.
"""

from __future__ import annotations

import collections
import concurrent.futures
import inspect
import os
import random
import secrets
import signal
import sys
import threading
import time
import types
import typing as t
from collections.abc import Callable, Iterable, Iterator

from .actors import Actor, Actors, Killed, Process, waiting


class Time:
    """In place of the module time."""

    CLOCK_MONOTONIC = time.CLOCK_MONOTONIC
    CLOCK_BOOTTIME = time.CLOCK_MONOTONIC

    def __init__(self, actors: Actors) -> None:
        self._actors = actors

    def time(self) -> float:
        actor = self._actors.current
        return self._actors.now + (actor.process.clock_error if actor is not None else 0.0)

    def monotonic(self) -> float:
        return self._actors.now

    def clock_gettime(self, _clock: int) -> float:
        return self._actors.now

    def perf_counter(self) -> float:
        return self._actors.now

    def sleep(self, seconds: float) -> None:
        self._actors.wait(seconds=seconds)

    def __getattr__(self, name: str) -> t.Any:
        return getattr(time, name)


class Future:
    """In place of concurrent.futures.Future."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self._done = False
        self._result: t.Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._done

    def set_result(self, result: t.Any) -> None:
        self._result, self._done = result, True

    def set_exception(self, error: BaseException) -> None:
        self._error, self._done = error, True

    def cancel(self) -> None:
        self.set_exception(concurrent.futures.CancelledError())

    def cancelled(self) -> bool:
        return isinstance(self._error, concurrent.futures.CancelledError)

    def exception(self) -> BaseException | None:
        waiting(self._actors, self.done)
        return self._error

    def result(self) -> t.Any:
        waiting(self._actors, self.done)
        if self._error is not None:
            raise self._error
        return self._result


class Pool:
    """In place of concurrent.futures.ThreadPoolExecutor."""

    def __init__(self, actors: Actors, max_workers: int) -> None:
        self._actors = actors
        self._most = max_workers
        self._queue: collections.deque[tuple[Future, Callable[..., t.Any], t.Any, t.Any]] = collections.deque()
        self._workers: list[Actor] = []

    def submit(self, function: Callable[..., t.Any], /, *args: t.Any, **kwargs: t.Any) -> Future:
        future = Future(self._actors)
        self._queue.append((future, function, args, kwargs))
        if sum(not worker.ended for worker in self._workers) < self._most:
            self._workers.append(self._actors.spawn(self._actors.process, self._work))
        return future

    def map(self, function: Callable[..., t.Any], *iterables: Iterable[t.Any]) -> Iterator[t.Any]:
        futures = [self.submit(function, *args) for args in zip(*iterables, strict=False)]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        while cancel_futures and self._queue:
            self._queue.popleft()[0].cancel()
        if wait:
            waiting(self._actors, lambda: all(worker.ended for worker in self._workers))

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()

    def _work(self) -> None:
        while self._queue:
            future, function, args, kwargs = self._queue.popleft()
            try:
                future.set_result(function(*args, **kwargs))
            except Killed:
                raise
            except BaseException as error:  # noqa: BLE001 - the future raises it
                future.set_exception(error)


class Event:
    """In place of threading.Event."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._actors.wait(self.is_set, timeout)
        return self._is_set


class Lock:
    """In place of threading.Lock and threading.RLock."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self._owner: Actor | None = None
        self._depth = 0

    def acquire(self) -> bool:
        actor = self._actors.current
        if self._depth and self._owner is not actor:
            waiting(self._actors, lambda: not self._depth)
        self._owner, self._depth = actor, self._depth + 1
        return True

    def release(self) -> None:
        self._depth = max(self._depth - 1, 0)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_error: object) -> None:
        self.release()


class Thread:
    """In place of threading.Thread."""

    def __init__(self, actors: Actors, target: Callable[[], object]) -> None:
        self._actors = actors
        self._target = target
        self._actor: Actor | None = None

    def start(self) -> None:
        self._actor = self._actors.spawn(self._actors.process, self._target)

    def join(self) -> None:
        waiting(self._actors, lambda: self._actor is None or self._actor.ended)


class Threading:
    """In place of the module threading."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors

    def Event(self) -> Event:
        return Event(self._actors)

    def Lock(self) -> Lock:
        return Lock(self._actors)

    RLock = Lock

    def Thread(self, target: Callable[[], object], **_options: t.Any) -> Thread:
        return Thread(self._actors, target)

    def __getattr__(self, name: str) -> t.Any:
        return getattr(threading, name)


class System:
    """In place of the module os, where processes are looked at."""

    def __init__(self, actors: Actors, processes: dict[int, Process]) -> None:
        self._actors = actors
        self._processes = processes

    def getpid(self) -> int:
        return self._actors.process.pid

    def kill(self, pid: int, _signal: int) -> None:
        if self._processes[pid].ended:
            raise ProcessLookupError

    def __getattr__(self, name: str) -> t.Any:
        return getattr(os, name)


class Starters:
    """In place of the processes that a run works for."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def have_ended(self) -> bool:
        return self._process.abandoned


class Signal:
    """In place of the module signal: a thread that leaves signals to the first one is that one here."""

    def pthread_sigmask(self, _how: int, _mask: object) -> None:
        """Block nothing."""

    def __getattr__(self, name: str) -> t.Any:
        return getattr(signal, name)


class Secrets:
    """In place of the module secrets: the same for a seed each time."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def token_hex(self, size: int) -> str:
        return self._rng.randbytes(size).hex()

    def __getattr__(self, name: str) -> t.Any:
        return getattr(secrets, name)


def as_completed(actors: Actors, futures: Iterable[Future]) -> Iterator[Future]:
    """In place of concurrent.futures.as_completed."""
    left = list(futures)
    while left:
        waiting(actors, lambda: any(future.done() for future in left))
        done = next(future for future in left if future.done())
        left.remove(done)
        yield done


class Waited(t.NamedTuple):
    """What concurrent.futures.wait returns, in an order that is always the same."""

    done: list[Future]
    not_done: list[Future]


def first_completed(actors: Actors, futures: Iterable[Future]) -> Waited:
    """In place of concurrent.futures.wait, until the first is done."""
    given = list(futures)
    waiting(actors, lambda: any(future.done() for future in given))
    return Waited([future for future in given if future.done()], [future for future in given if not future.done()])


class Stand:
    """What stands in for something of Python at the moment: each history has one of its own."""

    def __init__(self) -> None:
        self.values: dict[str, t.Any] = {}

    def of(self, name: str) -> t.Any:
        """Return what looks like a function or a class, and passes everything on."""
        return lambda *args, **kwargs: self.values[name](*args, **kwargs)


class Module:
    """What looks like a module, and is the substitute of the present history."""

    _substitute: t.Any = None

    def begin(self, substitute: t.Any) -> None:
        """Stand for the substitute of a new history."""
        vars(self).clear()
        self._substitute = substitute

    def __getattr__(self, name: str) -> t.Any:
        value = getattr(self._substitute, name)
        setattr(self, name, value)
        return value


STAND = Stand()
MODULES = (
    (time, Module()),
    (threading, Module()),
    (secrets, Module()),
    (signal, Module()),
)
DEFAULTS = (
    (time.time, lambda: STAND.values["time"].time()),
    (time.monotonic, lambda: STAND.values["time"].monotonic()),
    (time.sleep, lambda seconds: STAND.values["time"].sleep(seconds)),
)
FACTORIES = (
    (threading.Lock, lambda: STAND.values["threading"].Lock()),
    (threading.Event, lambda: STAND.values["threading"].Event()),
)
NAMES = (
    (concurrent.futures.ThreadPoolExecutor, STAND.of("pool")),
    (concurrent.futures.as_completed, STAND.of("as_completed")),
    (concurrent.futures.wait, STAND.of("wait")),
    (concurrent.futures.Future, STAND.of("future")),
)


def substitute(packages: tuple[str, ...]) -> None:
    """Put the substitutes into all modules of these packages that are loaded, for good."""
    for name, module in list(sys.modules.items()):
        if module is None or not name.startswith(packages):
            continue
        for attribute, value in list(vars(module).items()):
            instead = _of(value, (*MODULES, *NAMES))
            if instead is not value:
                setattr(module, attribute, instead)
            elif inspect.isfunction(value):
                _substitute_defaults(value)
            elif inspect.isclass(value) and value.__module__ == name:
                for member in vars(value).values():
                    function = getattr(member, "__func__", member)
                    if inspect.isfunction(function):
                        _substitute_defaults(function)


def _substitute_defaults(function: types.FunctionType) -> None:
    if function.__defaults__:
        function.__defaults__ = tuple(_of(value, DEFAULTS) for value in function.__defaults__)
    if function.__kwdefaults__:
        function.__kwdefaults__ = {name: _of(value, DEFAULTS) for name, value in function.__kwdefaults__.items()}
    for cell in function.__closure__ or ():
        # The factories of the fields of a dataclass: a real lock would stop all greenlets.
        cell.cell_contents = _of(cell.cell_contents, (*DEFAULTS, *FACTORIES))


def _of(value: t.Any, substitutes: Iterable[tuple[t.Any, t.Any]]) -> t.Any:
    return next((instead for original, instead in substitutes if original is value), value)


def begin(actors: Actors, rng: random.Random) -> None:
    """Let the substitutes be those of a new history."""
    STAND.values = {
        "time": Time(actors),
        "threading": Threading(actors),
        "secrets": Secrets(rng),
        "signal": Signal(),
        "pool": lambda max_workers, **_options: Pool(actors, max_workers),
        "wait": lambda futures, return_when: first_completed(actors, futures),
        "as_completed": lambda futures: as_completed(actors, futures),
        "future": lambda: Future(actors),
    }
    for original, module in MODULES:
        module.begin(STAND.values[original.__name__])
