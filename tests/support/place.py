# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster of tests that run on any cluster, simulated or real: its properties, and a part of it for each test."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import requests

VMIDS_PER_TEST = 40
TASK_SECONDS = 300.0


class Refused(AssertionError):
    """Proxmox answered with an error; the text is its reason."""


class Api:
    """A session with Proxmox VE that does not use the collection's code, by which tests inspect the cluster."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._url = f"https://{environment['PROXMOX_HOST']}:{environment.get('PROXMOX_PORT', '8006')}/api2/json"
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = environment.get("PROXMOX_CA_PATH") or True
        if environment.get("PROXMOX_VALIDATE_CERTS", "true").lower() in ("false", "no", "0"):
            self._session.verify = False
        self._log_in(environment)

    def _log_in(self, environment: Mapping[str, str]) -> None:
        user, secret = environment["PROXMOX_USER"], environment.get("PROXMOX_TOKEN_SECRET")
        if secret:
            token = f"{user}!{environment['PROXMOX_TOKEN_ID']}"
            self._session.headers["Authorization"] = f"PVEAPIToken={token}={secret}"
            return
        ticket = self.ask("POST", "/access/ticket", username=user, password=environment["PROXMOX_PASSWORD"])
        self._session.cookies.set("PVEAuthCookie", ticket["ticket"])
        self._session.headers["CSRFPreventionToken"] = ticket["CSRFPreventionToken"]

    def ask(self, method: str, path: str, /, **params: Any) -> Any:
        """The data of an answer."""
        where = {"params" if method in ("GET", "DELETE") else "data": params}
        answer = self._session.request(method, self._url + path, timeout=60, **where)  # type: ignore[arg-type]
        if answer.status_code != 200:
            raise Refused(f"{method} {path}: {answer.status_code} {answer.reason}")
        return answer.json()["data"]

    def get(self, path: str, /, **params: Any) -> Any:
        return self.ask("GET", path, **params)

    def do(self, method: str, path: str, **params: Any) -> str:
        """Send a call that starts a task, wait for its end, and return the exit status."""
        upid = self.ask(method, path, **params)
        if not (isinstance(upid, str) and upid.startswith("UPID:")):
            return "OK"
        deadline = time.monotonic() + TASK_SECONDS
        while time.monotonic() < deadline:
            status = self.get(f"/nodes/{upid.split(':')[1]}/tasks/{upid}/status")
            if status["status"] == "stopped":
                return str(status["exitstatus"])
            time.sleep(0.1)
        raise Refused(f"{method} {path}: its task has not ended after {TASK_SECONDS:.0f} s")


@dataclass(frozen=True)
class Cluster:
    """What every test can rely on: online nodes, and a storage for disks and a bridge that all of them have."""

    api: Api
    environment: Mapping[str, str]
    modern: bool
    nodes: tuple[str, ...]
    storage: str
    bridge: str

    @classmethod
    def look(cls, environment: Mapping[str, str]) -> Cluster:
        """Read the properties of the cluster of these PROXMOX_ variables."""
        api = Api(environment)
        rows = api.get("/cluster/resources")
        nodes = sorted(row["node"] for row in rows if row["type"] == "node" and row["status"] == "online")
        assert nodes, "no node is online"
        places: dict[tuple[bool, str], set[str]] = {}
        for row in rows:
            if row["type"] == "storage" and row["status"] == "available" and "images" in row["content"].split(","):
                places.setdefault((not row["shared"], row["storage"]), set()).add(row["node"])
        everywhere = sorted(key for key, where in places.items() if where.issuperset(nodes))
        assert everywhere, "no storage for disk images is available on all nodes"
        bridges = [
            {row["iface"] for row in api.get(f"/nodes/{node}/network", type="any_bridge")} for node in nodes
        ]
        common = sorted(set.intersection(*bridges))
        assert common, "no bridge is on all nodes"
        release = str(api.get("/version")["release"])
        return cls(api, environment, int(release.split(".")[0]) >= 9, tuple(nodes), everywhere[0][1], common[0])

    def guests(self) -> list[int]:
        """The VMIDs of all guests, templates included."""
        return sorted(row["vmid"] for row in self.api.get("/cluster/resources", type="vm"))


@dataclass
class Corner:
    """One test's part of a cluster: VMIDs, names, a pool and rules that no other test uses."""

    cluster: Cluster
    first: int
    label: str = field(default_factory=lambda: f"qst-{secrets.token_hex(3)}")

    def __post_init__(self) -> None:
        self.last = self.first + VMIDS_PER_TEST - 1
        self.pool = self.label
        taken = [vmid for vmid in self.cluster.guests() if self.owns(vmid)]
        assert not taken, f"VMIDs {taken} are taken, though tests want {self.first} to {self.last} for themselves"
        self.cluster.api.ask("POST", "/pools", poolid=self.pool, comment="a test of qemu_scheduler.proxmox")

    def owns(self, vmid: int) -> bool:
        return self.first <= vmid <= self.last

    def name(self, stem: str) -> str:
        return f"{self.label}-{stem}"

    def small(self, stem: str, **options: Any) -> dict[str, Any]:
        """The options of a VM that any node can run."""
        return {
            "name": self.name(stem), "cores": 1, "memory": 32, "vmid_range": f"{self.first}-{self.last}",
            "scsi": {"scsi0": {"size": 1, "storage": self.cluster.storage}}, **options,
        }

    def vms(self) -> dict[int, dict[str, Any]]:
        """The VMs of this corner, as their nodes know them now."""
        found = {}
        for node in self.cluster.nodes:
            for row in self.cluster.api.get(f"/nodes/{node}/qemu"):
                if self.owns(int(row["vmid"])):
                    found[int(row["vmid"])] = {**row, "node": node}
        return found

    def path(self, vmid: int) -> str:
        return f"/nodes/{self.vms()[vmid]['node']}/qemu/{vmid}"

    def config(self, vmid: int, **params: Any) -> dict[str, Any]:
        return dict(self.cluster.api.get(f"{self.path(vmid)}/config", **params))

    def status(self, vmid: int) -> str:
        return str(self.vms()[vmid]["status"])

    def members(self) -> set[int]:
        """The VMIDs in this corner's pool."""
        members = self.cluster.api.get(f"/pools/{self.pool}")["members"]
        return {int(row["vmid"]) for row in members if "vmid" in row}

    def leave(self) -> None:
        """Remove everything in this corner, and fail if something could not be removed."""
        problems: list[str] = []

        def attempt(what: Callable[[], Any]) -> None:
            try:
                ended = what()
                if isinstance(ended, str) and ended != "OK":
                    problems.append(ended)
            except (Refused, requests.RequestException) as error:
                problems.append(str(error))

        api = self.cluster.api
        if self.cluster.modern:
            for rule in api.get("/cluster/ha/rules"):
                if str(rule["rule"]).startswith(self.label):
                    attempt(partial(api.ask, "DELETE", f"/cluster/ha/rules/{rule['rule']}"))
        for resource in api.get("/cluster/ha/resources"):
            if self.owns(int(str(resource["sid"]).partition(":")[2])):
                attempt(partial(api.ask, "DELETE", f"/cluster/ha/resources/{resource['sid']}"))
        # Proxmox's own clean-up may hold the lock of a VM that has just stopped for half a minute; a request waits ten
        # seconds for it.
        for _ in range(4):
            for vmid, row in sorted(self.vms().items()):
                if row["status"] != "stopped":
                    attempt(partial(api.do, "POST", f"/nodes/{row['node']}/qemu/{vmid}/status/stop"))
            # Remove linked clones before their template.
            for vmid, row in sorted(self.vms().items(), key=lambda item: (item[1].get("template", 0), item[0])):
                attempt(partial(api.do, "DELETE", f"/nodes/{row['node']}/qemu/{vmid}", purge=1))
            if not self.vms():
                break
        attempt(partial(api.ask, "DELETE", f"/pools/{self.pool}"))
        left = sorted(self.vms())
        assert not left, f"VMs {left} could not be removed: {'; '.join(problems)}"
