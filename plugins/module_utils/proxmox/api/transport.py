# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends one HTTPS request and reads its answer, with limits of time and size.

Redirects are not followed, and no credentials are sent except those that the caller gives.
"""

from __future__ import annotations

import collections
import http.cookiejar
import ssl
import time
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

LARGEST_ANSWER = 64 * 1024**2
"""The size limit of an answer, in bytes. The guest list of a cluster with 100,000 guests is smaller."""

_PIECE = 64 * 1024


class Authentication(t.Protocol):
    """An authentication of proxmoxer: adds headers to each request and provides the session's cookies."""

    def __call__(self, request: t.Any) -> t.Any: ...

    def get_cookies(self) -> t.Any: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request. location is the target of a redirect; date is the C(Date) header, the server's time."""

    status: int
    reason: str
    body: bytes
    location: str | None = None
    date: str | None = None


class Transport:
    """Sends requests, also from many threads. Each request has its own connection; idle connections are reused.

    Args:
        verify: whether certificates are verified, or the path of the trusted authorities.
        timeout: seconds for one request, from connecting to the last byte of its answer.
    """

    def __init__(self, verify: bool | str, timeout: float) -> None:
        self._verify = verify
        self._timeout = timeout
        self._idle: collections.deque[_Connection] = collections.deque()

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
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = _Connection(self._verify)
        connection.ends = time.monotonic() + self._timeout
        in_body = method in ("POST", "PUT")
        try:
            with connection.http.request(
                method,
                url,
                params=None if in_body else sent,
                data=sent if in_body else None,
                auth=authentication,
                verify=self._verify,
                timeout=(min(connect_within, self._timeout), self._timeout),
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
        context.sslsocket_class = _bounded_socket(lambda: self.ends)

        class Adapter(requests.adapters.HTTPAdapter):
            """Opens connections with bounded sockets."""

            def init_poolmanager(self, *args: t.Any, **kwargs: t.Any) -> None:
                super().init_poolmanager(*args, **kwargs, ssl_context=context)

            def proxy_manager_for(self, *args: t.Any, **kwargs: t.Any) -> t.Any:
                return super().proxy_manager_for(*args, **kwargs, ssl_context=context)

        self.http = ProxmoxHttpSession()
        self.http.mount("https://", Adapter())
        # Without an auth of the session, requests would look for credentials in ~/.netrc.
        self.http.auth = ProxmoxHTTPAuthBase()
        # Reject cookies from answers: the session sends those of the authentication only while it has no others.
        self.http.cookies.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=()))


def _read(response: t.Any) -> bytes:
    import requests

    body = bytearray()
    for piece in response.iter_content(_PIECE):
        body += piece
        if len(body) > LARGEST_ANSWER:
            raise requests.exceptions.ContentDecodingError(f"it is larger than {LARGEST_ANSWER // 1024**2} MiB")
    return bytes(body)


def _bounded_socket(ends: t.Callable[[], float]) -> type[ssl.SSLSocket]:
    """Return a class of sockets that time out when the monotonic clock reaches ends().

    The timeout of C(requests) does not limit an answer: it applies to each read of the socket, and so restarts with
    each byte.
    """

    class BoundedSocket(ssl.SSLSocket):
        def read(self, len: int = 1024, buffer: t.Any = None) -> t.Any:
            left = ends() - time.monotonic()
            if left <= 0:
                raise TimeoutError("The read operation timed out")
            self.settimeout(left)
            return super().read(len, buffer)

    return BoundedSocket
