# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a session does when something other than a well-behaved cluster answers."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import ssl
import threading
import time
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from simulated_cluster.certificates import Certificates
from simulated_cluster.client import SimulatedCluster

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    ApiError,
    ConnectionFailed,
    InvalidRequest,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api import transport
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.failures import AnswerLost
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import (
    Session,
    ticket_authentication,
)

PASSWORD = "hunter22-hunter22"


class RudeServer:
    """A TLS server that answers every request with what it was told, a piece at a time.

    Attributes:
        requests: what it received, as text.
    """

    def __init__(self, folder: Path, pieces: Callable[[], Iterator[bytes]], *, tls: bool = True) -> None:
        self.certificates = Certificates(folder, "127.0.0.1")
        self.requests: list[str] = []
        self._pieces = pieces
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if tls else None
        if self._context:
            self._context.load_cert_chain(self.certificates.certificate, self.certificates.key)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _address = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            if self._context:
                connection = self._context.wrap_socket(connection, server_side=True)
            with connection:
                # A greeting of TLS is no request that has an end.
                read = _request if self._context else lambda connection: connection.recv(65536).decode("latin-1")
                self.requests.append(read(connection))
                for piece in self._pieces():
                    connection.sendall(piece)

    def close(self) -> None:
        self._socket.close()

    def connect(self, **changes: t.Any) -> Session:
        options: dict[str, t.Any] = {
            "api_host": ["127.0.0.1"],
            "api_port": self.port,
            "api_user": "root@pam",
            "api_token_id": "tok",
            "api_token_secret": "secret-of-the-token",
            "ca_path": str(self.certificates.ca),
            **changes,
        }
        return Session.connect(options, lambda seconds: None)


def _request(connection: socket.socket) -> str:
    """Read one whole request, so that nothing unread resets the connection."""
    text = ""
    while piece := connection.recv(65536):
        text += piece.decode("latin-1")
        head, end, body = text.partition("\r\n\r\n")
        length = re.search(r"(?i)content-length: (\d+)", head)
        if end and len(body) >= int(length[1] if length else 0):
            break
    return text


