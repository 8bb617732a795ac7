# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A session says what went wrong, repeats only what may be repeated, and is shared by threads."""

from __future__ import annotations

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    ApiError,
    AuthenticationFailed,
    ConnectionFailed,
    InvalidRequest,
    MissingLibrary,
    PermissionDenied,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.failures import (
    AnswerLost,
    NodeUnreachable,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import (
    connection_argument_spec,
)


def test_token__costs_no_request_and_a_password_one(cluster, connect):
    assert connect().requests_made == 0
    with_password = connect(api_user=cluster.user, api_password=cluster.password)

    assert [(request["method"], request["path"]) for request in cluster.requests()] == [("POST", "/access/ticket")]
    assert with_password.get("/version")
    assert with_password.requests_made == 2


def test_user__is_named_as_tasks_name_them(cluster, connect):
    assert connect().user == f"{cluster.token_user}!{cluster.token_id}"
    assert connect(api_token_id=f"{cluster.token_user}!{cluster.token_id}").user == f"{cluster.token_user}!ansible"
    assert connect(api_user=cluster.user, api_password=cluster.password).user == "root@pam"


def test_wrong_secret__is_refused_with_the_reason_and_without_the_secret(connect):
    with pytest.raises(AuthenticationFailed) as raised:
        connect(api_token_secret="not-the-secret").get("/version")

    assert "not-the-secret" not in raised.value.message


def test_revoked_ticket__is_replaced_by_another_login(cluster, connect):
    session = connect(api_user=cluster.user, api_password=cluster.password)
    cluster.revoke_tickets()
    assert session.get("/version")
    cluster.revoke_tickets()
    session.post("/pools", poolid="made")
    assert session.requests_made == 7
    cluster.fault(path="/version$", status=401, count=2)
    with pytest.raises(AuthenticationFailed):
        session.get("/version")


def test_refused_token__is_not_tried_again(cluster, connect):
    session = connect()
    cluster.fault(path="/version$", status=401, count=1)
    with pytest.raises(AuthenticationFailed):
        session.get("/version")
    assert session.requests_made == 1


def test_wrong_password__is_refused_without_the_password(cluster, connect):
    with pytest.raises(AuthenticationFailed, match="root@pam") as raised:
        connect(api_user=cluster.user, api_password="hunter22")

    assert "hunter22" not in raised.value.message


def test_certificate_of_an_unknown_authority__is_not_trusted(connect):
    with pytest.raises(ConnectionFailed, match="ca_path"):
        connect(ca_path=None).get("/version")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert connect(ca_path=None, validate_certs=False).get("/version")
    assert warned == []


@pytest.mark.parametrize("options", [{}, {"api_user": "root@pam", "api_password": "x"}])
def test_nobody_listening__is_a_failed_connection(connect, options):
    with pytest.raises(ConnectionFailed, match="Connection refused"):
        connect(api_port=1, **options).get("/version")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"api_host": None}, "api_host"),
        ({"api_host": ["https://pve:8006"]}, "api_host"),
        ({"api_user": "root"}, "api_user"),
        ({"api_token_secret": None}, "api_token_secret"),
        ({"api_token_id": "other@pve!tok"}, "api_token_id"),
        ({"ca_path": "/no/such/file"}, "ca_path"),
        ({"api_timeout": 10**5000}, "api_timeout: expected 1 to "),
    ],
)
def test_connection_option_that_cannot_be_right__is_named(connect, options, named):
    with pytest.raises(InvalidRequest, match=named):
        connect(**options)


def test_missing_library__is_named_with_its_interpreter(connect, monkeypatch):
    monkeypatch.delitem(sys.modules, "requests", raising=False)
    monkeypatch.setattr(sys, "path", [])

    with pytest.raises(MissingLibrary, match="requests") as raised:
        connect()
    assert sys.executable in raised.value.message


def test_every_connection_option__may_come_from_the_environment():
    variables = {name: spec["fallback"][1][0] for name, spec in connection_argument_spec().items()}

    assert variables == {
        "api_host": "PROXMOX_HOST",
        "api_port": "PROXMOX_PORT",
        "api_user": "PROXMOX_USER",
        "api_password": "PROXMOX_PASSWORD",
        "api_token_id": "PROXMOX_TOKEN_ID",
        "api_token_secret": "PROXMOX_TOKEN_SECRET",
        "validate_certs": "PROXMOX_VALIDATE_CERTS",
        "ca_path": "PROXMOX_CA_PATH",
        "api_timeout": "PROXMOX_TIMEOUT",
    }


