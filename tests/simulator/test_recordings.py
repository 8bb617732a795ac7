# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every recorded request is answered as a real cluster answered it: status, reason, errors, keys, exit text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from simulator.lab import PASSWORD, Lab, in_lab, keys, plain
from simulator.prepared import OWN_LOGINS, OWN_STATE, preparation, uncompared
from support.recordings import VERSIONS, recording, recordings

# Keys that a row has or lacks by the state of the one thing that it describes.
BY_STATE = {"lock", "tags", "pool", "hastate", "template", "description", "comment", "email", "errors", "disable",
            "nodes", "shared", "strict", "group", "endtime", "pid", "saved", "tokenid", "status", "crm_state",
            "failback", "max_restart"}
# Keys of storage definitions and network cards that the lab's own setup brought in.
OF_THE_LAB = {"prune-backups", "priority", "gateway", "exists"}


def recorded() -> list[Any]:
    found = []
    for version in VERSIONS:
        for name in recordings(version):
            data = recording(version, name)
            if not isinstance(data, dict) or "request" not in data or uncompared(name):
                continue
            login = data["request"]["auth"]
            if login in OWN_LOGINS or login.startswith("token:"):
                found.append(pytest.param(version, name, id=f"{version}-{name}"))
    return found


@pytest.mark.parametrize(("version", "name"), recorded())
def test_recorded_request__is_answered_as_it_was(version: str, name: str) -> None:
    record = recording(version, name)
    request = record["request"]
    params = request.get("params")
    if isinstance(params, dict) and "password" in params:
        params["password"] = PASSWORD

    async def replay(lab: Lab) -> tuple[int, str, Any, str | None]:
        lab.cluster.access.users["root@pam"].password = PASSWORD
        for step in preparation(name):
            await step(lab)
        response = await lab.ask(request["method"], request["path"], params, request["auth"], request.get("extra"))
        text = await response.text()
        try:
            body = json.loads(text)
        except ValueError:
            body = text
        upid = body.get("data") if isinstance(body, dict) else None
        ended = await lab.finish(upid) if isinstance(upid, str) and upid.startswith("UPID:") else {}
        return response.status, str(response.reason), body, ended.get("exitstatus")

    status, reason, body, exitstatus = in_lab(version, replay)
    assert (status, plain(reason)) == (record["status"], plain(record["reason"]))
    assert isinstance(body, dict) == isinstance(record["body"], dict)
    if status >= 400 and isinstance(body, dict):
        assert lines(body.get("errors")) == lines(record["body"].get("errors"))
        assert plain(body["message"]) == plain(record["body"]["message"])
    wanted = (record.get("task_status") or {}).get("exitstatus")
    if wanted is not None:
        assert plain(str(exitstatus)) == plain(wanted)
    if status == 200 and name not in OWN_STATE and isinstance(record["body"], dict):
        same_keys(record["body"].get("data"), body["data"])


def lines(errors: dict[str, str] | None) -> dict[str, list[str]]:
    """Error texts; the order of the lines of one is chance."""
    return {field: sorted(text.splitlines()) for field, text in (errors or {}).items()}


def same_keys(wanted: Any, got: Any) -> None:
    recorded_keys, own = keys(wanted), keys(got)
    for kind in recorded_keys.keys() & own.keys():
        assert recorded_keys[kind] ^ own[kind] <= BY_STATE | OF_THE_LAB, kind


def test_most_recordings__are_compared() -> None:
    assert len(recorded()) > 800
