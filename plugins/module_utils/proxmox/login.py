# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the connection options to a login of proxmoxer: a token (no request) or a ticket (one request)."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
import typing as t
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ansible.module_utils.basic import env_fallback

from ..errors import ApiError, AuthenticationFailed, CollectionError, InvalidRequest, MissingLibrary
from .answers import WORTH_ANOTHER_READ, failure_of_answer, failure_of_exception, worth_another_read

_DEFAULT_PORT = 8006
_DEFAULT_TIMEOUT = 30
_LOGIN_PATH = "/access/ticket"
# Seconds before each further try of a read (a login is one) whose connection broke.
READ_AGAIN_AFTER = (0.2, 1.0)


def connection_argument_spec() -> dict[str, dict[str, t.Any]]:
    """Return the Ansible argument spec of the connection options, with their environment variables."""

    def option(variable: str, **spec: t.Any) -> dict[str, t.Any]:
        return {"fallback": (env_fallback, [variable]), **spec}

    return {
        "api_host": option("PROXMOX_HOST", type="str"),
        "api_port": option("PROXMOX_PORT", type="int"),
        "api_user": option("PROXMOX_USER", type="str"),
        "api_password": option("PROXMOX_PASSWORD", type="str", no_log=True),
        "api_token_id": option("PROXMOX_TOKEN_ID", type="str", no_log=False),
        "api_token_secret": option("PROXMOX_TOKEN_SECRET", type="str", no_log=True),
        "validate_certs": option("PROXMOX_VALIDATE_CERTS", type="bool", default=True),
        "ca_path": option("PROXMOX_CA_PATH", type="path"),
        "api_timeout": option("PROXMOX_TIMEOUT", type="int", default=_DEFAULT_TIMEOUT),
    }


@dataclass(frozen=True, slots=True)
class Login:
    """A login that worked.

    Attributes:
        user: who calls, as Proxmox names them in tasks (C(root@pam), C(op@pve!token)).
        where: C(host:port), for messages.
        requests: how many requests it took.
        base_url: what API paths are appended to.
        verify: whether certificates are verified, or the path of the authorities that are trusted.
        timeout: seconds to wait for a connection, and then for an answer.
        new_http: makes a C(requests) session that carries this login; each is for one thread at a time.
    """

    user: str
    where: str
    requests: int
    base_url: str
    verify: bool | str
    timeout: int
    new_http: Callable[[], t.Any]


def log_in(params: Mapping[str, t.Any], sleep: Callable[[float], None] = time.sleep) -> Login:
    """Log in with the options of C(connection_argument_spec); with both a password and a token, with the password.

    Raises:
        MissingLibrary: proxmoxer or requests is not installed.
        InvalidRequest: the host, the user or the credentials are missing, or ca_path does not exist.
        AuthenticationFailed, ConnectionFailed, ApiError: the login failed.
    """
    user, arguments = _credentials(params)
    host, port = _required(params, "api_host"), params.get("api_port") or _DEFAULT_PORT
    if "://" in host or "/" in host:
        raise InvalidRequest(f'api_host: expected a host name or address without scheme and path, got "{host}"')
    arguments |= {"host": host, "port": port, "verify_ssl": _verification(params)}
    arguments["timeout"] = params.get("api_timeout") or _DEFAULT_TIMEOUT
    where = host if re.search(r"[^:]:\d+$", host) else f"{host}:{port}"
    backend_class = _proxmoxer_backend()
    tries = 0
    while True:
        tries += 1
        again = tries <= len(READ_AGAIN_AFTER)
        try:
            backend = backend_class(**arguments)
        except _login_exceptions() as error:
            failure, temporary = _login_failure(error, where, user)
            if not (temporary and again):
                raise failure from None
        else:
            requests = tries if "password" in arguments else 0
            base_url, verify, timeout = backend.get_base_url(), arguments["verify_ssl"], arguments["timeout"]
            return Login(user, where, requests, base_url, verify, timeout, backend.get_session)
        sleep(READ_AGAIN_AFTER[tries - 1])


def _credentials(params: Mapping[str, t.Any]) -> tuple[str, dict[str, t.Any]]:
    """Return the user as tasks name them, and the arguments of proxmoxer's backend that say who logs in."""
    user = _required(params, "api_user")
    if "@" not in user:
        raise InvalidRequest(f'api_user: expected user@realm, for example root@pam, got "{user}"')
    if params.get("api_password"):
        return user, {"user": user, "password": params["api_password"]}
    token, secret = params.get("api_token_id"), params.get("api_token_secret")
    if not (token and secret):
        raise InvalidRequest("api_password is missing, or api_token_id with api_token_secret")
    owner, _separator, name = token.rpartition("!")
    if owner not in ("", user):
        raise InvalidRequest(f'api_token_id: the token of another user than api_user ("{user}"): "{token}"')
    return f"{user}!{name}", {"user": user, "token_name": name, "token_value": secret}


def _required(params: Mapping[str, t.Any], option: str) -> str:
    value = params.get(option)
    if not value:
        variable = option.upper().replace("API_", "PROXMOX_")
        raise InvalidRequest(f"{option} is missing: set it, or {variable} in the environment", option=option)
    return str(value)


def _verification(params: Mapping[str, t.Any]) -> bool | str:
    if params.get("validate_certs") is False:
        return False
    ca_path = params.get("ca_path")
    if not ca_path:
        return True
    if not Path(ca_path).exists():
        raise InvalidRequest(f'ca_path: no such file or directory: "{ca_path}"')
    return str(ca_path)


def _proxmoxer_backend() -> t.Any:
    # Without requests, importing proxmoxer's backend ends the process.
    for package in ("requests", "proxmoxer"):
        if importlib.util.find_spec(package) is None:
            raise MissingLibrary(
                f"the Python package {package} is not installed for {sys.executable}",
                package=package,
                interpreter=sys.executable,
            )
    from proxmoxer.backends.https import Backend

    return Backend


def authentication_error() -> type[Exception]:
    """Return what proxmoxer raises when a ticket is refused."""
    from proxmoxer.core import AuthenticationError

    return t.cast("type[Exception]", AuthenticationError)


def _login_exceptions() -> tuple[type[Exception], ...]:
    import requests

    # The last three: an answer of status 200 that is not one of the Proxmox API.
    return (requests.exceptions.RequestException, authentication_error(), ValueError, KeyError, TypeError)


def _login_failure(error: Exception, where: str, user: str) -> tuple[CollectionError, bool]:
    """Return the error to tell, and whether another try may help."""
    import requests

    if isinstance(error, authentication_error()):
        if "Two Factor" in str(error):
            message = f"{where}: {user} needs a second factor, which cannot be given here; use an API token"
            return AuthenticationFailed(message), False
        # Early versions of proxmoxer do not tell the status.
        status = re.search(r"code: (\d{3})$", str(error))
        code = int(status[1]) if status else 401
        if code == 401:
            return AuthenticationFailed(f'{where}: user "{user}" or the password was refused'), False
        return failure_of_answer("POST", _LOGIN_PATH, code, "login refused", "", {}), code in WORTH_ANOTHER_READ
    if isinstance(error, requests.exceptions.JSONDecodeError) or not isinstance(error, requests.RequestException):
        return ApiError(f"{where}: the login's answer is not of the Proxmox API; is this its address and port?"), False
    return failure_of_exception(error, "GET", _LOGIN_PATH, where), worth_another_read(error)
