# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulator as a program: starting, stopping, certificates, the client, faults and the request log."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from simulated_cluster.client import CLUSTERS, PACKAGE, SimulatedCluster, StartError
from support.waiting import PATIENCE, until


def session(cluster: SimulatedCluster) -> requests.Session:
    opened = requests.Session()
    opened.verify = cluster.ca_path
    opened.trust_env = False
    token = f"{cluster.token_user}!{cluster.token_id}={cluster.token_secret}"
    opened.headers["Authorization"] = f"PVEAPIToken={token}"
    return opened


@pytest.fixture(scope="module")
def running_cluster() -> Iterator[SimulatedCluster]:
    with SimulatedCluster.start(CLUSTERS / "three-nodes.yml", time_scale=0.005) as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: SimulatedCluster) -> Iterator[SimulatedCluster]:
    running_cluster.reset_requests()
    yield running_cluster
    running_cluster.clear_faults()
    running_cluster.set_quorum(True)
    for name in ("pve1", "pve2", "pve3"):
        running_cluster.set_node(name, online=True, maintenance=False)


@pytest.fixture
def api(cluster: SimulatedCluster) -> Iterator[Any]:
    with session(cluster) as opened:
        def ask(method: str, path: str, **params: Any) -> requests.Response:
            how = {"params": params} if method in ("GET", "DELETE") else {"data": params}
            return opened.request(method, f"{cluster.url}/api2/json{path}", timeout=PATIENCE, **how)

        yield ask


def wait_for(api: Any, upid: str) -> str:
    node = upid.split(":")[1]
    status: dict[str, Any] = {}

    def has_ended() -> bool:
        status.update(api("GET", f"/nodes/{node}/tasks/{upid}/status").json()["data"])
        return status["status"] == "stopped"

    until(has_ended)
    return str(status["exitstatus"])


def test_client__verifies_the_certificate_by_the_clusters_own_ca(cluster: SimulatedCluster) -> None:
    with session(cluster) as opened:
        assert opened.get(f"{cluster.url}/api2/json/version").status_code == 200
        assert opened.get(f"https://localhost:{cluster.port}/api2/json/version").status_code == 200
        with pytest.raises(requests.exceptions.SSLError):
            requests.get(f"{cluster.url}/api2/json/version", verify=True, timeout=PATIENCE)


def test_environment__holds_what_the_collection_reads(cluster: SimulatedCluster) -> None:
    assert set(cluster.environment()) == {
        "PROXMOX_HOST", "PROXMOX_PORT", "PROXMOX_USER", "PROXMOX_TOKEN_ID", "PROXMOX_TOKEN_SECRET", "PROXMOX_CA_PATH"}


def test_folder__runs_without_the_checkout_and_tells_how_to_connect(tmp_path: Path) -> None:
    folder = tmp_path / "simulated_cluster"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, str(folder), str(folder / "clusters" / "demo.yml"), "--time-scale", "0"]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=alone) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(7)]
        exports = dict(line.removeprefix("export ").strip().split("=", 1) for line in lines[1:])
        token = f"{exports['PROXMOX_USER']}!{exports['PROXMOX_TOKEN_ID']}={exports['PROXMOX_TOKEN_SECRET']}"
        url = f"https://{exports['PROXMOX_HOST']}:{exports['PROXMOX_PORT']}/api2/json/nodes"
        with requests.Session() as opened:
            opened.trust_env = False
            headers = {"Authorization": f"PVEAPIToken={token}"}
            nodes = opened.get(url, headers=headers, verify=exports["PROXMOX_CA_PATH"], timeout=PATIENCE).json()["data"]
        process.terminate()
        assert process.wait(timeout=PATIENCE) == 0
    assert len(nodes) == 5


def test_requests__are_logged_without_secrets(cluster: SimulatedCluster, api: Any) -> None:
    api("GET", "/nodes", nonsense=1)
    api("POST", "/access/ticket", username=cluster.user, password=cluster.password)
    first, second = cluster.requests(reset=True)
    assert (first["method"], first["path"], first["params"], first["status"]) == (
        "GET", "/nodes", {"nonsense": "1"}, 400)
    assert first["user"] == "automation@pve!ansible"
    assert second["params"] == {"username": "root@pam", "password": "REDACTED"}
    assert cluster.requests() == []


def test_connection_dropped_after_the_write__hides_a_vm_that_is_there(cluster: SimulatedCluster, api: Any) -> None:
    cluster.fault(method="POST", path="/nodes/[^/]+/qemu$", drop="after", count=1)
    with pytest.raises(requests.exceptions.ConnectionError):
        api("POST", "/nodes/pve1/qemu", vmid=301)
    assert 301 in cluster.state()["guests"]


