# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role of Proxmox VE that docs/awx.md recommends: it is enough, and no privilege of it is too much."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.controller import Controller, ModuleServer, Result
from support.playbook import run_playbook

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "awx.md").read_text(encoding="utf-8")
ROLES = {
    {"9": "9.2", "8": "8.4"}[release]: privileges.split()
    for release, privileges in re.findall(r'# Proxmox VE (\d)\npveum role add QemuScheduler --privs "(.+)"', PAGE)
}
SECRET = "12345678-1234-4234-8234-123456789abc"
VMIDS = range(600, 700)

COMMON: dict[str, Any] = {"agent": "enabled=1", "ciuser": "ann", "pool": "web", "state": "started", "memory": 2048}
VMS: list[dict[str, Any]] = [
    {
        **COMMON, "name": "made", "cores": 2, "tags": ["web"], "onboot": True, "scsihw": "virtio-scsi-single",
        "scsi": {"scsi0": {"size": 8}, "scsi1": "shared:0,import-from=local:import/debian-13.qcow2"},
        "ide": {"ide2": "local:iso/debian-13.iso,media=cdrom"}, "net": {"net0": "virtio,bridge=vmbr0"},
    },
    {
        **COMMON, "name": "cloned", "clone": "debian-13", "cores": 2, "scsi": {"scsi0": {"size": 20}},
        "ide": {"ide3": "none,media=cdrom"},
    },
]
CHANGED = [
    {**VMS[0], "update": True, "cores": 4, "tags": ["db", "web"], "scsi": {**VMS[0]["scsi"], "scsi0": {"size": 9}}},
    {**VMS[1], "update": True, "memory": 4096},
]


class Failed(Exception):
    """A module failed."""


class User:
    """The user of the role, who runs modules as a job would."""

    def __init__(self, cluster: SimulatedCluster, modules: ModuleServer, folder: Path) -> None:
        self.environment = {
            **cluster.environment(),
            "PROXMOX_USER": "scheduler@pve",
            "PROXMOX_TOKEN_ID": "awx",
            "PROXMOX_TOKEN_SECRET": SECRET,
        }
        self._controller = Controller(modules, folder, self.environment)

    def run(self, module: str, **options: Any) -> Result:
        result = self._controller.run(module, **options)
        if result.get("failed"):
            raise Failed(result["msg"])
        return result

    def do_everything(self) -> None:
        """Create, clone, look again, update, ask for addresses, remove. Raises Failed."""
        self.run("qemu_schedule", vms=VMS)
        updated = self.run("qemu_schedule", vms=CHANGED)
        assert updated["changed"]
        found = self.run("vm_address_info", vmids=[vm["vmid"] for vm in updated["vms"]], wait=20)
        assert all(vm["address"] for vm in found["vms"])
        assert not self.run("qemu_schedule", vms=CHANGED)["changed"]
        self.run("qemu_schedule", vms=[{"name": vm["name"], "state": "absent"} for vm in VMS])


def set_role(cluster: SimulatedCluster, privileges: list[str]) -> None:
    session = requests.Session()
    session.verify, session.trust_env = cluster.ca_path, False
    api = f"{cluster.url}/api2/json/access"
    login = {"username": cluster.user, "password": cluster.password}
    ticket = session.post(f"{api}/ticket", data=login).json()["data"]
    session.cookies.set("PVEAuthCookie", ticket["ticket"])
    headers = {"CSRFPreventionToken": ticket["CSRFPreventionToken"]}
    answer = session.put(f"{api}/roles/QemuScheduler", data={"privs": ",".join(privileges)}, headers=headers)
    assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, SimulatedCluster]]:
    """A cluster of each release, with the user, the token and the role."""
    running: dict[str, SimulatedCluster] = {}
    description = yaml.safe_load((CLUSTERS / "three-nodes.yml").read_text(encoding="utf-8"))
    description.update(
        users=[{"name": "scheduler@pve"}],
        tokens=[{"id": "scheduler@pve!awx", "secret": SECRET, "privsep": False}],
        acl=[{"path": "/", "user": "scheduler@pve", "role": "QemuScheduler"}],
        next_id={"lower": VMIDS.start, "upper": VMIDS.stop},
    )

    def described(version: str) -> dict[str, Any]:
        return {**description, "roles": {"QemuScheduler": ROLES[version]}}

    with (
        SimulatedCluster.start(described("9.2"), version="9.2") as running["9.2"],
        SimulatedCluster.start(described("8.4"), version="8.4") as running["8.4"],
    ):
        yield running


@pytest.fixture
def cluster(clusters: dict[str, SimulatedCluster], version: str) -> Iterator[SimulatedCluster]:
    set_role(clusters[version], ROLES[version])
    yield clusters[version]
    for vmid in set(clusters[version].state()["guests"]) & set(VMIDS):
        clusters[version].remove_guest(vmid)


@pytest.fixture
def user(cluster: SimulatedCluster, modules: ModuleServer, tmp_path: Path) -> User:
    return User(cluster, modules, tmp_path)


@pytest.mark.parametrize("version", ROLES)
def test_role__is_enough_for_the_playbooks(user: User, tmp_path: Path) -> None:
    file = tmp_path / "vms.yml"
    file.write_text(yaml.safe_dump({"qemu_vms": VMS, "provision_wait_for_address": True}), encoding="utf-8")
    for name in ("plan", "provision", "capacity", "teardown"):
        run = run_playbook(tmp_path, f"qemu_scheduler.proxmox.{name}", user.environment, "-e", f"@{file}")
        assert run.code == 0, run.output


@pytest.mark.parametrize("version", ROLES)
def test_role__is_enough_for_updates(user: User) -> None:
    user.do_everything()


@pytest.mark.parametrize(("version", "privilege"), [(v, p) for v, role in ROLES.items() for p in role])
def test_missing_privilege__fails_something(
    cluster: SimulatedCluster, user: User, version: str, privilege: str
) -> None:
    set_role(cluster, [other for other in ROLES[version] if other != privilege])
    with pytest.raises(Failed):
        user.do_everything()
