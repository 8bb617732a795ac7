# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster that the recordings were made on, as a description, and the states it was brought into between them."""

from __future__ import annotations

import asyncio
import re
import selectors
import tempfile
import urllib.parse
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientResponse, ClientSession, ClientTimeout, UnixConnector, web
from simulated_cluster.build import build
from simulated_cluster.clock import Clock
from simulated_cluster.cluster import Cluster
from simulated_cluster.description import load
from simulated_cluster.server import Server

PASSWORD = "a password of the lab"
SECRET = "00000000-0000-4000-a000-000000000000"
LAB_ROLE = [
    "VM.Allocate", "VM.Audit", "VM.Clone", "VM.Config.Disk", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Network",
    "VM.Config.Options", "VM.Config.HWType", "VM.Config.CDROM", "VM.Config.Cloudinit", "VM.PowerMgmt", "VM.Console",
    "VM.Migrate", "Pool.Audit",
]


def description(version: str) -> dict[str, Any]:
    """Three small nodes, directory storages, and the users of the recordings."""
    old = version == "8.4"
    device = {
        "id": "0000:00:01.0", "vendor": "0x1af4", "device": "0x1045", "subsystem_vendor": "0x1af4",
        "subsystem_device": "0x1045", "class": "0xffff00", "iommugroup": -1, "vendor_name": "Red Hat, Inc.",
        "device_name": "Virtio 1.0 memory balloon", "subsystem_vendor_name": "Red Hat, Inc.",
    }
    other = {**device, "id": "0000:00:02.0", "device": "0x1042", "subsystem_device": "0x1042", "class": "0x018000"}
    return {
        "version": version,
        "cluster": "lab",
        "nodes": [
            {"name": f"pve{number}", "cores": 2, "memory": 24105, "disk": 8, "bridges": ["vmbr0"],
             "pci": [device, other]}
            for number in (1, 2, 3)
        ],
        "storages": [
            {"name": "local", "type": "dir", "content": ["iso", "vztmpl", "backup", "import"], "size": 8},
            {"name": "vmdata", "type": "dir", "content": ["images", "rootdir"], "size": 100},
            {"name": "shared", "type": "dir", "shared": True, "content": ["images", "iso", "snippets"], "size": 252,
             "options": {"path": "/mnt/shared"}},
            {"name": "only1", "type": "dir", "content": ["images"], "size": 8, "nodes": ["pve1"]},
            {"name": "off", "type": "dir", "content": ["images"], "size": 8, "enabled": False},
        ],
        "pools": [{"name": "lab", "comment": "lab pool"}, "lab/sub"],
        "guests": [
            _vm(101, "web01", "pve1", 512, "vmdata:4,format=qcow2", cores=2, pool="lab", tags="core;lab"),
            _vm(102, "bare", "pve1", 256),
            _vm(103, "remote", "pve2", 256, "vmdata:1"),
            _vm(104, "slow", "pve1", 256, "vmdata:1"),
            _vm(105, "cl", "pve1", 256, "vmdata:1"),
            _vm(111, "fresh1", "pve1", 512, "vmdata:4,format=qcow2", cores=2, pool="lab", tags="core;lab"),
            _vm(120, "runner", "pve1", 64, "vmdata:1", pool="lab", tags="core", config={
                "agent": "1", "net0": "virtio,bridge=vmbr0", "scsihw": "virtio-scsi-pci"}),
            _vm(140, "onshared", "pve1", 64, "shared:1"),
            {"vmid": 200, "name": "ct200", "node": "pve2", "type": "lxc", "cores": 1, "memory": 512, "tags": "core",
             "config": {"rootfs": "vmdata:200/vm-200-disk-0.raw,size=8G"}},
            {"vmid": 9000, "name": "tpl", "node": "pve1", "memory": 64, "template": True,
             "disks": {"scsi0": "vmdata:1,format=qcow2"}, "config": {"net0": "virtio,bridge=vmbr0"}},
        ],
        "roles": {"LabVM": LAB_ROLE + (["VM.Monitor"] if old else [])},
        "users": [{"name": f"{name}@pve", "password": PASSWORD} for name in ("op", "op3", "viewer", "nobody")]
        + [{"name": "disabled@pve", "password": PASSWORD, "enable": False},
           {"name": "expired@pve", "password": PASSWORD, "expire": 1600000000}],
        "tokens": [{"id": f"{name}@pve!tok", "secret": SECRET, "privsep": False} for name in ("op", "viewer", "nobody")]
        + [{"id": "op@pve!sep", "secret": SECRET}, {"id": "root@pam!sep", "secret": SECRET},
           {"id": "root@pam!full", "secret": SECRET, "privsep": False},
           {"id": "op@pve!exp", "secret": SECRET, "privsep": False, "expire": 1600000000}],
        "acl": [
            {"path": "/", "user": "viewer@pve", "role": "PVEAuditor"},
            {"path": "/pool/lab", "user": "op@pve", "role": "LabVM"},
            {"path": "/storage/vmdata", "user": "op@pve", "role": "PVEDatastoreUser"},
            {"path": "/sdn/zones/localnetwork/vmbr0", "user": "op@pve", "role": "PVESDNUser"},
        ],
        "options": {
            "registered-tags": ["core"], "tag-style": {"color-map": "lab:ff0000"}, "description": "lab cluster\n",
        },
        "next_id": {"lower": 100, "upper": 999999},
        "mappings": {
            "pci": [
                {"id": "nic", "description": "lab nic", "map": ["node=pve1,path=0000:00:01.0,id=1af4:1045"]},
                {"id": "vgpu", "mdev": 1, "map": ["node=pve1,path=0000:01:00.0,id=10de:1eb8"]},
                {"id": "multi", "map": [
                    "node=pve1,path=0000:00:01.0,id=1af4:1045", "node=pve2,path=0000:00:02.0,id=1af4:1041",
                    "node=pve3,path=0000:00:99.0,id=10de:2204,iommugroup=7"]},
            ],
            "usb": [{"id": "stick", "map": ["node=pve1,id=1d6b:0002"]}],
            "dir": [{"id": "share", "map": ["node=pve1,path=/srv/share"]}],
        },
    }


