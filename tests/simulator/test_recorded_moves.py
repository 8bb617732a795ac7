# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every recorded request about a move is answered as it was: status, errors, reasons, exit text and the task's log."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from simulator.lab import Lab, in_lab, plain
from simulator.moves_lab import description, finished, placed
from simulator.moves_prepared import preparation, uncompared
from simulator.test_recordings import lines, same_keys
from support.recordings import recording, recordings

VERSION = "9.2"
# Progress, amounts and what QEMU's own tools print: these differ from run to run.
PROGRESS = re.compile(
    r"records (?:in|out)|bytes .*copied|transferred|Formatting|^dd: |^command .dd|new volume ID|^map .|^progress "
    r"|^CTIME|^CFG|block job|^mirror-\w+: Done|qemu-img|vma_reader|Warning: |temporary volume|^total bytes"
    r"|mirror-\w+: Cancel"
)

# What ssh and dd say of a copy that failed.
CAUSE = re.compile(r"(storage migration for .*? failed).*", re.DOTALL)


def recorded() -> list[str]:
    return [
        name for name in recordings(VERSION)
        if name.startswith("move-") and "request" in recording(VERSION, name) and not uncompared(name)
    ]


@pytest.mark.parametrize("name", recorded())
def test_a_recorded_move__is_answered_as_it_was(name: str) -> None:
    record = recording(VERSION, name)
    request = record["request"]

    async def replay(lab: Lab) -> tuple[int, str, Any, dict[str, Any], list[str]]:
        await finished(lab)
        for step in (*placed(record), *preparation(name)):
            await step(lab)
        response = await lab.ask(request["method"], request["path"], request.get("params"), request["auth"])
        text = await response.text()
        body = json.loads(text) if text else ""
        upid = body.get("data") if isinstance(body, dict) else None
        if not (isinstance(upid, str) and upid.startswith("UPID:")):
            return response.status, str(response.reason), body, {}, []
        status = await lab.finish(upid)
        task = lab.cluster.tasks.find(upid)
        assert task is not None
        return response.status, str(response.reason), body, status, task.log

    status, reason, body, task, log = in_lab(VERSION, replay, described=description())
    assert (status, plain(reason)) == (record["status"], plain(record["reason"]))
    if status >= 400 and isinstance(body, dict):
        assert lines(body.get("errors")) == lines(record["body"].get("errors"))
    if "task_status" in record:
        assert task["type"] == record["task_status"]["type"]
        assert without_numbers(task["exitstatus"]) == without_numbers(record["task_status"]["exitstatus"])
        assert essential(log) == essential([line["t"] for line in record["task_log"]])
    elif status == 200:
        compare(name, body["data"], record["body"].get("data"))


def compare(name: str, own: Any, wanted: Any) -> None:
    if "precheck" in name or "-ha-resource-" in name:
        assert ordered(own) == ordered(wanted)
    else:
        same_keys(wanted, own)


def ordered(data: Any) -> Any:
    """Data without the order of its lists."""
    if isinstance(data, dict):
        return {key: ordered(value) for key, value in data.items() if key != "digest"}
    if isinstance(data, list):
        return sorted((ordered(value) for value in data), key=lambda value: json.dumps(value, sort_keys=True))
    return data


def without_numbers(text: str) -> str:
    return re.sub(r"\d+", "N", text)


def essential(log: list[str]) -> list[str]:
    """A task's log without times, numbers and progress."""
    texts = [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?:\[pve\d\] (?=Form|dd|command))?", "", line) for line in log]
    return [without_numbers(plain(CAUSE.sub(r"\1", text))) for text in texts if not PROGRESS.search(text)]


def test_most_recorded_moves__are_compared() -> None:
    assert len(recorded()) > 240
