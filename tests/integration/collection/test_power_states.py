# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMs that are restarted, paused, suspended to disk, and go on."""

from __future__ import annotations

from typing import Any

from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions


def guest(cluster: SimulatedCluster, vmid: int) -> dict[str, Any]:
    return dict(cluster.state()["guests"][vmid])


def sent(cluster: SimulatedCluster) -> list[str]:
    return [r["path"].rpartition("/")[2] for r in cluster.requests() if r["method"] != "GET"]


def actions(controller: Controller, **options: Any) -> list[str]:
    return list(controller.schedule(name="app-1", **options)["vms"][0]["actions"])


@both_versions
def test_paused__is_kept_and_resumed(controller: Controller, cluster: SimulatedCluster) -> None:
    assert actions(controller, state="paused", check=True) == ["pause"]
    assert sent(cluster) == []
    made = controller.schedule(name="app-1", state="paused")
    assert (made["vms"][0]["actions"], made["vms"][0]["status"]) == (["pause"], "paused")
    assert actions(controller, state="paused") == []
    cluster.advance(30)
    assert actions(controller, state="started") == ["resume"]
    assert actions(controller, state="started") == []
    assert sent(cluster) == ["suspend", "resume"]


@both_versions
def test_suspended__goes_on_from_disk(controller: Controller, cluster: SimulatedCluster) -> None:
    made = controller.schedule(name="app-1", state="suspended")
    assert (made["vms"][0]["actions"], made["vms"][0]["status"]) == (["suspend"], "stopped")
    assert guest(cluster, 100)["config"]["lock"] == "suspended"
    assert actions(controller, state="suspended") == []
    assert actions(controller, state="started") == ["start"]
    assert "lock" not in guest(cluster, 100)["config"]


@both_versions
def test_restarted__shuts_down_and_starts_in_every_run(controller: Controller, cluster: SimulatedCluster) -> None:
    assert actions(controller, state="restarted") == ["restart"]
    assert sent(cluster) == ["shutdown", "start"]
    assert guest(cluster, 100)["status"] == "running"
    assert actions(controller, state="restarted") == ["restart"]
    assert controller.schedule(name="spare", state="restarted")["vms"][0]["actions"] == ["start"]
    assert controller.schedule(name="new", state="restarted")["vms"][0]["actions"] == ["create", "start"]


@both_versions
def test_restarted__applies_what_is_pending(controller: Controller, cluster: SimulatedCluster) -> None:
    result = controller.schedule(name="app-1", cores=8, update=True, state="restarted")
    assert result["vms"][0]["actions"] == ["update", "restart"]
    assert result["vms"][0]["pending"] == {}
    assert guest(cluster, 100)["pending"] == {}


def test_restarted__is_forced_on_a_deaf_guest(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.set_guest(100, acpi=False)
    failed = controller.fail("TaskFailed", name="app-1", state="restarted", startup="down=1")
    assert "set force=true to stop it" in failed["msg"]
    assert actions(controller, state="restarted", startup="down=1", force=True) == ["restart"]


@both_versions
def test_shutdown_timeout__is_what_a_guest_gets_and_none_stops_it_at_once(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.set_guest(100, acpi=False)
    failed = controller.fail("InvalidRequest", name="app-1", state="stopped", shutdown_timeout=0)
    assert "shutdown_timeout: 0 stops a VM at once, expected force=true" in failed["msg"]
    controller.fail("InvalidRequest", name="app-1", state="stopped", shutdown_timeout=-1, force=True)
    controller.fail("InvalidRequest", name="app-1", state="stopped", shutdown_timeout=30, timeout=30, force=True)
    assert guest(cluster, 100)["status"] == "running"
    cluster.requests(reset=True)
    assert actions(controller, state="stopped", shutdown_timeout=0, timeout=20, force=True) == ["stop"]
    sent = [request["path"] for request in cluster.requests() if request["method"] == "POST"]
    assert (sent, guest(cluster, 100)["status"]) == (["/nodes/pve1/qemu/100/status/stop"], "stopped")
    controller.schedule(name="app-1", state="started")
    cluster.requests(reset=True)
    assert actions(controller, state="stopped", shutdown_timeout=5, timeout=20, force=True) == ["stop"]
    (sent,) = [request for request in cluster.requests() if request["method"] == "POST"]
    assert (sent["path"], str(sent["params"]["timeout"])) == ("/nodes/pve1/qemu/100/status/shutdown", "5")
    assert guest(cluster, 100)["status"] == "stopped"


def test_force__needs_a_longer_timeout_than_the_guest_gets(controller: Controller, cluster: SimulatedCluster) -> None:
    for options, least in (
        ({"state": "restarted", "timeout": 60}, 60),
        ({"state": "stopped", "timeout": 60}, 60),
        ({"state": "restarted", "startup": "down=90", "update": True, "timeout": 90}, 90),
        ({"cores": 8, "update": True, "apply_pending": "reboot", "timeout": 60}, 60),
    ):
        for check in (True, False):
            failed = controller.fail("InvalidRequest", name="app-1", force=True, check=check, **options)
            expected = f"timeout: {options['timeout']} is not possible with force, expected more than {least}, "
            assert expected in failed["msg"]
    assert sent(cluster) == []
    assert actions(controller, state="restarted", timeout=60, check=True) == ["restart"]
    assert actions(controller, state="restarted", timeout=61, force=True) == ["restart"]
    assert actions(controller, state="started", timeout=30, force=True) == []
    cluster.set_guest(100, config={**guest(cluster, 100)["config"], "startup": "order=1,down=20"})
    assert actions(controller, state="stopped", timeout=30, force=True) == ["stop"]
    assert actions(controller, state="stopped", timeout=10, force=True) == []


def test_paused__is_nothing_for_vms_that_do_not_run(controller: Controller, cluster: SimulatedCluster) -> None:
    for state in ("paused", "suspended"):
        assert "does not run" in controller.fail("InvalidRequest", name="spare", state=state)["msg"]
        assert "does not exist" in controller.fail("InvalidRequest", name="nowhere", state=state)["msg"]
        assert "is a template" in controller.fail("InvalidRequest", name="debian-13", state=state)["msg"]
    assert sent(cluster) == []