@pytest.fixture
def rude(tmp_path: Path) -> Iterator[Callable[..., RudeServer]]:
    servers: list[RudeServer] = []

    def start(*pieces: bytes, endless: bytes = b"", pause: float = 0.0, tls: bool = True) -> RudeServer:
        def told() -> Iterator[bytes]:
            yield from pieces
            for piece in itertools.repeat(endless) if endless else ():
                time.sleep(pause)
                yield piece

        servers.append(RudeServer(tmp_path, told, tls=tls))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def answer(status: str, *headers: str, body: str = "") -> bytes:
    lines = [f"HTTP/1.1 {status}", "Connection: close", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect__is_not_followed_and_its_target_is_told(rude: Callable[..., RudeServer], status: int) -> None:
    other = rude(answer("200 OK", body='{"data": {"release": "9.2"}}'))
    target = f"https://ann:{PASSWORD}@127.0.0.1:{other.port}/api2/json/version"
    server = rude(answer(f"{status} Go there", f"Location: {target}?secret={PASSWORD}"))
    with pytest.raises(ConnectionFailed, match="redirected to") as raised:
        server.connect().get("/version")
    assert f"https://127.0.0.1:{other.port}/api2/json/version" in raised.value.message
    assert PASSWORD not in raised.value.message
    assert other.requests == []


def test_a_redirected_login__does_not_send_the_password_along(rude: Callable[..., RudeServer]) -> None:
    other = rude(answer("200 OK", body='{"data": {"ticket": "x", "CSRFPreventionToken": "y"}}'))
    server = rude(answer("307 Go there", f"Location: https://127.0.0.1:{other.port}/api2/json/access/ticket"))
    with pytest.raises(ConnectionFailed, match="redirected to"):
        server.connect(api_password=PASSWORD)
    assert len(server.requests) == 1
    assert other.requests == []


def test_netrc__is_not_read(rude: Callable[..., RudeServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login ann password {PASSWORD}\n", encoding="utf-8")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    server = rude(answer("200 OK", body='{"data": {"ticket": "x", "CSRFPreventionToken": "y"}}'))
    server.connect(api_password="another")
    assert "authorization" not in server.requests[0].lower()
    session = server.connect()
    with contextlib.suppress(ConnectionFailed):
        session.get("/version")
    assert "Authorization: PVEAPIToken=root@pam!tok=secret-of-the-token" in server.requests[1]


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"])
def test_an_answer_that_trickles__is_given_up_after_api_timeout(rude: Callable[..., RudeServer], begun: bytes) -> None:
    server = rude(begun, endless=b"H" if begun == b"" else b" ", pause=0.2)
    started = time.monotonic()
    with pytest.raises(ConnectionFailed, match="no answer within api_timeout"):
        server.connect(api_timeout=1).get("/version")
    assert time.monotonic() - started < 60
    with pytest.raises(AnswerLost, match="no answer within api_timeout"):
        server.connect(api_timeout=1).put("/nodes/a/qemu/100/config", cores=2)


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 Connection established\r\n"])
def test_a_proxy_that_trickles__is_given_up_after_api_timeout(
    begun: bytes, rude: Callable[..., RudeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = rude(begun, endless=b"X", pause=0.2, tls=False)
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    started = time.monotonic()
    with pytest.raises(ConnectionFailed):
        proxy.connect(api_host=["192.0.2.1"], api_timeout=1).get("/version")
    assert proxy.requests[0].startswith("CONNECT 192.0.2.1")
    # Each read is tried three times.
    assert time.monotonic() - started < 60


def test_an_endless_answer__is_given_up(rude: Callable[..., RudeServer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "LARGEST_ANSWER", 4 * 1024**2)
    server = rude(b'HTTP/1.1 200 OK\r\n\r\n{"data": "', endless=b"x" * 65536)
    with pytest.raises(ConnectionFailed, match="larger than 4 MiB"):
        server.connect().get("/version")


def test_a_port_of_plain_http__is_told(rude: Callable[..., RudeServer]) -> None:
    server = rude(answer("400 Bad Request"), tls=False)
    with pytest.raises(ConnectionFailed, match="does not speak HTTPS, but perhaps HTTP; check api_port"):
        server.connect().get("/version")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("api_timeout", -5),
        ("api_timeout", 0),
        ("api_timeout", 10**12),
        ("api_port", 70000),
        ("api_port", -1),
        ("api_port", 0),
        ("api_host", ["pve1", "https://pve2"]),
        ("api_host", ["a b"]),
        ("api_host", ["pve1:99999"]),
        ("api_host", ["pve1", ""]),
        ("api_host", ["ann@pve1"]),
        ("api_host", ["pve\x001"]),
        ("ca_path", "/dev/zero"),
        ("ca_path", "a\0b"),
        ("api_token_secret", "two\nlines"),
    ],
)
def test_an_option_that_cannot_be_right__is_named(connect: Callable[..., Session], option: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=option):
        connect(**{option: value})


@pytest.mark.parametrize(
    "body",
    [
        '{"data": null}',
        '{"data": [{"type": "node", "node": null}]}',
        '{"data": [{"type": "qemu", "node": "a", "vmid": "x"}]}',
        '{"data": [{"type": "node", "node": "a", "cpu": NaN}]}',
        '{"data": [{"type": "node", "node": "a", "maxmem": 1' + "0" * 5000 + "}]}",
        '{"data": [{"type": "node", "node": "\\ud800"}]}',
        '{"data": ' + "[" * 200_000 + "]" * 200_000 + "}",
        "[]",
        "null",
        "",
        "\0",
        "<html>",
    ],
)
def test_an_answer_of_the_wrong_shape__is_a_failed_connection_that_names_the_call(
    rude: Callable[..., RudeServer], body: str
) -> None:
    session = rude(answer("200 OK", "Date: Sun, 99 Nov 99999 25:00:00 GMT", body=body)).connect()
    with pytest.raises(ConnectionFailed, match="GET /cluster/resources: the answer is not"):
        session.get("/cluster/resources")
    assert session.server_time() is None


@pytest.mark.parametrize(
    "body", ["{}", '{"data": null}', '{"data": {"ticket": null}}', '{"data": {"ticket": "a\\nb"}}']
)
def test_a_login_of_the_wrong_shape__is_a_failed_connection(rude: Callable[..., RudeServer], body: str) -> None:
    with pytest.raises(ConnectionFailed, match="POST /access/ticket: the answer"):
        rude(answer("200 OK", body=body)).connect(api_password=PASSWORD)


@pytest.mark.parametrize("body", ["[" * 200_000, '{"message": ["x"], "errors": {"a": {}}}', '{"errors": []}', "\0"])
def test_an_error_of_the_wrong_shape__is_still_told(rude: Callable[..., RudeServer], body: str) -> None:
    with pytest.raises(ApiError, match="GET /version"):
        rude(answer("500 Oh", body=body)).connect().get("/version")


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_api_host__the_next_host_is_tried_when_the_first_is_down(
    cluster: SimulatedCluster, connect: Callable[..., Session]
) -> None:
    session = connect(api_host=[f"127.0.0.1:{unused_port()}", f"localhost:{cluster.port}"])
    assert session.get("/version")["release"]
    assert session.requests_made == 2
    session.put("/nodes/pve1/qemu/100/config", description="x")
    assert session.requests_made == 3, "the host that answered is asked first from then on"
    assert session.where == f"localhost:{cluster.port}"


def test_api_host__a_password_is_sent_to_the_next_host_too(
    cluster: SimulatedCluster, connect: Callable[..., Session]
) -> None:
    down = f"127.0.0.1:{unused_port()}"
    who = {"api_user": cluster.user, "api_password": cluster.password}
    session = connect(api_host=[down, "127.0.0.1"], **who)
    assert session.get("/version")["release"]


def test_api_host__all_down_is_a_failed_connection(connect: Callable[..., Session]) -> None:
    session = connect(api_host=[f"127.0.0.1:{unused_port()}", f"127.0.0.1:{unused_port()}"])
    with pytest.raises(ConnectionFailed, match="Connection refused"):
        session.post("/nodes/pve1/qemu", vmid=200)


def test_api_host__a_host_that_goes_down_in_mid_run_is_left(
    rude: Callable[..., RudeServer], cluster: SimulatedCluster, connect: Callable[..., Session]
) -> None:
    dying = rude(b"")
    ca = Path(cluster.ca_path).read_text(encoding="utf-8") + dying.certificates.ca.read_text(encoding="utf-8")
    both = dying.certificates.ca.with_name("both.pem")
    both.write_text(ca, encoding="utf-8")
    session = connect(api_host=[f"127.0.0.1:{dying.port}", "127.0.0.1"], ca_path=str(both))
    with pytest.raises(AnswerLost):
        session.put("/nodes/pve1/qemu/100/config", description="x")
    assert len(dying.requests) == 1
    assert cluster.requests() == [], "a write that may have been done is not sent to another host"
    assert session.get("/version")["release"], "a read is"
    session.put("/nodes/pve1/qemu/100/config", description="x")
    assert len(dying.requests) == 2


def test_a_ticket__is_renewed_before_it_expires() -> None:
    asked = []

    def ask(sent: t.Any) -> dict[str, str]:
        asked.append(sent["password"])
        return {"ticket": f"ticket-{len(asked)}", "CSRFPreventionToken": "token"}

    login: t.Any = ticket_authentication("root@pam", PASSWORD, ask)
    read, write = (requests.Request(method, "https://pve1:8006").prepare() for method in ("GET", "PUT"))
    assert "CSRFPreventionToken" not in login(read).headers
    assert login.get_cookies() == {"PVEAuthCookie": "ticket-1"}
    login.birth_time -= 3601
    assert login(write).headers["CSRFPreventionToken"] == "token"
    assert login.get_cookies() == {"PVEAuthCookie": "ticket-2"}
    assert asked == [PASSWORD, "ticket-1"]
