# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes errors of failed API answers and broken connections. Pure: nothing is sent here."""

from __future__ import annotations

import json
import re
import ssl
import typing as t
from collections.abc import Iterator, Mapping

from ...errors import ApiError, AuthenticationFailed, CollectionError, ConnectionFailed, NoQuorum, PermissionDenied
from ..outcomes import lacks_quorum
from .failures import AnswerLost, NodeSilent, NodeUnreachable, NotImplementedHere, WrongConnection

# Status codes of pveproxy for a call that it could not pass on to another node or daemon, and those of a reverse proxy.
CONNECTION_TO_NODE_FAILED = 595
_BROKEN_ON_THE_WAY = frozenset({502, 504, 596, 597, 598, 599})
_BUSY = 503
WORTH_ANOTHER_READ = frozenset({502, _BUSY, CONNECTION_TO_NODE_FAILED, 596, 597})
# Status codes of a reverse proxy that does not reach the API behind it: another host may.
AT_ANOTHER_HOST = frozenset({502, _BUSY, 504})

_SECRET_PARAMETERS = frozenset({"cipassword", "password", "secret", "sshkeys", "tfa-challenge", "ticket", "value"})
_HIDDEN = "********"


def hide_secrets(text: str, params: Mapping[str, t.Any]) -> str:
    """Return text with the values of secret params hidden: Proxmox quotes some values in its errors."""
    for key, value in params.items():
        if key in _SECRET_PARAMETERS and len(str(value)) > 2:
            text = text.replace(str(value), _HIDDEN)
    return text


def failure_of_answer(
    method: str, path: str, status: int, reason: str, body: str, params: Mapping[str, t.Any]
) -> CollectionError:
    """Return the error for an answer of status 400 or above.

    The message is the call, followed by Proxmox's own message. details hold C(method), C(path), C(status) and, for
    refused parameters, C(errors) by field.
    """
    answer = _parse(body)
    message, fields = _message(answer, reason), _fields(answer)
    if fields:
        message = "; ".join([message.rstrip("."), *(f"{field}: {text}" for field, text in sorted(fields.items()))])
    message = hide_secrets(message, params)
    details: dict[str, t.Any] = {"method": method, "path": path, "status": status}
    if fields:
        details["errors"] = {field: hide_secrets(text, params) for field, text in fields.items()}
    call = f"{method} {path}"
    if status == 401:
        return AuthenticationFailed(f"{call}: {message or 'no reason given'}", **details)
    if status == 403:
        return PermissionDenied(f"{call}: {message}{_missing_privilege(path, message, params)}", **details)
    if status == 501:
        return NotImplementedHere(f"{call}: {message}", **details)
    if status == CONNECTION_TO_NODE_FAILED:
        return NodeUnreachable(f"{call}: the node cannot be reached: {message}", **details)
    if status in _BROKEN_ON_THE_WAY:
        kind = NodeUnreachable if method == "GET" else NodeSilent
        return kind(f"{call}: the node did not respond (status {status}): {message}", **details)
    if status == _BUSY:
        return ConnectionFailed(f"{call}: the service is not available: {message}", **details)
    if lacks_quorum(message):
        return NoQuorum(f"the cluster has no quorum, so nothing can be changed: {call}: {message}", **details)
    return ApiError(f"{call}: {message}", **details)


def _missing_privilege(path: str, message: str, params: Mapping[str, t.Any]) -> str:
    """Return the privilege that a refused create or clone needs if Proxmox does not name it; else an empty text."""
    vmid = params.get("newid" if path.endswith("/clone") else "vmid")
    if "(" in message or vmid is None or not re.fullmatch(r"/nodes/[^/]+/qemu(/\d+/clone)?", path):
        return ""
    where = f"/vms/{vmid}" + (f" or /pool/{params['pool']}" if params.get("pool") else "")
    return f" (the user needs VM.Allocate on {where})"


def redirect_error(method: str, path: str, where: str, location: str | None) -> ConnectionFailed:
    """Return the error for a redirect. It is not followed, so that no credentials are sent to another host.

    where is the C(host:port) that answered.
    """
    return WrongConnection(
        f"{where}: {method} {path}: redirected to {_without_secrets(location or 'nowhere')}, which is not followed; "
        "set api_host and api_port to the address of the API itself",
        method=method,
        path=path,
    )


