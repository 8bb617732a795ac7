# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What controllers reach: the API of the simulated cluster, by a function call, and one ledger. Both may fail."""

from __future__ import annotations

import asyncio
import email.utils
import functools
import random
import typing as t
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import requests
from simulated_cluster.server import Server

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import LedgerUnavailable
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.transport import Answer
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.database import Row, Transaction
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.sqlite import SQLiteDatabase

from .actors import Actor, Actors
from .loop import Loop

FORM = "application/x-www-form-urlencoded"


class Weather:
    """What fails how often: probabilities for one message. All zero when the faults are over."""

    def __init__(self, actors: Actors, rng: random.Random, log: Callable[..., None]) -> None:
        self._actors = actors
        self._rng = rng
        self._log = log
        self.latency = rng.choice([0.02, 0.2, 1.0])
        self.struck = rng.choice([0.0, 0.01, 0.03])
        self.lost_before = rng.choice([0.0, 0.0, 0.01, 0.05])
        self.lost_after = rng.choice([0.0, 0.0, 0.01, 0.05])
        self.late = rng.choice([0.0, 0.02, 0.1])
        self.ledger_lost = rng.choice([0.0, 0.0, 0.02])
        self.ledger_down = False

    def pass_by(self) -> None:
        """Between two steps of a process: it may be killed there, or paused, perhaps for longer than a reservation."""
        process = self._actors.process
        if self._rng.random() < self.struck:
            if self._rng.random() < 0.2:
                self._log("is killed")
                process.killed = True
            else:
                seconds = self._rng.choice([3.0, 20.0, 70.0])
                self._log(f"is paused for {seconds:g} s")
                process.frozen_until = self._actors.now + seconds
        self._actors.wait(seconds=0)

    def clear_up(self) -> None:
        """Nothing fails any more."""
        self.latency = 0.02
        self.struck = self.lost_before = self.lost_after = self.late = self.ledger_lost = 0.0
        self.ledger_down = False


class Connection:
    """Stands for a connection of the server."""

    def abort(self) -> None:
        """There is nothing to cut."""


class Request:
    """What the server reads of a request."""

    cookies: Mapping[str, str] = {}
    content_type = FORM
    content_length = 0

    def __init__(
        self, method: str, url: str, sent: Mapping[str, t.Any], headers: dict[str, str], at: Connection
    ) -> None:
        self.method = method
        self.sent = sent
        self.headers = headers
        self.transport = at
        self.path = urllib.parse.urlsplit(url).path
        self.rel_url = self
        self.raw_path = self.path
        encoded = urllib.parse.urlencode(sent, doseq=True) if sent else ""
        self.content_length = None if method == "GET" else len(encoded)
        in_body = method in ("POST", "PUT")
        self._body = encoded.encode() if in_body else b""
        self.content_length = len(self._body)
        self.query = dict(urllib.parse.parse_qsl("" if in_body else encoded, keep_blank_values=True))

    async def read(self) -> bytes:
        return self._body


