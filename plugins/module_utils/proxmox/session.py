# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One login to one cluster, over proxmoxer: calls by API path, errors that say what happened, used by many threads."""

from __future__ import annotations

import collections
import contextlib
import email.utils
import threading
import time
import typing as t
from collections.abc import Callable, Iterator, Mapping

from ..errors import AuthenticationFailed, ConnectionFailed
from .answers import (
    CONNECTION_TO_NODE_FAILED,
    WORTH_ANOTHER_READ,
    failure_of_answer,
    failure_of_exception,
    worth_another_read,
)
from .login import READ_AGAIN_AFTER, Login, authentication_error, connection_argument_spec, log_in

__all__ = ["Session", "connection_argument_spec"]


class Session:
    """Calls of one user to one cluster. Paths are those of the API documentation; answers are their C(data).

    Booleans are sent as 0 and 1, None is left out. May be used from many threads: every call has an HTTP connection to
    itself, and connections are kept and used again.

    Attributes:
        user: who calls, as Proxmox names them in tasks (C(root@pam), C(op@pve!token)).
        where: C(host:port), for messages.
        before_write: called before anything is sent that writes; what it raises is raised, and nothing is sent.
    """

    def __init__(self, login: Login, sleep: Callable[[float], None] = time.sleep) -> None:
        self.user = login.user
        self.where = login.where
        self.before_write: Callable[[], None] = lambda: None
        self._login = login
        self._sleep = sleep
        self._idle: collections.deque[t.Any] = collections.deque()
        self._lock = threading.Lock()
        self._requests_made = login.requests
        self._server_time: float | None = None

    @classmethod
    def connect(cls, params: Mapping[str, t.Any]) -> Session:
        """Return a session for the options of C(connection_argument_spec); a token costs no request, a password one.

        Raises:
            MissingLibrary: proxmoxer or requests is not installed.
            InvalidRequest: the host, the user or the credentials are missing, or ca_path does not exist.
            AuthenticationFailed, ConnectionFailed, ApiError: the login failed.
        """
        return cls(log_in(params))

    @property
    def requests_made(self) -> int:
        """How many requests this session has sent so far, repeated ones and the login included."""
        return self._requests_made

    def server_time(self) -> float | None:
        """Return the server's clock (seconds since the epoch) at its latest answer; None before the first."""
        return self._server_time

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        """Read path; tried again when the connection broke or the node did not answer."""
        return self._call("GET", path, {**(params or {}), **more})

    def post(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        """Create or start something; the answer is often a task's UPID. Raises AnswerLost when no answer came."""
        return self._call("POST", path, {**(params or {}), **more})

    def put(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        """Change something. Raises AnswerLost when no answer came."""
        return self._call("PUT", path, {**(params or {}), **more})

    def delete(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        """Delete something; params go into the query. Raises AnswerLost when no answer came."""
        return self._call("DELETE", path, {**(params or {}), **more})

    def close(self) -> None:
        """Close the kept connections; the session can still be used."""
        while self._idle:
            self._idle.pop().close()

    def _call(self, method: str, path: str, params: Mapping[str, t.Any]) -> t.Any:
        import requests

        if method != "GET":
            self.before_write()
        sent = {key: _on_the_wire(value) for key, value in params.items() if value is not None}
        pauses = list(READ_AGAIN_AFTER) if method == "GET" else []
        while True:
            try:
                response = self._send(method, path, sent)
            except requests.exceptions.RequestException as error:
                if not (pauses and worth_another_read(error)):
                    raise failure_of_exception(error, method, path, self.where) from None
            else:
                if not (pauses and response.status_code in WORTH_ANOTHER_READ):
                    return self._data(method, path, response, sent)
                if response.status_code == CONNECTION_TO_NODE_FAILED:
                    # A dead node takes seconds to be noticed each time.
                    pauses = pauses[-1:]
            self._sleep(pauses.pop(0))

    def _send(self, method: str, path: str, sent: Mapping[str, t.Any]) -> t.Any:
        in_body = method in ("POST", "PUT")
        with self._connection() as http:
            with self._lock:
                self._requests_made += 1
            try:
                response = http.request(
                    method,
                    self._login.base_url + path,
                    params=None if in_body else sent,
                    data=sent if in_body else None,
                    # Not every version of proxmoxer keeps these for tokens.
                    verify=self._login.verify,
                    timeout=self._login.timeout,
                )
            except authentication_error() as error:
                raise AuthenticationFailed(f"{self.where}: the ticket could not be renewed: {error}") from None
        self._note_time(response.headers.get("Date"))
        return response

    @contextlib.contextmanager
    def _connection(self) -> Iterator[t.Any]:
        # A requests.Session must not be shared between threads, a proxmoxer login (ticket or token) may.
        try:
            http = self._idle.pop()
        except IndexError:
            http = self._login.new_http()
        try:
            yield http
        finally:
            self._idle.append(http)

    def _data(self, method: str, path: str, response: t.Any, sent: Mapping[str, t.Any]) -> t.Any:
        body = response.content.decode("utf-8", "replace")
        if response.status_code == 401:
            refusal = failure_of_answer(method, path, 401, response.reason or "", body, sent)
            raise AuthenticationFailed(f"{self.where} refused {self.user}: {refusal.message}", **refusal.details)
        if response.status_code >= 400:
            raise failure_of_answer(method, path, response.status_code, response.reason or "", body, sent)
        try:
            return response.json()["data"]
        except (ValueError, KeyError, TypeError):
            raise ConnectionFailed(
                f"{self.where}: {method} {path}: the answer is not of the Proxmox API; is this its address and port?",
                method=method,
                path=path,
                status=response.status_code,
            ) from None

    def _note_time(self, date: str | None) -> None:
        try:
            self._server_time = email.utils.parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            return


def _on_the_wire(value: t.Any) -> t.Any:
    return int(value) if isinstance(value, bool) else value
