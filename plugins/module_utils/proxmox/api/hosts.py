# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts that serve the API of one cluster. All requests go to one host until it fails, then to the next."""

from __future__ import annotations

import threading
import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import ConnectionFailed
from .answers import (
    AT_ANOTHER_HOST,
    CONNECTION_TO_NODE_FAILED,
    WORTH_ANOTHER_READ,
    failure_of_exception,
    worth_another_read,
)
from .failures import AnswerLost
from .transport import Answer, Authentication, Transport

# Seconds before each further try of a read whose connection broke.
READ_AGAIN_AFTER = (0.2, 1.0)
# Seconds to wait for a connection while there is another host to try.
_CONNECT_WITHIN = 5.0


@dataclass(frozen=True, slots=True)
class Host:
    """name is C(host:port), for messages; API paths are appended to base_url."""

    name: str
    base_url: str


class Hosts:
    """Sends requests to one of several hosts. May be used from many threads.

    If a host cannot be reached, or does not answer a read, the request goes to the next one. A write that may have
    reached a host is never sent again.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        transport: Transport,
        sleep: Callable[[float], None],
        connect_within: float | None = None,
    ) -> None:
        """connect_within: until the first answer came, seconds to wait for a connection to each host, with fewer
        retries. None: no difference before the first answer.
        """
        self._hosts = tuple(hosts)
        self._transport = transport
        self._sleep = sleep
        self._connect_within = connect_within
        self._lock = threading.Lock()
        self._position = 0
        self._requests_made = 0

    @property
    def current(self) -> Host:
        """The host that requests go to at present."""
        return self._hosts[self._position]

    @property
    def requests_made(self) -> int:
        """The number of requests that were sent, including repeated ones."""
        return self._requests_made

    def exchange(
        self,
        method: str,
        path: str,
        sent: Mapping[str, t.Any],
        authentication: Authentication | None,
        *,
        repeatable: bool,
    ) -> Answer:
        """Send a request and return the answer, whatever its status. repeatable: it may be sent again.

        Raises ConnectionFailed when no host gave an answer; AnswerLost when a write may have reached one.
        """
        import requests

        pauses = list(READ_AGAIN_AFTER) if repeatable else []
        if self._connect_within is not None:
            pauses = pauses[:1]
        others = len(self._hosts) - 1
        while True:
            host = self.current
            with self._lock:
                self._requests_made += 1
            within = self._connect_within or (_CONNECT_WITHIN if others else float("inf"))
            failure: ConnectionFailed | None = None
            try:
                answer = self._transport.send(method, host.base_url + path, sent, authentication, within)
            except requests.exceptions.RequestException as error:
                failure = failure_of_exception(error, method, path, host.name, repeatable=repeatable)
                again, elsewhere = worth_another_read(error), not isinstance(failure, AnswerLost)
            else:
                self._connect_within = None
                again = answer.status in WORTH_ANOTHER_READ
                elsewhere = repeatable and answer.status in AT_ANOTHER_HOST
                if answer.status == CONNECTION_TO_NODE_FAILED:
                    # Proxmox takes seconds to notice a dead node each time: retry only once.
                    pauses = pauses[-1:]
            if others and elsewhere:
                others -= 1
                self._pass_over(host)
            elif pauses and again:
                self._sleep(pauses.pop(0))
            elif failure is not None:
                raise failure from None
            else:
                return answer

    def close(self) -> None:
        """Close the idle connections. Later requests open new ones."""
        self._transport.close()

    def _pass_over(self, host: Host) -> None:
        with self._lock:
            # Unless another thread has done so.
            if self.current == host:
                self._position = (self._position + 1) % len(self._hosts)
