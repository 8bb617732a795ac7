# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of an unexpected shape become errors that name the call; never exceptions of Python."""

from __future__ import annotations

import copy
import json
import typing as t
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_cluster import scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import CollectionError, InvalidSnapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Disk
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.freshness import read_config
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory_devices import DeviceNeeds
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.drives import drive_size
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.recorded import RecordedReader, Recorder
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.shapes import WrongShape, checked
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.snapshot import (
    Needs,
    identity,
    read_settled,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import TaskFollower

RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"
EVERYTHING = Needs(
    next_id=True,
    bridges=True,
    cpu_types=True,
    cpu_flags=True,
    pressure=True,
    ha_rules=True,
    volumes=frozenset({"local:iso/a.iso", "shared:import/a.raw"}),
    devices=DeviceNeeds(),
)
UPID = "UPID:pve1:000010DF:00058F25:6B01510A:qmcreate:111:root@pam:"


def recorded() -> Iterator[tuple[str, str, t.Any]]:
    """Each successful read of the recordings: its name, path and data."""
    for file in sorted(RECORDINGS.rglob("*.json")):
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
            checked(path, data)
        except WrongShape as error:
            pytest.fail(f"{name}: {error}")


def test_figures__are_numbers_however_they_are_written() -> None:
    row = {"type": "qemu", "vmid": "104", "node": "pve1", "maxmem": "512", "maxcpu": 2, "template": "1", "name": 77}
    (found,) = checked("/cluster/resources", [row])
    assert found == {**row, "vmid": 104, "maxmem": 512, "template": True, "name": "77"}


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
    ],
)
def test_a_wrong_shape__is_told_with_its_place(data: t.Any, problem: str) -> None:
    with pytest.raises(WrongShape) as raised:
        checked("/cluster/resources", data)
    assert problem in str(raised.value)


def test_rows_and_keys_that_are_not_known__may_be_anything() -> None:
    rows = [{"type": "quantum", "vmid": "x"}, {"type": "node", "node": "a", "new": [{}]}, {}]
    assert checked("/cluster/resources", rows) == rows


def test_a_recording_of_the_wrong_shape__is_an_invalid_snapshot_that_names_the_path() -> None:
    with pytest.raises(
        InvalidSnapshot, match=r'snapshot: "/cluster/resources" is not what .*: item 1: vmid: is missing'
    ):
        RecordedReader({"/cluster/resources": [{"type": "qemu", "node": "a"}]}).get("/cluster/resources")


def nested(depth: int) -> t.Any:
    value: t.Any = 1
    for _level in range(depth):
        value = [value]
    return value


def test_a_recording_that_is_nested_too_deep__is_an_invalid_snapshot(tmp_path: Path) -> None:
    with pytest.raises(InvalidSnapshot, match="nested more than"):
        RecordedReader({"/cluster/resources": [], "/version": nested(5000)})
    file = tmp_path / "deep.json"
    file.write_text('{"/cluster/resources": ' + "[" * 100_000 + "]" * 100_000 + "}", encoding="utf-8")
    with pytest.raises(InvalidSnapshot, match=r"deep\.json"):
        RecordedReader.from_file(str(file))


@pytest.mark.parametrize("path", ["/dev/zero", "a\0b", "/no/such/file", "/"])
def test_what_is_no_plain_file__is_not_read_as_a_recording(path: str) -> None:
    with pytest.raises(InvalidSnapshot, match="there is no such file"):
        RecordedReader.from_file(path)


