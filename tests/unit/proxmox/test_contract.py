# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of keys hold every key of Proxmox's API descriptions, and of the recorded answers.

A key that a new release brings fails here until it is used, or has the reason why it can be ignored.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox import contract
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.contract import unknown_in

RELEASES = ("8.4", "9.2")
DESCRIPTIONS = json.loads(Path(__file__).with_name("api_descriptions.json").read_text(encoding="utf-8"))
"""Parts of the API descriptions that the recorded clusters served: the answers of GET, the parameters of POST."""
RECORDINGS = Path(__file__).parents[2] / "recordings"
CHECK = "GET /nodes/{{node}}/{kind}/{{vmid}}/migrate"
OF_NODES = {"qemu": "not_allowed_nodes", "lxc": "not-allowed-nodes"}


def described(release: str) -> Iterator[tuple[str, Iterable[str], Mapping[str, str]]]:
    """Yield what is described, its keys, and the table for them."""
    calls: dict[str, t.Any] = DESCRIPTIONS[release]
    yield "group", calls["POST /cluster/ha/groups"]["properties"], contract.GROUP
    yield "resource", calls["POST /cluster/ha/resources"]["properties"], contract.RESOURCE
    yield "resource as shown", calls["GET /cluster/ha/resources/{sid}"]["properties"], contract.RESOURCE
    yield "crs", calls["crs"]["properties"], contract.CRS
    for kind in ("qemu", "lxc"):
        parameters = calls[f"POST /nodes/{{node}}/{kind}/{{vmid}}/migrate"]["properties"]
        yield f"migration of {kind}", parameters, contract.MIGRATION[kind]
        check = calls.get(CHECK.format(kind=kind), {}).get("properties")
        if check:
            yield f"check of {kind}", check, contract.CHECK[kind]
            yield f"refused nodes of {kind}", check[OF_NODES[kind]]["properties"], contract.NOT_ALLOWED
            disks = check.get("local_disks", {"items": {"properties": {}}})["items"]["properties"]
            yield f"disks of {kind}", disks, contract.LOCAL_DISK
    for part in calls.get("POST /cluster/ha/rules", {}).get("allOf", ()):
        for variant in part.get("oneOf", ()):
            kind = variant["instance-type"]
            yield f"rule of type {kind}", variant["properties"], contract.RULES.get(kind, {})


@pytest.mark.parametrize("release", RELEASES)
def test_contract__holds_every_key_of_the_api_description(release: str) -> None:
    missing = [f"{what}: {key}" for what, keys, table in described(release) for key in keys if key not in table]
    assert missing == []


def test_contract__knows_the_values_of_the_api_description() -> None:
    new = DESCRIPTIONS["9.2"]
    assert set(new["crs"]["properties"]["ha"]["enum"]) == contract.CRS_MODES
    assert set(new["POST /cluster/ha/resources"]["properties"]["state"]["enum"]) == contract.REQUESTED_STATES
    types = [part["type-property-schema"]["enum"] for part in new["POST /cluster/ha/rules"]["allOf"] if "oneOf" in part]
    assert [set(names) for names in types] == [contract.RULES.keys()]


def table_of(path: str, row: Mapping[str, t.Any]) -> Mapping[str, str] | None:
    """Return the table for a row that was recorded at a path."""
    if path.startswith("/cluster/ha/rules"):
        return contract.RULES[row["type"]]
    if path.startswith("/cluster/ha/groups"):
        return contract.GROUP
    if path.startswith("/cluster/ha/resources"):
        return contract.RESOURCE
    kind = "lxc" if "/lxc/" in path else "qemu"
    return contract.CHECK[kind] if path.endswith("/migrate") else None


def recorded(release: str) -> Iterator[tuple[str, Mapping[str, t.Any], Mapping[str, str]]]:
    """Yield the rows that were recorded of these calls, each with the path and the table for its keys."""
    for file in sorted(RECORDINGS.glob(f"{release}/*/*.json")):
        recording = json.loads(file.read_text(encoding="utf-8"))
        body = recording.get("body") if isinstance(recording, dict) else None
        if not isinstance(body, dict) or recording["request"]["method"] != "GET" or recording["status"] != 200:
            continue
        path, data = recording["request"]["path"], body.get("data")
        for row in data if isinstance(data, list) else [data]:
            table = table_of(path, row) if isinstance(row, dict) else None
            if table is not None:
                yield path, row, table


@pytest.mark.parametrize("release", RELEASES)
def test_contract__holds_every_key_of_the_recordings(release: str) -> None:
    rows = list(recorded(release))
    assert len(rows) > 5
    assert [f"{path}: {key}" for path, row, table in rows for key in row if key not in table] == []
    disks = [disk for _path, row, _table in rows for disk in row.get("local_disks") or ()]
    assert [key for disk in disks for key in disk if key not in contract.LOCAL_DISK] == []


def test_unknown_in__finds_a_key_that_says_something() -> None:
    assert unknown_in({"rule": "x", "moon": 1}, contract.RULES["node-affinity"]) == "the key 'moon'"
    assert unknown_in({"rule": "x", "moon": 0, "sun": ""}, contract.RULES["node-affinity"]) == ""