class Prepared:
    """What an authentication completes."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}


class Network:
    """Brings requests to the server. transport is what a session sends by.

    Attributes:
        watch: is told of every answer: the request, the response, the births of the guests that the request was about
            when it arrived, by VMID, and which thread has sent it.
    """

    def __init__(
        self, actors: Actors, loop: Loop, server: Server, weather: Weather, rng: random.Random, log: Callable[..., None]
    ) -> None:
        self._actors = actors
        self._loop = loop
        self._server = server
        self._weather = weather
        self._rng = rng
        self._log = log
        self.watch: Callable[[Request, t.Any, Mapping[int, int], Actor], None] = lambda *_answered: None

    def transport(self, _verify: object, timeout: float) -> Transport:
        return Transport(self, timeout)

    def exchange(self, request: Request, timeout: float) -> Answer:
        """Send a request, and wait for its answer."""
        chance, weather = self._rng.random, self._weather
        what = f"{request.method} {request.path.removeprefix('/api2/json')}"
        if request.method != "GET" and self._actors.process.abandoned:
            raise AssertionError(f"{self._actors.process.name} sends {what}, although nobody waits for it")
        is_late, is_lost = chance() < weather.late, chance() < weather.lost_before
        delay = chance() * (5 if is_late else weather.latency)
        if request.method != "GET":
            target = request.sent.get("target")
            self._log(f"{what} to {target}" if target else what)
        delivered = self._delivered(request, delay, self._actors.thread, is_lost=is_lost)
        answering = self._loop.create_task(delivered)
        self._actors.wait(answering.done, timeout)
        if not answering.done():
            raise requests.exceptions.ReadTimeout("no answer")
        response: t.Any = answering.result()
        weather.pass_by()
        if response is None:
            self._log(f"{what}: lost on its way")
            raise requests.exceptions.ConnectionError("the connection was cut")
        if chance() < weather.late:
            self._actors.wait(seconds=chance() * 5)
        if response.status == 499 or chance() < weather.lost_after:
            self._log(f"{what}: the answer {response.status} was lost")
            raise requests.exceptions.ConnectionError("the connection was cut")
        if response.status != 200:
            self._log(f"{what}: {response.status} {response.reason}")
        body = response.body if isinstance(response.body, bytes) else b""
        return Answer(response.status, response.reason or "", body, None, _date(int(self._actors.now)))

    async def _delivered(self, request: Request, delay: float, sender: Actor, *, is_lost: bool) -> t.Any:
        """The server's response. What is on its way arrives, whatever becomes of the process that has sent it: if that
        is killed, at once, as a network is faster than a new process.
        """
        while delay > 0 and not sender.process.killed:
            await asyncio.sleep(min(delay, 0.5))
            delay -= 0.5
        if is_lost:
            return None
        entries = self._server.cluster.log.entries
        number = len(entries)
        response = await self._server._serve(t.cast("t.Any", request))
        self.watch(request, response, entries[number]["guests"], sender)
        return response


@functools.lru_cache(maxsize=16)
def _date(seconds: int) -> str:
    return email.utils.formatdate(seconds, usegmt=True)


class Transport:
    """In place of the collection's own."""

    def __init__(self, network: Network, timeout: float) -> None:
        self._network = network
        self._timeout = timeout
        self._connection = Connection()

    def send(
        self, method: str, url: str, sent: Mapping[str, t.Any], authentication: t.Any, connect_within: float
    ) -> Answer:
        prepared = Prepared()
        if authentication is not None:
            authentication(prepared)
        return self._network.exchange(Request(method, url, sent, prepared.headers, self._connection), self._timeout)

    def close(self) -> None:
        """There is nothing to close."""


class LedgerDatabase(SQLiteDatabase):
    """The one database of all controllers. It can be unreachable, and answers can be lost."""

    def __init__(self, actors: Actors, weather: Weather, rng: random.Random) -> None:
        self._actors = actors
        self._weather = weather
        self._rng = rng
        super().__init__(None, lambda: actors.now)

    @contextmanager
    def transaction(self, cluster: str) -> Iterator[Transaction]:
        self._reach()
        with super().transaction(cluster) as transaction:
            yield transaction
        self._weather.pass_by()
        self._answer()

    def read(self, sql: str, parameters: t.Any = ()) -> tuple[float, list[Row]]:
        self._reach()
        found = super().read(sql, parameters)
        self._weather.pass_by()
        return found

    def close(self) -> None:
        """Others have it open."""

    def end(self) -> None:
        """Close it for all."""
        super().close()

    def _reach(self) -> None:
        self._actors.wait(seconds=self._rng.random() * self._weather.latency)
        if self._weather.ledger_down:
            raise LedgerUnavailable("the ledger cannot be reached")

    def _answer(self) -> None:
        if self._rng.random() < self._weather.ledger_lost:
            raise LedgerUnavailable("the connection to the ledger was cut")
