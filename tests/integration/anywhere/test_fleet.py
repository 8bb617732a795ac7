# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet: names and addresses by number, what it is as an inventory, and how it differs from its list."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.ansible_commands import Ansible
from support.controller import Controller
from support.place import Cluster, Corner
from support.playbook import environment, run_playbook

Fleet = Callable[..., dict[str, Any]]


@pytest.fixture
def fleet(corner: Corner) -> Fleet:
    """The options of web-1, web-2, ... with addresses of a network that no other test uses."""
    number = (corner.first // 40) % 256
    lan = {
        "network": f"198.18.{number}.0/24", "ranges": [f"198.18.{number}.10-198.18.{number}.19"],
        "gateway": f"198.18.{number}.1", "ignore_unread": True,
    }

    def options(count: int, **more: Any) -> dict[str, Any]:
        entry = {
            **corner.small("web-{n}"), "count": count, "tags": ["fleet"], "pool": corner.pool,
            "net": {"net0": f"virtio,bridge={corner.cluster.bridge}"}, "addresses": {"ipconfig0": "lan"},
            "ide": {"ide2": f"{corner.cluster.storage}:cloudinit"}, **more,
        }
        return {"vms": [entry], "address_pools": {"lan": lan}}

    return options


def addresses(corner: Corner) -> dict[str, str]:
    """The last number of each VM's address, by the VM's short name."""
    found = {}
    for vmid, row in corner.vms().items():
        address = corner.config(vmid)["ipconfig0"].partition("ip=")[2].partition("/")[0]
        found[row["name"].removeprefix(f"{corner.label}-")] = address.rpartition(".")[2]
    return found


def test_count__gives_each_vm_an_address_that_it_keeps(controller: Controller, corner: Corner, fleet: Fleet) -> None:
    controller.schedule(**fleet(2))
    assert addresses(corner) == {"web-1": "10", "web-2": "11"}
    again = controller.schedule(**fleet(2))
    assert (again["changed"], [vm["drift"] for vm in again["vms"]]) == (False, [{}, {}])
    controller.schedule(**fleet(3))
    assert addresses(corner) == {"web-1": "10", "web-2": "11", "web-3": "12"}

    guarded = controller.fail("RemovalRefused", **fleet(1, surplus="absent", only_pool="another-pool"))
    assert f"only_pool requires pool another-pool, and it is in pool {corner.pool}" in guarded["msg"]
    controller.schedule(**fleet(1, surplus="absent", only_pool=corner.pool, only_tags=["fleet"]))
    assert addresses(corner) == {"web-1": "10"}


def test_states__pause_and_restart_a_vm(controller: Controller, corner: Corner) -> None:
    asked = corner.small("web", startup="down=1")
    vmid = controller.schedule(state="started", **asked)["vmid"]
    for state, status in (("paused", "paused"), ("started", "running")):
        assert controller.schedule(state=state, **asked)["changed"]
        assert not controller.schedule(state=state, **asked)["changed"]
        assert corner.cluster.api.get(f"{corner.path(vmid)}/status/current")["qmpstatus"] == status
    update = controller.schedule(update=True, **{**asked, "state": "restarted", "force": True, "memory": 48})
    assert (update["vms"][0]["actions"], update["vms"][0]["pending"]) == (["update", "restart"], {})
    assert corner.config(vmid, current=1)["memory"] == "48"


def test_drift__is_told_by_module_and_playbook(
    controller: Controller, corner: Corner, cluster: Cluster, tmp_path: Path
) -> None:
    here = {"pool": corner.pool}
    controller.schedule(vms=[corner.small(name, **here) for name in ("same", "other", "unlisted")])
    vms = [corner.small("same", **here), corner.small("other", memory=64, **here), corner.small("missing", **here)]
    asked = {"vms": vms, "unmanaged": True, "only_pool": corner.pool}
    told = controller.run("fleet_info", **asked)
    assert not told.get("failed"), told["msg"]
    assert [vm["state"] for vm in told["vms"]] == ["ok", "drifted", "missing"]
    assert told["vms"][1]["drift"] == {"memory": {"old": 32, "new": 64}}
    assert [vm["name"] for vm in told["unmanaged"]] == [corner.name("unlisted")]

    values = {"qemu_vms": vms, "qemu_options": {"state": "present"}}
    (tmp_path / "vms.yml").write_text(yaml.safe_dump(values), encoding="utf-8")
    play = run_playbook(
        tmp_path, "qemu_scheduler.proxmox.drift", cluster.environment, "-e", f"@{tmp_path / 'vms.yml'}")
    assert play.code == 2, play.output
    assert "1 missing" in play.output, play.output
    assert "1 drifted" in play.output, play.output


def test_inventory__has_the_vms_with_groups_and_addresses(
    controller: Controller, corner: Corner, cluster: Cluster, fleet: Fleet, tmp_path: Path
) -> None:
    made = controller.schedule(**fleet(2))["vms"]
    source = tmp_path / "cluster.yml"
    source.write_text(yaml.safe_dump({
        "plugin": "qemu_scheduler.proxmox.cluster", "addresses": ["static"], "configs": True,
        "filters": [f"proxmox_pool == '{corner.pool}'"],
    }), encoding="utf-8")
    env = environment(tmp_path, {**cluster.environment, "ANSIBLE_INVENTORY_UNPARSED_FAILED": "1"})
    listed = Ansible.run("ansible-inventory", ["-i", str(source), "--list"], env)
    assert listed.returncode == 0, listed.stderr
    groups = json.loads(listed.stdout, object_hook=_without_mark)
    hosts = groups["_meta"]["hostvars"]
    assert set(hosts) == {vm["name"] for vm in made}
    for vm in made:
        host = hosts[vm["name"]]
        assert host["ansible_host"] == vm["host"]["vars"]["ansible_host"]
        assert (host["proxmox_vmid"], host["proxmox_node"]) == (vm["vmid"], vm["node"])
        assert vm["name"] in groups[f"proxmox_node_{vm['node']}".replace("-", "_")]["hosts"]
        assert vm["name"] in groups["proxmox_tag_fleet"]["hosts"]
        assert f"ip={host['ansible_host']}/24" in host["proxmox_config"]["ipconfig0"].split(",")


def _without_mark(data: dict[str, Any]) -> Any:
    """ansible-inventory marks each text of the cluster, so that whoever reads its output does not evaluate it."""
    return data["__ansible_unsafe"] if data.keys() == {"__ansible_unsafe"} else data