def test_connection_dropped_before_the_write__leaves_nothing(cluster: SimulatedCluster, api: Any) -> None:
    cluster.fault(method="POST", path="/nodes/[^/]+/qemu$", drop="before", count=1)
    with pytest.raises(requests.exceptions.ConnectionError):
        api("POST", "/nodes/pve1/qemu", vmid=302)
    assert 302 not in cluster.state()["guests"]


def test_injected_status__applies_after_and_count_times(cluster: SimulatedCluster, api: Any) -> None:
    cluster.fault(method="GET", path="^/version$", status=596, count=1, after=1)
    answers = [api("GET", "/version") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 596, 200]
    assert answers[1].content == b""


def test_task__fails_with_the_text_that_a_fault_gives(cluster: SimulatedCluster, api: Any) -> None:
    cluster.fault(method="POST", path="/qemu$", task_error="disk on fire")
    assert wait_for(api, api("POST", "/nodes/pve1/qemu", vmid=303).json()["data"]) == "disk on fire"
    assert 303 not in cluster.state()["guests"]


def test_somebody_else__can_take_the_vmid_first(cluster: SimulatedCluster, api: Any) -> None:
    cluster.fault(method="POST", path="/qemu$", vmid_taken=True)
    answer = api("POST", "/nodes/pve1/qemu", vmid=304)
    assert answer.reason == "unable to create VM 304 - VM 304 already exists on node 'pve2'"
    assert cluster.state()["guests"][304]["name"] == "other-304"


def test_full_storage__fails_the_task(cluster: SimulatedCluster, api: Any) -> None:
    cluster.fault(storage_full="shared")
    ended = wait_for(api, api("POST", "/nodes/pve1/qemu", vmid=305, scsi0="shared:1").json()["data"])
    assert ended.endswith("No space left on device")


def test_calls_to_an_offline_node__get_an_empty_595(cluster: SimulatedCluster, api: Any) -> None:
    cluster.set_node("pve3", online=False)
    answer = api("GET", "/nodes/pve3/qemu")
    assert (answer.status_code, answer.reason, answer.content) == (595, "No route to host", b"")
    rows = {row["id"]: row for row in api("GET", "/cluster/resources").json()["data"]}
    assert rows["node/pve3"]["status"] == "offline"
    assert rows["lxc/110"]["status"] == "running"
    assert cluster.state()["guests"][110]["status"] == "stopped"


def test_node_that_comes_back__has_lost_its_running_guests(cluster: SimulatedCluster, api: Any) -> None:
    cluster.fault(node_offline="pve2")
    cluster.set_node("pve2", online=True)
    cluster.advance(20)
    rows = {row["id"]: row for row in api("GET", "/cluster/resources").json()["data"]}
    assert (rows["node/pve2"]["status"], rows["qemu/101"]["status"]) == ("online", "stopped")


def test_no_quorum__reads_work_and_writes_do_not(cluster: SimulatedCluster, api: Any) -> None:
    cluster.set_quorum(False)
    assert api("GET", "/cluster/resources").status_code == 200
    assert api("POST", "/nodes/pve1/qemu", vmid=306).reason == "cluster not ready - no quorum?"
    assert api("PUT", "/nodes/pve1/qemu/100/config", cores=1).reason.endswith("Permission denied")


def test_guests__can_be_added_changed_and_removed_behind_the_apis_back(cluster: SimulatedCluster, api: Any) -> None:
    cluster.add_guest(vmid=310, name="intruder", node="pve2", cores=2, memory=1024, disks={"scsi0": "local-lvm:4"})
    assert api("GET", "/nodes/pve2/qemu/310/config").json()["data"]["name"] == "intruder"
    cluster.set_guest(310, config={"lock": "backup"})
    assert api("PUT", "/nodes/pve2/qemu/310/config", cores=1).reason == "VM is locked (backup)"
    cluster.remove_guest(310)
    assert 310 not in cluster.state()["guests"]


def test_image__is_imported_with_its_own_size(cluster: SimulatedCluster, api: Any) -> None:
    answer = api("POST", "/nodes/pve1/qemu", vmid=320, scsi0="local-lvm:0,import-from=local:import/debian-13.qcow2")
    assert wait_for(api, answer.json()["data"]) == "OK"
    assert api("GET", "/nodes/pve1/qemu/320/config").json()["data"]["scsi0"] == "local-lvm:vm-320-disk-0,size=2G"
    answer = api("PUT", "/nodes/pve1/qemu/320/resize", disk="scsi0", size="20G")
    assert wait_for(api, answer.json()["data"]) == "OK"
    volumes = {row["volid"]: row["size"] for row in cluster.state()["volumes"]}
    assert volumes["local-lvm:vm-320-disk-0"] == 20 * 1024**3


