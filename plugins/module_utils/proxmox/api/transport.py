# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends HTTPS requests to the hosts that serve the API of one cluster, with limits of time and size.

All requests go to one host until it fails, then to the next. Redirects are not followed, and no credentials are sent
except those that the caller gives.
"""

from __future__ import annotations

import collections
import contextlib
import http.cookiejar
import socket
import ssl
import threading
import time
import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import ConnectionFailed
from .answers import (
    AT_ANOTHER_HOST,
    CONNECTION_TO_NODE_FAILED,
    WORTH_ANOTHER_READ,
    failure_of_exception,
    worth_another_read,
)
from .failures import AnswerLost

LARGEST_ANSWER = 64 * 1024**2
"""The size limit of an answer, in bytes. The guest list of a cluster with 100,000 guests is smaller."""

_PIECE = 64 * 1024


class Authentication(t.Protocol):
    """An authentication of proxmoxer: adds headers to each request and provides the session's cookies."""

    def __call__(self, request: t.Any) -> t.Any: ...

    def get_cookies(self) -> t.Any: ...


class Answer(t.NamedTuple):
    """The answer to a request. location is the target of a redirect; date is the C(Date) header, the server's time."""

    status: int
    reason: str
    body: bytes
    location: str | None = None
    date: str | None = None


@dataclass(frozen=True, eq=False)
class Transport:
    """Sends requests, also from many threads. Each request has its own connection; idle connections are reused.

    Attributes:
        verify: whether certificates are verified, or the path of the trusted authorities.
        timeout: seconds for one request, from connecting to the last byte of its answer.
        ends: time of the monotonic clock at which every request ends, and no other one begins.
    """

    verify: bool | str
    timeout: float
    ends: float = float("inf")
    _idle: collections.deque[_Connection] = field(default_factory=collections.deque, init=False)

    def send(
        self,
        method: str,
        url: str,
        sent: Mapping[str, t.Any],
        authentication: Authentication | None,
        connect_within: float,
    ) -> Answer:
        """Send one request. The parameters in sent go into the body of POST and PUT, otherwise into the query.

        authentication: one of proxmoxer's; None for the login itself.
        connect_within: seconds to wait for the connection, at most the timeout.
        Raises the exceptions of C(requests).
        """
        timeout = min(self.timeout, self.ends - time.monotonic())
        if timeout <= 0:
            import requests

            raise requests.exceptions.ConnectTimeout
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = _Connection(self.verify)
        connection.ends = time.monotonic() + timeout
        in_body = method in ("POST", "PUT")
        try:
            with connection.http.request(
                method,
                url,
                params=None if in_body else sent,
                data=sent if in_body else None,
                auth=authentication,
                verify=self.verify,
                timeout=(min(connect_within, timeout), timeout),
                allow_redirects=False,
                stream=True,
            ) as response:
                return Answer(
                    response.status_code,
                    response.reason or "",
                    _read(response),
                    response.headers.get("Location"),
                    response.headers.get("Date"),
                )
        finally:
            self._idle.append(connection)

    def until(self, ends: float) -> Transport:
        """Return another one whose requests all end at a time of the monotonic clock."""
        return Transport(self.verify, self.timeout, ends)

    def close(self) -> None:
        """Close the idle connections. Later requests open new ones."""
        while self._idle:
            self._idle.pop().http.close()


class _Connection:
    """A session of proxmoxer, for one thread at a time.

    Attributes:
        ends: the monotonic time at which reading is aborted.
    """

    def __init__(self, verify: bool | str) -> None:
        import requests
        import urllib3
        from proxmoxer.backends.https import ProxmoxHTTPAuthBase, ProxmoxHttpSession
        from urllib3.util.ssl_ import create_urllib3_context

        self.ends = 0.0
        context = create_urllib3_context()
        if verify is False:
            context.check_hostname = False
            # The user requested this, and Ansible shows the warning as an output that should not be there.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        context.sslsocket_class = _bounded_socket(self)
        connection = self

        class Adapter(requests.adapters.HTTPAdapter):
            """Opens connections with bounded sockets, through proxies as well."""

            def init_poolmanager(self, *args: t.Any, **kwargs: t.Any) -> None:
                super().init_poolmanager(*args, **kwargs, ssl_context=context)

            def proxy_manager_for(self, *args: t.Any, **kwargs: t.Any) -> t.Any:
                manager = super().proxy_manager_for(*args, **kwargs, ssl_context=context)
                manager.pool_classes_by_scheme = {**manager.pool_classes_by_scheme, "https": _bounded_pool(connection)}
                return manager

        self.http = ProxmoxHttpSession()
        self.http.mount("https://", Adapter())
        # Without an auth of the session, requests would look for credentials in ~/.netrc.
        self.http.auth = ProxmoxHTTPAuthBase()
        # Reject cookies from answers: the session sends those of the authentication only while it has no others.
        self.http.cookies.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=()))