def _vm(vmid: int, name: str, node: str, memory: int, disk: str | None = None, **more: Any) -> dict[str, Any]:
    return {"vmid": vmid, "name": name, "node": node, "memory": memory, **more} | (
        {"disks": {"scsi0": disk}} if disk else {}
    )


@dataclass
class Lab:
    """The simulated lab within this process, and a client that logs in as the recordings did."""

    cluster: Cluster
    client: ClientSession
    background: list[asyncio.Task[None]] = field(default_factory=list)

    def login(self, auth: str) -> dict[str, str]:
        """Headers of an identity in the recordings' words: ``root@pam``, ``token:op@pve!tok``, ``none``."""
        if auth == "none":
            return {}
        if auth.startswith("token:"):
            return {"Authorization": f"PVEAPIToken={auth.removeprefix('token:')}={SECRET}"}
        ticket, csrf = self.cluster.tickets.issue(auth, 0)
        return {"Cookie": f"PVEAuthCookie={urllib.parse.quote(ticket)}", "CSRFPreventionToken": csrf}

    async def ask(
        self, method: str, path: str, params: Any = None, auth: str = "root@pam", extra: dict[str, Any] | None = None
    ) -> ClientResponse:
        """One request, its parameters sent as the recordings' client sent them."""
        headers = self.login(auth)
        options: dict[str, Any] = {}
        if extra is not None and "body" in extra:
            options["data"] = extra["body"].encode()
            headers |= extra.get("headers", {})
        elif params is not None and method in ("GET", "DELETE"):
            options["params"] = _pairs(params)
        elif params is not None:
            options["data"] = urllib.parse.urlencode(_pairs(params))
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        url = "/api2/json" + urllib.parse.quote(path, safe="/:?=&")
        return await self.client.request(method, url, headers=headers, **options)

    async def finish(self, upid: str) -> dict[str, Any]:
        """The status of a task at its end."""
        task = self.cluster.tasks.find(upid)
        assert task is not None
        assert task.runner is not None
        await task.runner
        return task.status()


def _pairs(params: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = []
    for name, value in params.items():
        pairs += [(name, str(item)) for item in value] if isinstance(value, list) else [(name, str(value))]
    return pairs


def in_lab(
    version: str, work: Callable[[Lab], Awaitable[Any]], time_scale: float = 0.0,
    described: dict[str, Any] | None = None,
) -> Any:
    """Run ``work`` against a fresh lab, or against the cluster described."""

    async def run() -> Any:
        cluster = build(load(described or description(version)), clock=_LabClock(time_scale))
        server = Server(cluster)
        listening = web.AppRunner(server.application(), access_log=None)
        await listening.setup()
        # The path of a Unix socket is limited to some 100 bytes.
        with tempfile.TemporaryDirectory(prefix="lab-", dir="/tmp") as folder:
            socket = f"{folder}/socket"
            await web.UnixSite(listening, socket).start()
            patient = ClientTimeout(total=None)
            async with ClientSession("http://lab", connector=UnixConnector(socket), timeout=patient) as client:
                try:
                    return await work(Lab(cluster, client))
                finally:
                    await server.stop()
                    await listening.cleanup()

    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(run())


class _Selector(selectors.EpollSelector):
    """Waits for no time: it lets the time pass if nothing is ready.

    What is written into a Unix socket can be read at once, so that nothing is under way then.
    """

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if timeout is None and not ready:
            return super().select()
        if timeout is not None and not ready:
            self.now += max(timeout, 0.0)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    """Its clock stands while something runs: how fast the machine is changes no result."""

    def __init__(self) -> None:
        self._time = _Selector()
        super().__init__(self._time)

    def time(self) -> float:
        return self._time.now


class _LabClock(Clock):
    """A cluster's clock that goes with the loop's, and shows the same time in each run."""

    def __init__(self, scale: float) -> None:
        super().__init__(scale)
        self._epoch = 1_780_000_000.0

    def _machine_time(self) -> float:
        return asyncio.get_running_loop().time()


_VARYING = (
    (re.compile(r"UPID:[^'\"\s]+:"), "UPID"),
    (re.compile(r"conf\.tmp\.\d+"), "conf.tmp.N"),
    (re.compile(r"HASH\(0x[0-9a-f]+\)"), "HASH"),
    (re.compile(r"qemu-img\.deb"), "qemu-img"),
    (re.compile(r"Temporary failure in name resolution"), "Name or service not known"),
)


def plain(text: str) -> str:
    """A text without what differs from run to run and from host to host."""
    for pattern, replacement in _VARYING:
        text = pattern.sub(replacement, text)
    return text


def keys(data: Any) -> dict[str, set[str]]:
    """The keys that an answer has: its own, and for a list those of its rows, by the rows' type."""
    if isinstance(data, dict):
        return {"": set(data)}
    found: dict[str, set[str]] = {}
    if isinstance(data, list):
        for row in data:
            if isinstance(row, dict):
                status = row.get("status", "") if row.get("type") in ("qemu", "lxc", "node", "storage") else ""
                found.setdefault(f"{row.get('type', '')} {status}".strip(), set()).update(row)
    return found