def test_parameter_that_contradicts_the_path__is_refused(cluster: SimulatedCluster, api: Any) -> None:
    answer = api("POST", "/nodes/pve1/qemu", vmid=321, node="pve2")
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["node"])
    assert api("GET", "/nodes/pve1/qemu/100/config", vmid=100).status_code == 200


def test_wrong_fault__is_refused(cluster: SimulatedCluster) -> None:
    with pytest.raises(ValueError, match="unknown fault option"):
        cluster.fault(methode="POST")


def test_what_is_not_simulated__says_so(cluster: SimulatedCluster, api: Any) -> None:
    answer = api("GET", "/cluster/metrics")
    assert (answer.status_code, answer.reason) == (
        501, "Method 'GET /cluster/metrics' is not simulated by this cluster")
    assert api("GET", "/cluster/nosuch").reason == "Method 'GET /cluster/nosuch' not implemented"


def test_session__needs_its_csrf_token_and_a_revoked_one_ends(cluster: SimulatedCluster) -> None:
    with requests.Session() as opened:
        opened.verify, opened.trust_env = cluster.ca_path, False
        url = f"{cluster.url}/api2/json"
        login = opened.post(f"{url}/access/ticket", data={"username": "root@pam", "password": cluster.password})
        data = login.json()["data"]
        cookies = {"PVEAuthCookie": data["ticket"]}
        assert opened.get(f"{url}/version", cookies=cookies).status_code == 200
        refused = opened.post(f"{url}/pools", data={"poolid": "p"}, cookies=cookies)
        assert (refused.status_code, refused.reason, refused.content) == (
            401, "Permission denied - invalid csrf token", b"")
        cluster.revoke_tickets()
        assert opened.get(f"{url}/version", cookies=cookies).reason == "Authentication failed!"
        assert opened.get(f"{url}/version").reason == "No ticket"


def test_sigterm__ends_it_with_0_and_leaves_nothing(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    command = [sys.executable, str(PACKAGE), str(CLUSTERS / "three-nodes.yml"), "--ready", str(ready)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(tmp_path)})
    while not ready.exists():
        time.sleep(0.02)
        assert process.poll() is None
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] != []
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE) == 0
    assert list(tmp_path.iterdir()) == []


def test_it__ends_though_a_request_hangs_and_a_task_runs(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    with SimulatedCluster.start(CLUSTERS / "three-nodes.yml", time_scale=1.0, log=log) as cluster:
        cluster.fault(path="^/version$", hang=True)
        with session(cluster) as opened:
            with pytest.raises(requests.exceptions.ReadTimeout):
                opened.get(f"{cluster.url}/api2/json/version", timeout=(PATIENCE, 1))
            opened.post(f"{cluster.url}/api2/json/nodes/pve1/qemu/9000/clone", data={"newid": 400, "full": 1})
        assert [(entry["path"], entry["status"]) for entry in cluster.requests()] == [
            ("/version", None), ("/nodes/pve1/qemu/9000/clone", 200)]
    assert cluster.exit_code == 0
    first = json.loads(log.read_text(encoding="utf-8").splitlines()[0])
    assert (first["path"], first["params"]) == ("/nodes/pve1/qemu/9000/clone", {"newid": "400", "full": "1"})


def test_it__ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = subprocess.Popen(
        [sys.executable, "-m", "simulated_cluster", str(CLUSTERS / "three-nodes.yml"),
         "--exit-with-parent", str(parent.pid)],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)}, stdout=subprocess.DEVNULL)
    parent.kill()
    parent.wait()
    assert process.wait(timeout=PATIENCE) == 0


def test_certificates__are_kept_in_the_state_directory(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        with SimulatedCluster.start(CLUSTERS / "three-nodes.yml", state_dir=tmp_path) as cluster:
            seen.append(cluster.fingerprint)
    assert seen[0] == seen[1]
    assert oct((tmp_path / "server.key").stat().st_mode & 0o777) == "0o600"


def test_bad_description__is_a_clear_error() -> None:
    description = {"nodes": [{"name": "pve1", "cores": 4, "memory": 1024, "colour": "red"}]}
    with pytest.raises(StartError, match=r"node pve1: unknown key\(s\) colour; known: .*bridges"), \
            SimulatedCluster.start(description):
        pass


def test_large_cluster__shows_all_its_guests() -> None:
    description = {"generate": {"nodes": 200, "guests_per_node": 10}}
    with SimulatedCluster.start(description) as cluster, session(cluster) as opened:
        rows = opened.get(f"{cluster.url}/api2/json/cluster/resources").json()["data"]
        assert sum(row["type"] == "qemu" for row in rows) == 2000
        assert len(opened.get(f"{cluster.url}/api2/json/nodes/pve7/qemu").json()["data"]) == 10