def _read(response: t.Any) -> bytes:
    """Read the body of an answer. Raises ContentDecodingError if it is too large."""
    import requests

    body = bytearray()
    for piece in response.iter_content(_PIECE):
        body += piece
        if len(body) > LARGEST_ANSWER:
            raise requests.exceptions.ContentDecodingError(f"it is larger than {LARGEST_ANSWER // 1024**2} MiB")
    return bytes(body)


def _bounded_socket(connection: _Connection) -> type[ssl.SSLSocket]:
    """Return a class of sockets that time out when the connection ends.

    The timeout of C(requests) does not limit an answer: it applies to each read of the socket, and so restarts with
    each byte.
    """

    class BoundedSocket(ssl.SSLSocket):
        def read(self, len: int = 1024, buffer: t.Any = None) -> t.Any:
            left = connection.ends - time.monotonic()
            if left <= 0:
                raise TimeoutError("The read operation timed out")
            self.settimeout(left)
            return super().read(len, buffer)

    return BoundedSocket


def _bounded_pool(connection: _Connection) -> type[t.Any]:
    """Return a class of pools whose connections ask a proxy for a tunnel until the connection ends, at the longest.

    The answer of the proxy is read before there is a bounded socket, each byte with the whole timeout.
    """
    from urllib3.connection import HTTPSConnection
    from urllib3.connectionpool import HTTPSConnectionPool

    class Connection(HTTPSConnection):
        def _tunnel(self) -> None:
            def give_up() -> None:
                with contextlib.suppress(OSError):
                    self.sock.shutdown(socket.SHUT_RDWR)

            timer = threading.Timer(max(connection.ends - time.monotonic(), 0), give_up)
            timer.daemon = True
            timer.start()
            try:
                super()._tunnel()
            finally:
                timer.cancel()

    class Pool(HTTPSConnectionPool):
        ConnectionCls = Connection

    return Pool


# --- the hosts of one cluster ---

# Seconds before each further try of a read whose connection broke.
READ_AGAIN_AFTER = (0.2, 1.0)
# Seconds to wait for a connection while there is another host to try.
_CONNECT_WITHIN = 5.0


class Host(t.NamedTuple):
    """name is C(host:port), for messages; API paths are appended to base_url."""

    name: str
    base_url: str


@dataclass(eq=False)
class Hosts:
    """Sends requests to one of several hosts. May be used from many threads.

    If a host cannot be reached, or does not answer a read, the request goes to the next one. A write that may have
    reached a host is never sent again.

    Attributes:
        connect_within: until the first answer came, seconds to wait for a connection to each host, with fewer retries.
            None: no difference before the first answer.
        requests_made: the number of requests that were sent, including repeated ones.
    """

    hosts: Sequence[Host]
    transport: Transport
    sleep: Callable[[float], None]
    connect_within: float | None = None
    requests_made: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _position: int = field(default=0, init=False)

    @property
    def current(self) -> Host:
        """The host that requests go to at present."""
        return self.hosts[self._position]

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
        if self.connect_within is not None:
            pauses = pauses[:1]
        others = len(self.hosts) - 1
        while True:
            host = self.current
            with self._lock:
                self.requests_made += 1
            within = self.connect_within or (_CONNECT_WITHIN if others else float("inf"))
            failure: ConnectionFailed | None = None
            try:
                answer = self.transport.send(method, host.base_url + path, sent, authentication, within)
            except requests.exceptions.RequestException as error:
                failure = failure_of_exception(error, method, path, host.name, repeatable=repeatable)
                again, elsewhere = worth_another_read(error), not isinstance(failure, AnswerLost)
            else:
                self.connect_within = None
                again = answer.status in WORTH_ANOTHER_READ
                elsewhere = repeatable and answer.status in AT_ANOTHER_HOST
                if answer.status == CONNECTION_TO_NODE_FAILED:
                    # Proxmox takes seconds to notice a dead node each time: retry only once.
                    pauses = pauses[-1:]
            if others and elsewhere:
                others -= 1
                self._pass_over(host)
            elif pauses and again:
                self.sleep(pauses.pop(0))
            elif failure is not None:
                raise failure from None
            else:
                return answer

    def until(self, ends: float) -> Hosts:
        """Return another one, which starts at the current host, and whose requests all end at a monotonic time."""
        first = self._position
        return Hosts((*self.hosts[first:], *self.hosts[:first]), self.transport.until(ends), self.sleep)

    def _pass_over(self, host: Host) -> None:
        with self._lock:
            # Unless another thread has done so.
            if self.current == host:
                self._position = (self._position + 1) % len(self.hosts)
