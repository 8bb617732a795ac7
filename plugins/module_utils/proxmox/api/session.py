# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A session of one user on one cluster: the API calls, whose failures become errors that say what happened; and the
connection options, from which it gets hosts, credentials and authentication.
"""

from __future__ import annotations

import email.utils
import importlib.util
import json
import os
import re
import sys
import threading
import time
import typing as t
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ansible.module_utils.basic import env_fallback

from ...engine.texts import number_text, whole_number
from ...errors import AuthenticationFailed, ConnectionFailed, InvalidRequest, MissingLibrary
from ...secret_options import got
from .answers import failure_of_answer, redirect_error
from .failures import OddAnswer
from .shapes import WrongShape, check_shape, require_sane
from .transport import Answer, Authentication, Host, Hosts, Transport


@dataclass(eq=False)
class Session:
    """API calls of one user to one cluster. Paths are those of the API documentation; results are the C(data) of the
    answers.

    Booleans are sent as 0 and 1, parameters that are None are not sent. May be used from many threads.

    Attributes:
        user: the user as Proxmox names it in tasks (C(root@pam), C(op@pve!token)).
        log_in: returns another authentication in place of one that the cluster no longer accepts.
        before_write: called before each write. If it raises, the write is not sent.
    """

    api: Hosts
    user: str
    authentication: Authentication
    log_in: Callable[[], Authentication] | None = None
    before_write: Callable[[], None] | None = None
    _logging_in: threading.Lock = field(default_factory=threading.Lock, init=False)
    _date: str | None = field(default=None, init=False)
    _of_thread: threading.local = field(default_factory=threading.local, init=False)

    @classmethod
    def connect(
        cls,
        params: Mapping[str, t.Any],
        sleep: Callable[[float], None] = time.sleep,
        before_write: Callable[[], None] | None = None,
    ) -> Session:
        """Return a session for the options of C(connection_argument_spec). A login with a password takes one request,
        an API token none. before_write is that of Session.

        C(connect_timeout) in params: seconds to wait for the first connection to each host.

        Raises:
            MissingLibrary: requests or proxmoxer is not installed.
            InvalidRequest: the host, the user or the credentials are missing, or ca_path does not exist.
            AuthenticationFailed, ConnectionFailed, ApiError: the login failed.
        """
        user, password, secret = credentials(params)
        given = params.get("api_port")
        port = _DEFAULT_PORT if given in (None, "") else given
        hosts = [_host(text.strip(), port) for text in _require(params, "api_host")]
        transport = Transport(verification(params), _timeout(params))
        api = Hosts(hosts, transport, sleep, params.get("connect_timeout"))
        require_libraries()
        if password is None:
            return cls(api, user, token_authentication(user, str(secret)), None, before_write)

        def log_in() -> Authentication:
            return ticket_authentication(user, password, lambda sent: _ticket(api, user, sent))

        return cls(api, user, log_in(), log_in, before_write)

    @property
    def where(self) -> str:
        """The host that requests go to at present, as C(host:port)."""
        return self.api.current.name

    @property
    def requests_made(self) -> int:
        """The number of requests that this session has sent, including repeated ones and the login."""
        return self.api.requests_made

    def server_time(self) -> float | None:
        """Return the server's time (seconds since the epoch) at its latest answer; None if no answer had one."""
        try:
            return email.utils.parsedate_to_datetime(self._date or "").timestamp()
        except (ValueError, OverflowError):
            return None

    def answer_time(self) -> float | None:
        """Return the server's time at its latest answer to this thread; None if that had none."""
        date = getattr(self._of_thread, "date", None)
        try:
            return email.utils.parsedate_to_datetime(date or "").timestamp()
        except (ValueError, OverflowError):
            return None

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

    def until(self, ends: float) -> Session:
        """Return a session of the same user whose requests all end at a time of the monotonic clock. Nothing is called
        before its writes: it completes what was begun, also when the run has to end.
        """
        return Session(self.api.until(ends), self.user, self.authentication, self.log_in)

    def close(self) -> None:
        """Close the kept connections; the session can still be used."""
        self.api.transport.close()

    def _call(self, method: str, path: str, params: Mapping[str, t.Any]) -> t.Any:
        """Send a request and return the data of its answer. An expired ticket is renewed once."""
        # In a form, Proxmox takes 0 and 1 for a boolean, and refuses "true".
        sent = {
            key: int(value) if isinstance(value, bool) else value for key, value in params.items() if value is not None
        }
        # Only a read may be sent again.
        repeatable = method == "GET"
        renewed = False
        while True:
            if not repeatable and self.before_write is not None:
                self.before_write()
            used = self.authentication
            answer = self.api.exchange(method, path, sent, used, repeatable=repeatable)
            self._date, self._of_thread.date = answer.date or self._date, answer.date
            if answer.status != 401 or self.log_in is None or renewed:
                return _data(answer, method, path, sent, self.api.current.name, self.user)
            # The ticket has expired or was revoked, so nothing was done. Other threads may have noticed it as well.
            with self._logging_in:
                if self.authentication is used:
                    self.authentication = self.log_in()
            renewed = True


