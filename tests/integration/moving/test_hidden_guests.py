# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No node looks drained because access control lists hide its guests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, ModuleServer
from support.playbook import run_tasks
from support.versions import both_versions

from .conftest import TIME_SCALE, description, on, writes

SECRET = "12345678-1234-4234-8234-123456789abc"
TOKEN = {"PROXMOX_USER": "drainer@pve", "PROXMOX_TOKEN_ID": "ci", "PROXMOX_TOKEN_SECRET": SECRET}
ROLE = ["Datastore.Audit", "Pool.Allocate", "Pool.Audit", "Sys.Audit", "VM.Audit", "VM.Migrate"]
EVERYWHERE = {"path": "/", "user": "drainer@pve", "role": "NodeDrainer"}

As = Callable[..., tuple[SimulatedCluster, Controller]]


@pytest.fixture
def under(modules: ModuleServer, tmp_path: Path, version: str) -> Iterator[As]:
    """A cluster with these access control lists, and the controller of a user who drains nodes there."""
    with ExitStack() as stack:

        def start(*acl: dict[str, Any], privsep: bool = False) -> tuple[SimulatedCluster, Controller]:
            lab: dict[str, Any] = description()
            lab["guests"][1]["pool"] = "secret"
            lab |= {
                "pools": ["secret"],
                "users": [{"name": "drainer@pve"}, {"name": "other@pve"}],
                "tokens": [{"id": "drainer@pve!ci", "secret": SECRET, "privsep": privsep}],
                "roles": {"NodeDrainer": ROLE, "Blind": ["VM.Migrate"]},
                "acl": list(acl),
            }
            cluster = stack.enter_context(SimulatedCluster.start(lab, version=version, time_scale=TIME_SCALE))
            return cluster, Controller(modules, tmp_path / "drainer", {**cluster.environment(), **TOKEN})

        yield start


@both_versions
@pytest.mark.parametrize(
    ("entries", "privsep", "hidden"),
    [
        ([{"path": "/vms/101", "user": "drainer@pve", "role": "NoAccess"}], False, "guest 101"),
        ([{"path": "/vms/101", "user": "drainer@pve", "role": "Blind"}], False, "guest 101"),
        ([{"path": "/pool/secret", "user": "drainer@pve", "role": "NoAccess"}], False, "the guests of /pool/secret"),
        (
            [
                {"path": "/", "token": "drainer@pve!ci", "role": "NodeDrainer"},
                {"path": "/vms/101", "token": "drainer@pve!ci", "role": "NoAccess"},
            ],
            True,
            "guest 101",
        ),
    ],
    ids=["NoAccess", "another role", "pool", "token"],
)
def test_drain__is_refused_while_a_guest_is_hidden(
    under: As, entries: list[dict[str, Any]], privsep: bool, hidden: str
) -> None:
    cluster, controller = under(EVERYWHERE, *entries, privsep=privsep)
    before = on(cluster, "pve1")

    for check in (True, False):
        result = controller.run("node_drain", name=["pve1"], check=check)
        assert result["error_code"] == "PermissionDenied"
        assert f"access control lists hide {hidden} from drainer@pve!ci" in result["msg"]
    assert (on(cluster, "pve1"), writes(cluster)) == (before, [])

    allowed = controller.run("node_drain", name=["pve1"], allow_hidden=True)
    assert not allowed.get("failed"), allowed["msg"]
    assert len(on(cluster, "pve1")) == 1


@both_versions
def test_drain__is_refused_where_it_cannot_be_known(under: As) -> None:
    vms = [{**EVERYWHERE, "path": path} for path in ("/vms", "/pool", "/nodes", "/storage")]
    cluster, controller = under(*vms)

    result = controller.run("node_drain", name=["pve1"])

    assert result["error_code"] == "PermissionDenied"
    assert "grant Sys.Audit on /access" in result["msg"]
    assert writes(cluster) == []
    assert controller.run("node_drain", name=["pve1"], allow_hidden=True)["changed"]


def test_drain__is_refused_where_the_privilege_is_not_inherited(under: As) -> None:
    elsewhere = [{**EVERYWHERE, "path": path} for path in ("/access", "/pool", "/nodes", "/storage")]
    cluster, controller = under(*elsewhere, {**EVERYWHERE, "path": "/vms", "propagate": False})

    result = controller.run("node_drain", name=["pve1"])

    assert "grant VM.Audit on /vms, with propagation" in result["msg"]
    assert writes(cluster) == []


def test_drain__is_not_refused_for_entries_that_hide_nothing(under: As) -> None:
    """They are about others, about guests that are not there, or give more."""
    cluster, controller = under(
        EVERYWHERE,
        {"path": "/vms/101", "user": "other@pve", "role": "NoAccess"},
        {"path": "/vms/102", "user": "drainer@pve", "role": "NodeDrainer"},
        {"path": "/vms/999", "user": "drainer@pve", "role": "NoAccess"},
        {"path": "/pool/secret", "user": "other@pve", "role": "NoAccess"},
    )

    result = controller.run("node_drain", name=["pve1"])

    assert not result.get("failed"), result["msg"]
    assert on(cluster, "pve1") == set()


def test_rolling_maintenance__reboots_no_node_that_may_have_hidden_guests(under: As, tmp_path: Path) -> None:
    cluster, _controller = under(EVERYWHERE, {"path": "/vms/101", "user": "drainer@pve", "role": "NoAccess"})
    reboot = tmp_path / "reboot.yml"
    reboot.write_text(
        f"- ansible.builtin.file: {{path: {tmp_path / 'rebooted'}, state: touch, mode: '600'}}\n", encoding="utf-8"
    )
    role = {
        "ansible.builtin.include_role": {"name": "qemu_scheduler.proxmox.rolling_maintenance"},
        "vars": {"rolling_maintenance_nodes": ["pve1"], "rolling_maintenance_tasks": str(reboot)},
    }

    run = run_tasks(tmp_path, [role], {**cluster.environment(), **TOKEN})

    assert run.code != 0
    assert "access control lists hide guest 101" in run.output
    assert not (tmp_path / "rebooted").exists()


def test_active__is_refused_where_marks_cannot_be_seen(under: As) -> None:
    entries = [{**EVERYWHERE, "path": path} for path in ("/vms", "/nodes", "/storage", "/access")]
    cluster, controller = under(*entries)

    result = controller.run("node_drain", name=["pve1"], state="active")

    assert "this user would not see the mark of pve1" in result["msg"]
    assert writes(cluster) == []
