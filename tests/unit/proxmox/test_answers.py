# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the wire says becomes the error that a user is told."""

from __future__ import annotations

import json
import re
import ssl
import typing as t

import pytest
import requests
import urllib3

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    ApiError,
    AuthenticationFailed,
    CollectionError,
    ConnectionFailed,
    PermissionDenied,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.answers import (
    failure_of_answer,
    failure_of_exception,
    worth_another_read,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.failures import (
    AnswerLost,
    NodeUnreachable,
    NotImplementedHere,
    WrongConnection,
)


def failure_of(recorded: dict[str, t.Any], **changes: t.Any) -> CollectionError:
    recorded = {**recorded, **changes}
    request, body = recorded["request"], recorded["body"]
    text = body if isinstance(body, str) else json.dumps(body)
    method = changes.get("method", request["method"])
    return failure_of_answer(
        method, request["path"], recorded["status"], recorded["reason"], text, request["params"] or {}
    )


def test_refused_parameters__are_all_named_with_their_reasons(recording):
    recorded = recording("8.4", "err-create-cores-0")
    recorded["body"]["errors"]["memory"] = "too small\n"

    error = failure_of(recorded)

    assert type(error) is ApiError
    assert error.message == (
        "POST /nodes/pve1/qemu: Parameter verification failed; "
        "cores: value must have a minimum value of 1; memory: too small"
    )
    assert error.details["errors"] == {"cores": "value must have a minimum value of 1", "memory": "too small"}


def test_refused_login__gives_the_reason_phrase_as_the_body_is_empty(recording):
    error = failure_of(recording("8.4", "auth-token-wrong-secret"))

    assert isinstance(error, AuthenticationFailed)
    assert error.message == "GET /version: Authentication failed!"


def test_missing_privilege__is_told_in_the_words_of_proxmox(recording):
    error = failure_of(recording("9.2", "err-new-perm-bridge-denied-op"))

    assert isinstance(error, PermissionDenied)
    assert "Permission check failed (/sdn/zones/localnetwork/vmbr1, SDN.Use)" in error.message


def test_second_line_of_a_message__is_kept_as_the_reason_phrase_lacks_it(recording):
    error = failure_of(recording("9.2", "err-ha-rule-positive-vs-negative"))

    assert type(error) is ApiError
    assert "rule shares two or more resources with a negative resource affinity rule" in error.message


def test_path_that_this_version_lacks__is_told_apart(recording):
    assert isinstance(failure_of(recording("8.4", "ha-rules-404")), NotImplementedHere)


@pytest.mark.parametrize("name", ["nodedown-get-qemu", "nodedown-immediately-get-qemu"])
def test_node_that_is_down__is_unreachable_to_a_read(recording, name):
    error = failure_of(recording("8.4", name))

    assert isinstance(error, NodeUnreachable)
    assert error.code == ConnectionFailed.code


def test_write__was_not_done_when_the_node_could_not_be_connected_to(recording):
    assert isinstance(failure_of(recording("8.4", "nodedown-get-qemu"), method="POST"), NodeUnreachable)


def test_write__may_have_been_done_when_the_connection_to_the_node_broke_later(recording):
    assert isinstance(failure_of(recording("8.4", "nodedown-immediately-get-qemu"), method="POST"), AnswerLost)


def test_secret_that_proxmox_quotes__is_hidden():
    params = {"cipassword": "hunter22", "name": "web"}
    body = json.dumps({"message": "bad value 'hunter22' for web", "errors": {"cipassword": "hunter22 is too short"}})

    error = failure_of_answer("POST", "/nodes/a/qemu", 400, "", body, params)

    assert "hunter22" not in f"{error.message} {error.details}"
    assert "for web" in error.message


def refused() -> requests.exceptions.ConnectionError:
    reason = urllib3.exceptions.NewConnectionError(None, "Failed: [Errno 111] Connection refused")  # type: ignore[arg-type]
    return requests.exceptions.ConnectionError(urllib3.exceptions.MaxRetryError(None, "/", reason))  # type: ignore[arg-type]


def dropped() -> requests.exceptions.ConnectionError:
    reason = ConnectionResetError(104, "Connection reset by peer")
    return requests.exceptions.ConnectionError(urllib3.exceptions.ProtocolError("Connection aborted.", reason))


@pytest.mark.parametrize(
    ("version", "name", "needed"),
    [
        ("8.4", "err-create-nobody", r"VM\.Allocate on /vms/\d+\)$"),
        ("9.2", "err-new-perm-token-privsep-no-rights", r"VM\.Allocate on /vms/\d+ or /pool/lab\)$"),
        ("8.4", "err-clone-op-own-nopool", r"VM\.Allocate on /vms/\d+\)$"),
        ("8.4", "err-create-op-pool-storage-denied", r"failed \(/storage/shared, Datastore\.AllocateSpace\)$"),
    ],
)
def test_a_refused_create_or_clone__names_path_and_privilege(recording, version, name, needed):
    recorded = recording(version, name)
    request = recorded["request"]
    error = failure_of_answer(
        request["method"], request["path"], 403, recorded["reason"], json.dumps(recorded["body"]), request["params"]
    )

    assert type(error) is PermissionDenied
    assert re.search(needed, error.message)


def test_a_refused_create__names_the_pool_that_would_do():
    error = failure_of_answer("POST", "/nodes/a/qemu", 403, "Permission check failed", "", {"vmid": 103, "pool": "web"})

    assert error.message.endswith("Permission check failed (the user needs VM.Allocate on /vms/103 or /pool/web)")


def test_write__was_not_sent_when_the_connection_was_refused():
    error = failure_of_exception(refused(), "POST", "/nodes/a/qemu", "pve:8006", repeatable=False)

    assert type(error) is ConnectionFailed
    assert "Connection refused" in error.message


@pytest.mark.parametrize(
    "lost", [dropped(), requests.exceptions.ReadTimeout(), requests.exceptions.SSLError("EOF occurred")]
)
def test_write_without_an_answer__may_have_been_done(lost):
    def failure(*, repeatable: bool) -> ConnectionFailed:
        return failure_of_exception(lost, "POST", "/nodes/a/qemu", "pve:8006", repeatable=repeatable)

    assert isinstance(failure(repeatable=False), AnswerLost)
    assert type(failure(repeatable=True)) is ConnectionFailed


def test_untrusted_certificate__is_told_with_its_cure():
    untrusted = requests.exceptions.SSLError(ssl.SSLCertVerificationError("certificate verify failed"))
    error = failure_of_exception(untrusted, "PUT", "/", "pve:8006", repeatable=False)

    assert type(error) is WrongConnection
    assert "certificate verify failed" in error.message
    assert "ca_path" in error.message


def test_file_without_certificates__is_told_by_its_option():
    with pytest.raises(ssl.SSLError) as error:
        ssl.create_default_context(cafile=__file__)
    broken = requests.exceptions.SSLError(error.value)
    failure = failure_of_exception(broken, "GET", "/version", "pve1", repeatable=True)
    assert isinstance(failure, WrongConnection)
    assert failure.message.startswith("ca_path: the file has no certificate in PEM format; set ca_path to the file of")


def test_read__is_worth_another_try_after_a_drop_and_not_after_a_timeout_or_a_bad_certificate():
    assert worth_another_read(dropped())
    assert worth_another_read(refused())
    assert not worth_another_read(requests.exceptions.ReadTimeout())
    assert not worth_another_read(requests.exceptions.ConnectTimeout())
    assert not worth_another_read(requests.exceptions.SSLError())