def _ticket(api: Hosts, user: str, sent: Mapping[str, str]) -> Mapping[str, t.Any]:
    """Log in. The request may be repeated: an unused ticket has no effect."""
    answer = api.exchange("POST", LOGIN_PATH, sent, None, repeatable=True)
    data: Mapping[str, t.Any] = _data(answer, "POST", LOGIN_PATH, sent, api.current.name, user)
    return data


def _data(answer: Answer, method: str, path: str, sent: Mapping[str, t.Any], where: str, user: str) -> t.Any:
    """Return the data of an answer, or raise the error that it reports."""
    body = answer.body.decode("utf-8", "replace")
    if 300 <= answer.status < 400:
        raise redirect_error(method, path, where, answer.location)
    if answer.status >= 400:
        failure = failure_of_answer(method, path, answer.status, answer.reason, body, sent)
        if answer.status == 401:
            options = "api_token_id and api_token_secret" if "!" in user else "api_user, its realm, and api_password"
            message = f"{where} refused {user}: {failure.message}; check {options}"
            raise AuthenticationFailed(message, **failure.details)
        raise failure
    try:
        data = json.loads(body)["data"]
        if method == "GET" or path == LOGIN_PATH:
            return check_shape(path, data)
        require_sane(data)
    except WrongShape as error:
        what = f"the answer is not what Proxmox VE answers there: {error}"
    except (ValueError, KeyError, TypeError, RecursionError):
        what = "the answer is not of the Proxmox API; is this its address and port?"
    else:
        return data
    raise OddAnswer(f"{where}: {method} {path}: {what}", method=method, path=path, status=answer.status)


# --- the connection options: hosts, credentials and authentication ---

_DEFAULT_PORT = 8006
_DEFAULT_TIMEOUT = 30
_LONGEST_TIMEOUT = 24 * 3600

ROOT = "root@pam"
"""The only user who may pass raw devices and arguments, or remove a locked VM. Proxmox VE compares the full name, so a
token of this user does not count as root.
"""

LOGIN_PATH = "/access/ticket"
_HEADER_VALUE = re.compile(r"[!-~]+")

# What Proxmox takes as the names of users and tokens, and the form of the secrets that it makes.
_USER = re.compile(r"[^\s:/!]+@[A-Za-z][A-Za-z0-9._-]*")
_TOKEN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_SECRET = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def connection_argument_spec() -> dict[str, dict[str, t.Any]]:
    """Return the Ansible argument spec of the connection options, with their environment variables."""

    options: dict[str, tuple[str, dict[str, t.Any]]] = {
        "api_host": ("PROXMOX_HOST", {"type": "list", "elements": "str"}),
        "api_port": ("PROXMOX_PORT", {"type": "int"}),
        "api_user": ("PROXMOX_USER", {"type": "str"}),
        "api_password": ("PROXMOX_PASSWORD", {"type": "str", "no_log": True}),
        "api_token_id": ("PROXMOX_TOKEN_ID", {"type": "str", "no_log": False}),
        "api_token_secret": ("PROXMOX_TOKEN_SECRET", {"type": "str", "no_log": True}),
        "validate_certs": ("PROXMOX_VALIDATE_CERTS", {"type": "bool", "default": True}),
        "ca_path": ("PROXMOX_CA_PATH", {"type": "path"}),
        "api_timeout": ("PROXMOX_TIMEOUT", {"type": "int", "default": _DEFAULT_TIMEOUT}),
    }
    return {name: {"fallback": (env_fallback, [variable]), **spec} for name, (variable, spec) in options.items()}