@pytest.mark.parametrize(
    "fault", [{"drop": "before"}, {"drop": "after"}, {"status": 596}, {"status": 503}, {"status": 502}]
)
def test_read__is_tried_again_when_its_answer_did_not_come(cluster, session, fault):
    cluster.fault(method="GET", path="/version", count=2, **fault)

    assert session.get("/version")["release"]
    assert session.requests_made == 3


def test_read__fails_when_the_connection_breaks_every_time(cluster, session):
    cluster.fault(method="GET", path="/version", drop="before")

    with pytest.raises(ConnectionFailed):
        session.get("/version")
    assert session.requests_made == 3


def test_node_that_is_down__is_unreachable_and_not_asked_again_and_again(cluster, session):
    cluster.set_node("pve3", online=False)

    with pytest.raises(NodeUnreachable):
        session.get("/nodes/pve3/qemu")
    assert session.requests_made == 2


@pytest.mark.parametrize("fault", [{"drop": "before"}, {"drop": "after"}, {"status": 596}])
def test_write_whose_answer_did_not_come__is_lost_and_never_sent_again(cluster, session, fault):
    cluster.fault(method="PUT", path="/config", **fault)

    with pytest.raises(AnswerLost):
        session.put("/nodes/pve1/qemu/100/config", description="x")
    assert session.requests_made == 1


def test_write_that_is_not_answered_in_time__is_lost(cluster, connect):
    cluster.fault(method="PUT", path="/config", hang=True)

    with pytest.raises(AnswerLost, match="api_timeout"):
        connect(api_timeout=1).put("/nodes/pve1/qemu/100/config", description="x")


def test_write_to_a_node_that_is_down__was_not_done(cluster, session):
    cluster.set_node("pve3", online=False)

    with pytest.raises(NodeUnreachable):
        session.post("/nodes/pve3/qemu", vmid=200)


def test_refusals__are_told_in_the_words_of_proxmox(session, operator):
    with pytest.raises(ApiError) as refused:
        session.post("/nodes/pve1/qemu", vmid=200, cores=0, memory="8")
    with pytest.raises(ApiError, match="does not exist"):
        session.get("/nodes/pve1/qemu/4444/config")
    with pytest.raises(PermissionDenied, match=r"/vms/100"):
        operator.get("/nodes/pve1/qemu/100/config")

    assert set(refused.value.details["errors"]) == {"cores", "memory"}
    assert refused.value.details["status"] == 400


def test_secret_in_a_refused__call_is_not_told(session):
    with pytest.raises(ApiError) as raised:
        session.post("/nodes/pve1/qemu", vmid=200, cores=0, cipassword="hunter22")

    assert "hunter22" not in f"{raised.value.message} {raised.value.details}"


def test_parameters__are_sent_as_proxmox_takes_them(cluster, session):
    session.put("/nodes/pve1/qemu/100/config", {"onboot": True, "description": None}, agent="1")

    assert cluster.state()["guests"][100]["config"]["onboot"] in (1, "1")
    assert "description" not in cluster.state()["guests"][100]["config"]


@pytest.mark.parametrize("with_password", [False, True])
def test_many_threads__share_one_login(cluster, connect, with_password):
    session = connect(api_user=cluster.user, api_password=cluster.password) if with_password else connect()

    def use(vmid: int) -> set[str]:
        # Each thread has a VM of its own: on a busy machine, Proxmox would not get the lock of a common one in time.
        for number in range(20):
            session.put(f"/nodes/{nodes[vmid]}/qemu/{vmid}/config", description=f"number {number}")
        return {str(session.get(f"/nodes/{nodes[vmid]}/qemu/{vmid}/config")["name"])}

    nodes = {100: "pve1", 101: "pve2", 9000: "pve1"}
    with ThreadPoolExecutor(max_workers=3) as threads:
        assert list(threads.map(use, nodes)) == [{"app"}, {"busy"}, {"tpl"}]
    assert session.requests_made == 63 + with_password
    assert len(cluster.requests()) == session.requests_made


def test_clock_of_the_server__is_known_from_its_answers(cluster, session):
    assert session.server_time() is None
    session.get("/version")

    assert session.server_time() == pytest.approx(cluster.state()["now"], abs=600)
    with ThreadPoolExecutor(max_workers=1) as other_thread:
        assert other_thread.submit(session.answer_time).result() is None
    assert session.answer_time() == session.server_time()