def failure_of_exception(error: Exception, method: str, path: str, where: str, *, repeatable: bool) -> ConnectionFailed:
    """Return the error for an exception of C(requests), when no usable answer came. where is C(host:port).

    It is an AnswerLost if the request may have reached the server and is not repeatable.
    """
    import requests

    details = {"method": method, "path": path}
    if isinstance(error, requests.exceptions.SSLError):
        if re.search(r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST", str(error)):
            return WrongConnection(
                f"{where}: the port does not speak HTTPS, but perhaps HTTP; check api_port (Proxmox VE uses 8006)",
                **details,
            )
        if re.search(r"NO_CERTIFICATE_OR_CRL_FOUND|NO_START_LINE|PEM lib|\[X509", str(error)):
            # What it is may be a private key: it is not shown.
            return WrongConnection(f"ca_path: the file has no certificate in PEM format; {_TRUST}", **details)
        text = f"{where}: the TLS connection failed: {_innermost(error)}"
        refused = next((cause for cause in _causes(error) if isinstance(cause, ssl.SSLCertVerificationError)), None)
        if refused is not None:
            return WrongConnection(f"{text}; {_cure_of(refused)}", **details)
        # It may have failed while the answer was read.
        return (ConnectionFailed if repeatable else AnswerLost)(text, **details)
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return ConnectionFailed(f"{where}: no connection in time", **details)
    if isinstance(error, requests.exceptions.ProxyError) or _was_never_sent(error):
        return ConnectionFailed(f"{where}: cannot connect: {_innermost(error)}", **details)
    if _is_timeout(error):
        what = "no answer within api_timeout"
    elif isinstance(error, requests.exceptions.ContentDecodingError):
        what = f"the answer cannot be read: {_innermost(error)}"
    else:
        what = f"the connection was lost before the answer came: {_innermost(error)}"
    kind = ConnectionFailed if repeatable else AnswerLost
    return kind(f"{where}: {method} {path}: {what}", **details)


# Codes of OpenSSL for certificates that it does not accept.
_EXPIRED = frozenset({9, 10})
_OTHER_NAME = frozenset({62, 64})
_TRUST = "set ca_path to the file of its CA, /etc/pve/pve-root-ca.pem of a node if Proxmox VE made it"


def _cure_of(error: ssl.SSLCertVerificationError) -> str:
    """Return how to make a certificate acceptable."""
    # Only errors that OpenSSL raised have a code.
    code = getattr(error, "verify_code", None)
    if code in _EXPIRED:
        return "renew the certificate (pvenode cert), and check the clocks of the node and of this host"
    if code in _OTHER_NAME:
        return "set api_host to a name or an address that the certificate has"
    return _TRUST


def worth_another_read(error: Exception) -> bool:
    """Whether a read that failed with this exception of C(requests) may succeed a moment later."""
    import requests

    hopeless = (requests.exceptions.SSLError, requests.exceptions.ProxyError)
    lost = (requests.exceptions.ConnectionError, requests.exceptions.ChunkedEncodingError)
    return isinstance(error, lost) and not isinstance(error, hopeless) and not _is_timeout(error)


def _is_timeout(error: BaseException) -> bool:
    # A timeout in the middle of an answer is raised as a lost connection.
    return any(
        type(cause).__name__ in ("ConnectTimeout", "ReadTimeout", "ReadTimeoutError") for cause in _causes(error)
    )


def _without_secrets(location: str) -> str:
    """Return a URL without user, password, query and fragment."""
    return re.sub(r"//[^/]*@", "//", re.sub(r"[?#].*", "", location, flags=re.DOTALL))[:200]


def _parse(body: str) -> Mapping[str, t.Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _message(answer: Mapping[str, t.Any], reason: str) -> str:
    # The reason phrase has only the first line of the message; an answer without JSON has nothing else.
    text = str(answer.get("message") or reason or "")
    return " ".join(text.split())


def _fields(answer: Mapping[str, t.Any]) -> dict[str, str]:
    errors = answer.get("errors")
    if not isinstance(errors, dict):
        return {}
    return {str(field): " ".join(str(text).split()) for field, text in errors.items()}


def _was_never_sent(error: BaseException) -> bool:
    return any(type(cause).__name__ in ("NewConnectionError", "NameResolutionError") for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception of C(requests) or C(urllib3) and those that it wraps, outermost first."""
    yield error
    for inner in (getattr(error, "reason", None), *error.args):
        if isinstance(inner, BaseException):
            yield from _causes(inner)


def _innermost(error: BaseException) -> str:
    text = str(list(_causes(error))[-1])
    # urllib3 puts its own objects in front: "<...HTTPSConnection object at 0x...>: Failed to ..."
    return re.sub(r"^<[^>]*>: |^HTTPSConnection\([^)]*\): ", "", text)