def contradicted_credentials(given: Mapping[str, t.Any], spec: Mapping[str, t.Any]) -> dict[str, None]:
    """Return the credentials that must not come from the environment, as None: what a task gives belongs together.

    The password in the environment may be that of another cluster, and a token in a task leaves no use for it.
    """
    has_password = bool(given.get("api_password"))
    has_token = bool(given.get("api_token_id") or given.get("api_token_secret"))
    if has_password == has_token:
        return {}
    unused = ("api_token_id", "api_token_secret") if has_password else ("api_password",)
    return {option: None for option in unused if option in spec and not given.get(option)}


def token_authentication(token: str, secret: str) -> Authentication:
    """Return the authentication of an API token (C(user@realm!name)), which takes no request."""
    from proxmoxer.backends.https import ProxmoxHTTPApiTokenAuth

    user, _separator, name = token.rpartition("!")
    return t.cast("Authentication", ProxmoxHTTPApiTokenAuth(user, name, secret))


def ticket_authentication(
    user: str, password: str, ask: Callable[[Mapping[str, str]], Mapping[str, t.Any]]
) -> Authentication:
    """Return the authentication of a user with a password. It takes one request for a ticket, and one an hour to renew
    it. May be used from many threads.

    ask sends a login and returns the data of its answer. It replaces the login of proxmoxer, which sends the password
    to the target of a redirect and does not limit the size of an answer.
    """
    from proxmoxer.backends.https import ProxmoxHTTPAuth

    class TicketAuthentication(ProxmoxHTTPAuth):
        """proxmoxer's tickets, requested by our own login call."""

        pve_auth_ticket: str

        def _get_new_tokens(self, password: str | None = None, **_otp: t.Any) -> None:
            answer = ask({"username": user, "password": self.pve_auth_ticket if password is None else password})
            if answer.get("NeedTFA"):
                raise AuthenticationFailed(f"{user} needs a second factor, which is not supported; use an API token")
            ticket, csrf_token = str(answer.get("ticket", "")), str(answer.get("CSRFPreventionToken", ""))
            if not (_HEADER_VALUE.fullmatch(ticket) and _HEADER_VALUE.fullmatch(csrf_token)):
                raise ConnectionFailed(f"POST {LOGIN_PATH}: the answer has no ticket; is this the Proxmox API?")
            self.pve_auth_ticket, self.csrf_prevention_token = ticket, csrf_token
            self.birth_time = time.monotonic()

    return t.cast("Authentication", TicketAuthentication(user, password))


def credentials(params: Mapping[str, t.Any]) -> tuple[str, str | None, str | None]:
    """Return the user as tasks name it, the password or None, and the token's secret or None. If both are given, the
    password is used.

    Raises InvalidRequest when they are missing or contradict each other.
    """
    user = str(_require(params, "api_user"))
    if not _USER.fullmatch(user):
        hint = "; the name of a token, after the !, belongs in api_token_id" if "!" in user else ""
        raise InvalidRequest(f"api_user: expected user@realm, for example root@pam{hint}{got('api_user', user)}")
    if params.get("api_password"):
        return user, str(params["api_password"]), None
    token, secret = params.get("api_token_id"), params.get("api_token_secret")
    if token and not secret:
        _require(params, "api_token_secret")
    if not (token and secret):
        raise InvalidRequest(
            "api_password is missing, or api_token_id with api_token_secret: set them, or PROXMOX_TOKEN_ID and "
            "PROXMOX_TOKEN_SECRET in the environment"
        )
    owner, _separator, name = str(token).rpartition("!")
    if not _TOKEN_NAME.fullmatch(name) or _SECRET.fullmatch(name):
        # The value is not shown: it may be the secret, or have it behind the name.
        raise InvalidRequest("api_token_id: expected the name of a token: letters, digits, dots, dashes, underscores")
    if owner not in ("", user):
        raise InvalidRequest(f"api_token_id: the token of another user than api_user{got('api_user', owner)}")
    full = f"{user}!{name}"
    if not _HEADER_VALUE.fullmatch(str(secret)):
        raise InvalidRequest("api_token_secret: expected printable characters without spaces")
    return full, None, str(secret)


