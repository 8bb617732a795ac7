# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A grown cluster becomes a list of VMs that the next run finds unchanged, whatever its owners wrote into their VMs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.payloads import payloads
from support.playbook import PlayRun, run_playbook
from support.recorded_configs import recorded_configs
from support.versions import both_versions

Start = Callable[[Path | dict[str, Any]], SimulatedCluster]

OF_THE_CLUSTER = {"digest", "lock", "meta", "parent", "runningcpu", "runningmachine", "vmgenid", "vmstate", "template"}


class Loader(yaml.SafeLoader):
    """Reads texts that Ansible must not evaluate as what they are."""


Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))  # type: ignore[arg-type]


@pytest.fixture
def start(version: str) -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda text: stack.enter_context(SimulatedCluster.start(text, version=version, time_scale=0.02))


def play(folder: Path, cluster: SimulatedCluster, name: str, *arguments: str) -> PlayRun:
    return run_playbook(folder, f"qemu_scheduler.proxmox.{name}", cluster.environment(), *arguments)


def description_with(vms: list[dict[str, Any]]) -> dict[str, Any]:
    """The quiet cluster with more VMs, each with its config."""
    description: dict[str, Any] = yaml.safe_load((CLUSTERS / "three-nodes.yml").read_text(encoding="utf-8"))
    description["guests"] += vms
    return description


def assert_unchanged(folder: Path, cluster: SimulatedCluster, file: Path, *arguments: str) -> None:
    before = {vmid: guest["config"] for vmid, guest in cluster.state()["guests"].items()}
    again = play(folder, cluster, "provision", "-e", f"@{file}", *arguments)
    assert again.code == 0, again.output
    assert "changed=0 " in again.output, again.output
    assert {vmid: guest["config"] for vmid, guest in cluster.state()["guests"].items()} == before


def test_grown_cluster__is_found_unchanged_by_the_next_run(start: Start, tmp_path: Path) -> None:
    cluster, file = start(CLUSTERS / "demo.yml"), tmp_path / "vms.yml"
    adopted = play(tmp_path, cluster, "adopt", "-e", f"adopt_file={file}")
    assert adopted.code == 0, adopted.output
    assert file.stat().st_mode & 0o777 == 0o600
    assert "docs/schemas/vms.json\n" in file.read_text(encoding="utf-8")
    vms = yaml.load(file.read_text(encoding="utf-8"), Loader)["qemu_vms"]
    nodes = cluster.state()["nodes"]
    there = {
        guest["vmid"]
        for guest in cluster.state()["guests"].values()
        if guest["type"] == "qemu" and not guest["config"].get("template") and nodes[guest["node"]]["online"]
    }
    assert {vm["vmid"] for vm in vms} == there
    assert_unchanged(tmp_path, cluster, file)
    assert_unchanged(tmp_path, cluster, file, "-e", "{qemu_options: {update: true}}")
    again = play(tmp_path, cluster, "adopt", "-e", f"adopt_file={file}")
    assert again.last["msg"].endswith("replace it with -e adopt_replace=true"), again.output


@both_versions
def test_recorded_configs__are_found_unchanged_by_the_next_run(start: Start, tmp_path: Path, version: str) -> None:
    configs = [
        {key: str(value) for key, value in config.items() if key not in OF_THE_CLUSTER and "unused" not in key}
        for config in recorded_configs(version)
    ]
    assert len(configs) > 10
    guests = [{"vmid": 300 + n, "node": "pve1", "config": config} for n, config in enumerate(configs)]
    cluster, file = start(description_with(guests)), tmp_path / "vms.yml"
    adopted = play(tmp_path, cluster, "adopt", "-e", f"adopt_file={file}")
    assert adopted.code == 0, adopted.output
    assert len(yaml.load(file.read_text(encoding="utf-8"), Loader)["qemu_vms"]) >= len(configs)
    assert_unchanged(tmp_path, cluster, file, "-e", "{qemu_options: {update: true}}")


def test_texts_of_owners__are_data_in_the_list_and_in_the_run(start: Start, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    guests = [
        {"vmid": 300 + n, "name": f"vm-{n}", "node": "pve1", "config": {"description": text, "ciuser": "ann"}}
        for n, text in enumerate(payloads(trace))
    ]
    cluster, file = start(description_with(guests)), tmp_path / "vms.yml"
    adopted = play(tmp_path, cluster, "adopt", "-e", f"adopt_file={file}", "-e", "adopt_name=vm-[0-9]+")
    assert adopted.code == 0, adopted.output
    vms = yaml.load(file.read_text(encoding="utf-8"), Loader)["qemu_vms"]
    assert [vm["name"] for vm in vms] == [guest["name"] for guest in guests]
    texts = {guest["name"]: guest["config"]["description"] for guest in guests}
    described = [vm for vm in vms if "description" in vm]
    assert len(described) > 20
    assert all(vm["description"].rstrip() == texts[vm["name"]].rstrip() for vm in described)
    assert_unchanged(tmp_path, cluster, file, "-e", "{qemu_options: {update: true}}")
    assert not trace.exists()


def test_selection__is_by_pool_tag_and_name(start: Start, tmp_path: Path) -> None:
    guests = [
        {"vmid": 300, "name": "a", "node": "pve1", "pool": "web", "config": {"tags": "x;y", "cipassword": "secret"}},
        {"vmid": 301, "name": "b", "node": "pve1", "pool": "web", "config": {"tags": "x"}},
        {"vmid": 302, "name": "c", "node": "pve1", "config": {"tags": "x;y"}},
    ]
    cluster = start(description_with(guests))
    arguments = ("-e", "adopt_pool=web", "-e", "adopt_tags=x,y")
    shown = play(tmp_path, cluster, "adopt", *arguments)
    assert shown.code == 0, shown.output
    lines = shown.of("Show the list")["msg"]
    assert lines[:2] == ["---", "# left out: a (300), cipassword: it is secret"]
    assert yaml.safe_load("\n".join(lines))["qemu_vms"] == [
        {"name": "a", "vmid": 300, "pool": "web", "state": "stopped", "memory": 512, "tags": ["x", "y"]}
    ]
    assert "secret" not in shown.output.replace("it is secret", "")
    assert play(tmp_path, cluster, "adopt", "-e", "adopt_pools=web").last["msg"].startswith("unknown variable")
    file = tmp_path / "vms.yml"
    unknown = play(tmp_path, cluster, "adopt", "-e", f"adopt_file={file}", "-e", "adopt_pool=wbe")
    assert "adopt_pool: there is no pool 'wbe', or this user cannot see it; known:" in unknown.last["msg"]
    nobody = play(tmp_path, cluster, "adopt", "-e", f"adopt_file={file}", "-e", "adopt_tags=z")
    assert nobody.last["msg"] == "adopt_tags: z: there is no such VM; nothing was written"
    assert not file.exists()
