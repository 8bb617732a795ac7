# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recorded answers stand in for a cluster, and a cluster's answers are recorded without secrets."""

from __future__ import annotations

import json

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidSnapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.failures import NotRecorded
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.recorded import (
    RecordedReader,
    Recorder,
)

RESOURCES = "/cluster/resources"


@pytest.mark.parametrize("answers", [None, [], "text", {}, {RESOURCES: None}, {1: []}, {"cluster/resources": []}])
def test_snapshot__must_map_api_paths_to_answers_and_hold_the_resources(answers):
    with pytest.raises(InvalidSnapshot):
        RecordedReader(answers)


def test_answer__may_be_bare_or_in_the_envelope_of_the_api():
    rows = [{"type": "node", "node": "a"}]
    reader = RecordedReader({RESOURCES: {"data": rows, "total": 1}, "/version": {"release": "9.2"}})

    assert reader.get(RESOURCES) == rows
    assert reader.get("/version") == {"release": "9.2"}


def test_query__is_part_of_the_path_whatever_its_order():
    reader = RecordedReader({RESOURCES: [], "/nodes/a/tasks?vmid=100&source=all": [{"upid": "U"}]})

    assert reader.get("/nodes/a/tasks", source="all", vmid=100) == [{"upid": "U"}]
    with pytest.raises(NotRecorded):
        reader.get("/nodes/a/tasks")


def test_what_was_not_recorded__is_an_error_of_the_snapshot_that_names_the_path():
    with pytest.raises(NotRecorded, match="/nodes/a/qemu") as raised:
        RecordedReader({RESOURCES: []}).get("/nodes/a/qemu")

    assert raised.value.code == "InvalidSnapshot"


def test_changing_an_answer__does_not_change_the_recording():
    reader = RecordedReader({RESOURCES: [{"type": "node", "node": "a"}]})
    reader.get(RESOURCES).clear()

    assert reader.get(RESOURCES)


def test_file__holds_a_snapshot_as_json(tmp_path):
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps({RESOURCES: [{"type": "node", "node": "a"}]}))

    assert RecordedReader.from_file(str(file)).get(RESOURCES) == [{"type": "node", "node": "a"}]


@pytest.mark.parametrize("content", ["{", None])
def test_file_that_is_no_json_or_not_there__is_named(tmp_path, content):
    file = tmp_path / "snapshot.json"
    if content is not None:
        file.write_text(content)

    with pytest.raises(InvalidSnapshot, match=r"snapshot\.json"):
        RecordedReader.from_file(str(file))


def test_recorded_snapshot__can_be_read_again_without_secrets():
    config = {
        "name": "web",
        "cipassword": "s3cret",
        "sshkeys": "ssh-rsa",
        "nested": [{"password": "x", "tokenid": "t"}],
    }
    recorder = Recorder(RecordedReader({RESOURCES: [], "/nodes/a/qemu/100/config": config, "/nodes/a/qemu?full=1": []}))
    recorder.get(RESOURCES)
    recorder.get("/nodes/a/qemu/100/config")
    recorder.get("/nodes/a/qemu", full=True)

    again = RecordedReader(json.loads(json.dumps(recorder.answers)))

    assert again.get("/nodes/a/qemu/100/config") == {"name": "web", "nested": [{"tokenid": "t"}]}
    assert again.get("/nodes/a/qemu", full=True) == []
    assert sorted(recorder.answers) == [RESOURCES, "/nodes/a/qemu/100/config", "/nodes/a/qemu?full=1"]