def endpoint_of(params: Mapping[str, t.Any]) -> tuple[str, int]:
    """Return the key of a cluster, from the connection options: its hosts and their port."""
    return ",".join(params["api_host"]), int(params.get("api_port") or _DEFAULT_PORT)


def verification(params: Mapping[str, t.Any]) -> bool | str:
    """Return whether certificates are verified, or the path of the trusted authorities. Raises InvalidRequest."""
    if params.get("validate_certs") is False:
        return False
    ca_path = params.get("ca_path")
    if not ca_path:
        return True
    text = str(ca_path)
    # For a text that cannot be a path these return False.
    if not (os.path.isfile(text) or os.path.isdir(text)):
        raise InvalidRequest(f"ca_path: expected a file or a directory that exists{got('ca_path', text)}")
    return text


def _timeout(params: Mapping[str, t.Any]) -> int:
    """Return the seconds for one request. Raises InvalidRequest."""
    given = params.get("api_timeout")
    if given is None:
        return _DEFAULT_TIMEOUT
    return _number("api_timeout", given, _LONGEST_TIMEOUT, f"1 to {_LONGEST_TIMEOUT} seconds")


def require_libraries() -> None:
    """Raise MissingLibrary when C(requests) or C(proxmoxer) is not installed."""
    # Without requests, importing proxmoxer's backend ends the process.
    for package in ("requests", "proxmoxer"):
        if importlib.util.find_spec(package) is None:
            raise MissingLibrary(
                f"the Python package {package} is not installed for {sys.executable}",
                package=package,
                interpreter=sys.executable,
            )


def _host(text: str, port: int) -> Host:
    """Return a host from C(api_host): a name or address, with an own port behind a colon. Raises InvalidRequest."""
    if "://" in text or "/" in text or "@" in text:
        what = "a host name or address without user, scheme and path"
        raise InvalidRequest(f"api_host: expected {what}{got('api_host', text)}")
    found = re.fullmatch(r"\[([0-9A-Fa-f:.%\w]+)\](?::(\d{1,5}))?|([\w.-]+):(\d{1,5})", text)
    name, own_port = (found[1] or found[3], found[2] or found[4]) if found else (text, None)
    if not re.fullmatch(r"[\w.-]+|[0-9A-Fa-f:.]+(%\w+)?", name):
        raise InvalidRequest(f"api_host: expected a host name or address{got('api_host', text)}")
    number = _number("api_host" if own_port else "api_port", own_port or port, 65535, "a port from 1 to 65535")
    address = f"[{name}]" if ":" in name else name
    return Host(f"{address}:{number}", f"https://{address}:{number}/api2/json")


def _number(option: str, given: int | str, largest: int, expected: str) -> int:
    """Return a number from 1 to largest. Raises InvalidRequest."""
    number = whole_number(given) if isinstance(given, str) else int(given)
    if number is None or not 1 <= number <= largest:
        shown = given if isinstance(given, str) else number_text(given)
        raise InvalidRequest(f"{option}: expected {expected}{got(option, shown)}")
    return number


def _require(params: Mapping[str, t.Any], option: str) -> t.Any:
    value = params.get(option)
    if not value or value == [""]:
        variable = option.upper().replace("API_", "PROXMOX_")
        raise InvalidRequest(f"{option} is missing: set it, or {variable} in the environment", option=option)
    return value
