# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tests of the Proxmox layer share: a simulated cluster of each version, and a login to it."""

from __future__ import annotations

import threading
import time
import typing as t
from collections.abc import Callable, Iterator

import pytest
from simulated_cluster.client import SimulatedCluster

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import Session
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.binder import Binder
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.identity import identity_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import Poller, TaskFollower
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.writes import GuestWriter

# Simulated seconds last this many real ones, for the cluster and for who waits on it.
SCALE = 0.01

DESCRIPTION: dict[str, t.Any] = {
    "cluster": "lab",
    "nodes": [{"name": name, "cores": 16, "memory": 65536} for name in ("pve1", "pve2", "pve3")],
    "storages": [
        {"name": "local", "type": "dir", "content": ["iso", "import"], "size": 60},
        {"name": "local-lvm", "type": "lvmthin", "content": ["images"], "size": 500},
        {"name": "shared", "type": "rbd", "shared": True, "content": ["images"], "size": 2000},
    ],
    "images": {"local": {"debian.qcow2": 2}},
    "pools": ["web"],
    "users": [{"name": "op@pve", "password": "op-password"}, {"name": "blind@pve"}],
    "tokens": [
        {"id": "op@pve!tok", "secret": "11111111-1111-1111-1111-111111111111", "privsep": False},
        {"id": "blind@pve!tok", "secret": "22222222-2222-2222-2222-222222222222", "privsep": False},
    ],
    "acl": [
        {"path": "/pool/web", "user": "op@pve", "role": "PVEVMAdmin"},
        {"path": "/storage", "user": "op@pve", "role": "PVEDatastoreUser"},
        {"path": "/sdn", "user": "op@pve", "role": "PVESDNUser"},
        {"path": "/vms", "user": "blind@pve", "role": "PVEVMAdmin"},
    ],
    "guests": [
        {"vmid": 100, "name": "app", "node": "pve1", "cores": 2, "memory": 2048, "disks": {"scsi0": "shared:8"}},
        {"vmid": 101, "name": "busy", "node": "pve2", "cores": 2, "memory": 2048, "status": "running"},
        {"vmid": 110, "name": "ct", "node": "pve3", "type": "lxc", "cores": 1, "memory": 512},
        {"vmid": 9000, "name": "tpl", "node": "pve1", "memory": 1024, "template": True, "disks": {"scsi0": "shared:4"}},
    ],
}

OPERATOR = {
    "api_user": "op@pve",
    "api_token_id": "tok",
    "api_token_secret": "11111111-1111-1111-1111-111111111111",
}
BLIND = {
    "api_user": "blind@pve",
    "api_token_id": "tok",
    "api_token_secret": "22222222-2222-2222-2222-222222222222",
}


def parameters(cluster: SimulatedCluster, **changes: t.Any) -> dict[str, t.Any]:
    """The connection options for the cluster's own token."""
    return {
        "api_host": [cluster.host],
        "api_port": cluster.port,
        "api_user": cluster.token_user,
        "api_token_id": cluster.token_id,
        "api_token_secret": cluster.token_secret,
        "ca_path": cluster.ca_path,
        **changes,
    }


def guest(cluster: SimulatedCluster, binder: Binder, vmid: int) -> GuestWriter:
    """Return a writer to the guest that has the VMID now."""
    found = cluster.state()["guests"].get(vmid, {"config": {}, "node": "pve1"})
    return binder.lifecycle.writer(vmid, identity_of(found["config"], found["node"]))


def calls(cluster: SimulatedCluster) -> list[str]:
    """What was asked of the cluster, polls of tasks left out."""
    asked = [f"{request['method']} {request['path']}" for request in cluster.requests()]
    return [call for call in asked if "/tasks/UPID:" not in call]


@pytest.fixture(params=["8.4", "9.2"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cluster(version: str, request: pytest.FixtureRequest) -> Iterator[SimulatedCluster]:
    """The cluster, with the changes to its description that the test is parametrized with."""
    description = {**DESCRIPTION, **getattr(request, "param", {})}
    with SimulatedCluster.start(description, version=version, time_scale=SCALE) as running:
        yield running


@pytest.fixture
def connect(cluster: SimulatedCluster) -> Callable[..., Session]:
    """Return a function that logs in, with changes to the connection options."""

    def login(**changes: t.Any) -> Session:
        def sleep(seconds: float) -> None:
            time.sleep(seconds * SCALE)

        return Session.connect(parameters(cluster, **changes), sleep)

    return login


@pytest.fixture
def session(connect: Callable[..., Session]) -> Session:
    return connect()


@pytest.fixture
def operator(connect: Callable[..., Session]) -> Session:
    """A user with rights on one pool and the storages only."""
    return connect(**OPERATOR)


@pytest.fixture
def blind(connect: Callable[..., Session]) -> Session:
    """A user with rights on all VMs and none on the cluster: sees neither its options nor its tasks."""
    return connect(**BLIND)


@pytest.fixture
def root(cluster: SimulatedCluster, connect: Callable[..., Session]) -> Session:
    return connect(api_user=cluster.user, api_password=cluster.password)


@pytest.fixture
def poller() -> Poller:
    """A poller for whom time passes as fast as for the cluster, and in each thread only while it sleeps: a busy machine
    takes nothing of its patience.
    """
    slept = threading.local()

    def clock() -> float:
        return getattr(slept, "seconds", 0.0)

    def sleep(seconds: float) -> None:
        slept.seconds = clock() + seconds
        time.sleep(seconds * SCALE)

    return Poller(clock, sleep)


@pytest.fixture
def binder(session: Session, poller: Poller) -> Binder:
    return Binder(session, TaskFollower(session, timeout=30_000, poller=poller))
