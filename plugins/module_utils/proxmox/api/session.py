# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""API calls to one cluster with one login. Failures become errors that say what happened."""

from __future__ import annotations

import email.utils
import json
import time
import typing as t
from collections.abc import Callable, Mapping

from ...errors import AuthenticationFailed, ConnectionFailed
from .answers import failure_of_answer, redirected
from .hosts import Hosts
from .login import (
    LOGIN_PATH,
    connection_argument_spec,
    credentials,
    hosts,
    require_libraries,
    ticket_authentication,
    timeout,
    token_authentication,
    verification,
)
from .shapes import WrongShape, checked, require_sane
from .transport import Answer, Authentication, Transport

__all__ = ["Session", "connection_argument_spec"]


class Session:
    """API calls of one user to one cluster. Paths are those of the API documentation; results are the C(data) of the
    answers.

    Booleans are sent as 0 and 1, parameters that are None are not sent. May be used from many threads.

    Attributes:
        user: the user as Proxmox names it in tasks (C(root@pam), C(op@pve!token)).
        before_write: called before each write. If it raises, the write is not sent.
    """

    def __init__(self, api: Hosts, user: str, authentication: Authentication) -> None:
        self.user = user
        self.before_write: Callable[[], None] = lambda: None
        self._api = api
        self._authentication = authentication
        self._server_time: float | None = None
        self._date: str | None = None

    @classmethod
    def connect(cls, params: Mapping[str, t.Any], sleep: Callable[[float], None] = time.sleep) -> Session:
        """Return a session for the options of C(connection_argument_spec). A login with a password takes one request,
        an API token none.

        C(connect_timeout) in params: seconds to wait for the first connection to each host.

        Raises:
            MissingLibrary: requests or proxmoxer is not installed.
            InvalidRequest: the host, the user or the credentials are missing, or ca_path does not exist.
            AuthenticationFailed, ConnectionFailed, ApiError: the login failed.
        """
        user, password, secret = credentials(params)
        api = Hosts(
            hosts(params), Transport(verification(params), timeout(params)), sleep, params.get("connect_timeout")
        )
        require_libraries()
        if password is None:
            return cls(api, user, token_authentication(user, str(secret)))
        return cls(api, user, ticket_authentication(user, password, lambda sent: _ticket(api, user, sent)))

    @property
    def where(self) -> str:
        """The host that requests go to at present, as C(host:port)."""
        return self._api.current.name

    @property
    def requests_made(self) -> int:
        """The number of requests that this session has sent, including repeated ones and the login."""
        return self._api.requests_made

    def server_time(self) -> float | None:
        """Return the server's time (seconds since the epoch) at its latest answer; None before the first."""
        return self._server_time

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        """Read path. Repeated when the connection broke or the node did not answer."""
        return self._call("GET", path, {**(params or {}), **more})

    def post(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        """Create or start something; often returns the UPID of a task. Raises AnswerLost when no answer came."""
        return self._call("POST", path, {**(params or {}), **more})

    def put(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        """Change something. Raises AnswerLost when no answer came."""
        return self._call("PUT", path, {**(params or {}), **more})

    def delete(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        """Delete something; params are sent in the query. Raises AnswerLost when no answer came."""
        return self._call("DELETE", path, {**(params or {}), **more})

    def close(self) -> None:
        """Close the kept connections; the session can still be used."""
        self._api.close()

    def _call(self, method: str, path: str, params: Mapping[str, t.Any]) -> t.Any:
        repeatable = method == "GET"
        if not repeatable:
            self.before_write()
        sent = {key: _on_the_wire(value) for key, value in params.items() if value is not None}
        answer = self._api.exchange(method, path, sent, self._authentication, repeatable=repeatable)
        self._note_time(answer.date)
        return _data(answer, method, path, sent, self.where, self.user)

    def _note_time(self, date: str | None) -> None:
        if date == self._date:
            return
        self._date = date
        try:
            self._server_time = email.utils.parsedate_to_datetime(date or "").timestamp()
        except (ValueError, OverflowError):
            return


def _ticket(api: Hosts, user: str, sent: Mapping[str, str]) -> Mapping[str, t.Any]:
    """Log in. The request may be repeated: an unused ticket has no effect."""
    answer = api.exchange("POST", LOGIN_PATH, sent, None, repeatable=True)
    data: Mapping[str, t.Any] = _data(answer, "POST", LOGIN_PATH, sent, api.current.name, user)
    return data


def _data(answer: Answer, method: str, path: str, sent: Mapping[str, t.Any], where: str, user: str) -> t.Any:
    """Return the data of an answer, or raise the error that it reports."""
    body = answer.body.decode("utf-8", "replace")
    if 300 <= answer.status < 400:
        raise redirected(method, path, where, answer.location)
    if answer.status >= 400:
        failure = failure_of_answer(method, path, answer.status, answer.reason, body, sent)
        if answer.status == 401:
            raise AuthenticationFailed(f"{where} refused {user}: {failure.message}", **failure.details)
        raise failure
    try:
        data = json.loads(body)["data"]
        if method == "GET" or path == LOGIN_PATH:
            return checked(path, data)
        require_sane(data)
    except WrongShape as error:
        what = f"the answer is not what Proxmox VE answers there: {error}"
    except (ValueError, KeyError, TypeError, RecursionError):
        what = "the answer is not of the Proxmox API; is this its address and port?"
    else:
        return data
    raise ConnectionFailed(f"{where}: {method} {path}: {what}", method=method, path=path, status=answer.status)


def _on_the_wire(value: t.Any) -> t.Any:
    return int(value) if isinstance(value, bool) else value
