# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of an unexpected shape become errors that name the call; never exceptions of Python."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile.cases import EVERYTHING
from hostile.changes import nested
from support.recordings import FOLDER, VERSIONS
from support.small_cluster import scheduler, vm
from support.whole_cluster import whole_cluster

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidSnapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.recorded import (
    RecordedReader,
    Recorder,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.shapes import WrongShape, check_shape
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.snapshot import read_settled


def recorded() -> Iterator[tuple[str, str, t.Any]]:
    """Each successful read of the recordings: its name, path and data."""
    for file in sorted(FOLDER.rglob("*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        if not (isinstance(record, dict) and "request" in record):
            continue
        request, body = record["request"], record.get("body")
        if request["method"] == "GET" and record.get("status") == 200 and isinstance(body, dict) and "data" in body:
            yield file.stem, request["path"].partition("?")[0], body["data"]


ANSWERS = list(recorded())


def test_recorded_answers__are_of_the_shapes_that_are_declared() -> None:
    assert len(ANSWERS) > 300
    for name, path, data in ANSWERS:
        if name == "err-task-log-missing":
            # A mapping for a list, as an exception: Proxmox does so for a task that is not there.
            continue
        try:
            check_shape(path, data)
        except WrongShape as error:
            pytest.fail(f"{name}: {error}")


def test_figures__are_numbers_however_they_are_written() -> None:
    row = {"type": "qemu", "vmid": "104", "node": "pve1", "maxmem": "512", "maxcpu": 2, "template": "1", "name": 77}
    (found,) = check_shape("/cluster/resources", [row])
    assert found == {**row, "vmid": 104, "maxmem": 512, "template": True, "name": "77"}


def test_optional_key_that_is_null__is_left_out() -> None:
    task = {"upid": "UPID:pve1:1", "type": "qmcreate", "endtime": None}
    assert check_shape("/cluster/tasks", [task]) == [{"upid": "UPID:pve1:1", "type": "qmcreate"}]


@pytest.mark.parametrize("written", [512, "512", "current=512"])
def test_memory_of_a_config__is_a_number_however_it_is_written(written: t.Any) -> None:
    assert check_shape("/nodes/pve1/qemu/100/config", {"memory": written}) == {"memory": 512}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (None, "expected a list, got null"),
        ([None], "item 1: expected a mapping, got null"),
        ([{"type": "node"}], "item 1: node: is missing"),
        ([{"type": "qemu", "node": "a", "vmid": 1.5}], "item 1: vmid: expected a whole number"),
        ([{"type": "node", "node": "a", "maxcpu": "many"}], "item 1: maxcpu: expected a number, got 'many'"),
        ([{"type": "node", "node": "a", "maxcpu": 10**30}], "not finite, or has too many digits"),
        ([{"type": "node", "node": "a", "cpu": float("nan")}], "not finite, or has too many digits"),
        ([{"type": "node", "node": "\ud800"}], "not valid Unicode"),
        ([{"type": "node", "node": {}}], "item 1: node: expected text, got a mapping"),
        ([{"type": []}], "item 1: type: expected text, got a list"),
    ],
)
def test_a_wrong_shape__is_told_with_its_place(data: t.Any, problem: str) -> None:
    with pytest.raises(WrongShape) as raised:
        check_shape("/cluster/resources", data)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("path", "data", "problem"),
    [
        ("/nodes/pve1/hardware/pci", [{"id": "0000:01:00.0", "iommugroup": "x"}], "item 1: iommugroup: expected a num"),
        ("/nodes/pve1/hardware/pci", [{"id": "0000:01:00.0", "mdev": "x"}], "item 1: mdev: expected a number"),
        ("/cluster/ceph/flags/noout", "x", "expected a number, got 'x'"),
    ],
)
def test_figures_of_any_answer__must_be_numbers(path: str, data: t.Any, problem: str) -> None:
    with pytest.raises(WrongShape, match=problem):
        check_shape(path, data)


def test_rows_and_keys_that_are_not_known__may_be_anything() -> None:
    rows = [{"type": "quantum", "vmid": "x"}, {"type": "node", "node": "a", "new": [{}]}, {}]
    assert check_shape("/cluster/resources", rows) == rows


def test_a_recording_of_the_wrong_shape__is_an_invalid_snapshot_that_names_the_path() -> None:
    with pytest.raises(
        InvalidSnapshot, match=r'snapshot: "/cluster/resources" is not what .*: item 1: vmid: is missing'
    ):
        RecordedReader({"/cluster/resources": [{"type": "qemu", "node": "a"}]}).get("/cluster/resources")


def test_a_recording_that_is_nested_too_deep__is_an_invalid_snapshot(tmp_path: Path) -> None:
    with pytest.raises(InvalidSnapshot, match="nested more than"):
        RecordedReader({"/cluster/resources": [], "/version": nested(5000)})
    file = tmp_path / "deep.json"
    file.write_text('{"/cluster/resources": ' + "[" * 100_000 + "]" * 100_000 + "}", encoding="utf-8")
    with pytest.raises(InvalidSnapshot, match=r"deep\.json"):
        RecordedReader.from_file(str(file))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/dev/zero", "it is not a regular file"),
        ("a\0b", "(open: )?embedded null"),
        ("/no/such/file", "No such file or directory"),
        ("/", "it is not a regular file"),
    ],
)
def test_what_is_no_plain_file__is_not_read_as_a_recording(path: str, why: str) -> None:
    with pytest.raises(InvalidSnapshot, match=f"as JSON: {why}"):
        RecordedReader.from_file(path)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_recorded_cluster__is_read_without_an_error(version: str) -> None:
    recorder = Recorder(RecordedReader(whole_cluster(version)))
    snapshot = read_settled(recorder, EVERYTHING)
    assert len(snapshot.nodes) == 3
    assert scheduler(ClusterState(snapshot)).schedule(vm()).decision is not None
    assert len(recorder.answers) > 10