def whole_cluster(version: str) -> dict[str, t.Any]:
    """Everything that reading a cluster reads, from the recordings of one version."""
    answers: dict[str, t.Any] = {}
    for file in sorted((RECORDINGS / version).rglob("*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        if not (isinstance(record, dict) and "request" in record):
            continue
        request, body = record["request"], record.get("body")
        if request["method"] == "GET" and record.get("status") == 200 and isinstance(body, dict) and body.get("data"):
            answers.setdefault(request["path"].partition("?")[0], body["data"])
    full = json.loads(next((RECORDINGS / version).rglob("cluster-resources-full-mix.json")).read_text(encoding="utf-8"))
    nodes = ("pve1", "pve2", "pve3")
    return {
        **answers,
        "/cluster/resources": full["body"]["data"],
        "/cluster/resources?type=vm": [row for row in full["body"]["data"] if row["type"] in ("qemu", "lxc")],
        "/cluster/ha/groups": [{"group": "g", "nodes": "pve1:2,pve2", "restricted": 1}],
        "/cluster/ha/rules": [{"rule": "r", "type": "node-affinity", "nodes": "pve1:2", "resources": "vm:101"}],
        "/cluster/ha/resources": [{"sid": "vm:101", "group": "g", "state": "started"}],
        "/cluster/nextid": "101",
        "/cluster/mapping/usb": [{"id": "stick", "map": ["node=pve1,id=1d6b:0002"]}],
        "/cluster/qemu/cpu-flags": [{"name": "aes", "supported-on": ["pve1"]}],
        **{
            f"/nodes/{node}/rrddata?cf=AVERAGE&timeframe=hour": [
                {"time": 1, "pressurecpusome": 1, "pressureiosome": 0.5, "pressurememorysome": "0.25"}
            ]
            for node in nodes
        },
        **{f"/nodes/{node}/network?type=any_bridge": [{"iface": "vmbr0", "type": "bridge"}] for node in nodes},
        f"/nodes/pve1/tasks/{UPID}/status": {"status": "stopped", "exitstatus": "OK"},
    }


CLUSTERS = {version: whole_cluster(version) for version in ("8.4", "9.2")}


def look_at(reader: t.Any) -> None:
    """Do with the answers what a run does."""
    with suppress(CollectionError):
        identity(reader)
    with suppress(CollectionError):
        TaskFollower(reader, timeout=0).wait(UPID)
    with suppress(CollectionError):
        config = read_config(reader, "pve1", 104) or {}
        drive_size("scsi0", str(config.get("scsi0", "")))
    with suppress(CollectionError):
        snapshot = read_settled(reader, EVERYTHING)
        requests = (vm(), vm(disks=(Disk("scsi0", GIB),), bridges=frozenset({"vmbr0"})))
        for request in requests:
            scheduler(ClusterState(snapshot)).schedule(request)


@pytest.mark.parametrize("version", CLUSTERS)
def test_the_recorded_cluster__is_read_without_an_error(version: str) -> None:
    recorder = Recorder(RecordedReader(CLUSTERS[version]))
    snapshot = read_settled(recorder, EVERYTHING)
    assert len(snapshot.nodes) == 3
    assert scheduler(ClusterState(snapshot)).schedule(vm()).decision is not None
    assert len(recorder.answers) > 10


VALUES: list[t.Any] = [
    *(None, True, False, 0, 1, -1, 2**62, 10**400, 1.5, float("nan"), float("inf")),
    *("", "x", "-1", "1.5", "9" * 5000, "1e999", "nan", "\ud800", "\0", "²", "VM 104", "a=b,,c", "=", ":", ","),
    "x" * 9999,
    *([], {}, [None], [[]], {"a": None}, {"data": None}, nested(40)),
]


def places(value: t.Any, place: tuple[t.Any, ...] = ()) -> Iterator[tuple[t.Any, ...]]:
    yield place
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*place, index))


READ = {
    version: sorted(recorder.answers)
    for version, answers in CLUSTERS.items()
    for recorder in [Recorder(RecordedReader(answers))]
    for _looked in [look_at(recorder)]
}


@settings(max_examples=200)
@given(data=st.data())
def test_any_change_to_the_answers__is_an_error_of_ours_or_none(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(sorted(CLUSTERS)))
    answers = copy.deepcopy({path: CLUSTERS[version][path] for path in READ[version] if path in CLUSTERS[version]})
    for _change in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(sorted(answers)))
        place = data.draw(st.sampled_from(list(places(answers[path], (path,)))))
        holder: t.Any = answers
        for key in place[:-1]:
            holder = holder[key]
        how = data.draw(st.sampled_from(["value", "value", "value", "delete", "reverse", "repeat", "cut"]))
        item = holder[place[-1]]
        if how == "delete" and len(place) > 1:
            del holder[place[-1]]
        elif how == "reverse" and isinstance(item, list):
            item.reverse()
        elif how == "repeat" and isinstance(item, list):
            item.extend(copy.deepcopy(item))
        elif how == "cut" and isinstance(item, (list, str)):
            holder[place[-1]] = item[: len(item) // 2]
        else:
            holder[place[-1]] = copy.deepcopy(VALUES[data.draw(st.integers(0, len(VALUES) - 1))])
    with suppress(CollectionError):
        look_at(RecordedReader(answers))
