# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugin: a real ansible-inventory against a simulated cluster."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from simulated_cluster.client import SimulatedCluster
from support.ansible_commands import Ansible
from support.controller import Controller, ModuleServer
from support.playbook import environment
from support.versions import both_versions

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import Session

PLUGIN = "qemu_scheduler.proxmox.cluster"
NAMES = "state/qemu_scheduler/names"
"""Where the names that the plugin has read are kept."""

STRICT = {"ANSIBLE_INVENTORY_UNPARSED_FAILED": "1"}
BRIDGE = "virtio,bridge=vmbr0"


def agent(*addresses: str) -> dict[str, Any]:
    return {"interfaces": [{"name": "eth0", "ip-addresses": [{"ip-address": address} for address in addresses]}]}


CLUSTER: dict[str, Any] = {
    "nodes": [{"name": name, "cores": 16, "memory": 65536, "bridges": ["vmbr0"]} for name in ("pve1", "pve2")],
    "storages": [{"name": "local-lvm", "type": "lvmthin", "content": ["images", "rootdir"], "size": 500}],
    "pools": ["web.shop"],
    "roles": {"Automation": ["VM.Audit", "VM.GuestAgent.Audit", "VM.Monitor", "Pool.Audit", "Sys.Audit"]},
    "guests": [
        {
            "vmid": 100, "name": "web-1", "node": "pve1", "cores": 4, "memory": 8192, "status": "running",
            "pool": "web.shop", "tags": ["web", "front-end"], "agent": agent("192.0.2.100", "198.51.100.9"),
            "config": {
                "agent": "1", "net0": BRIDGE, "ipconfig0": "ip=192.0.2.10/24,gw=192.0.2.1,ip6=2001:db8::a/64",
                "description": "{{ lookup('ansible.builtin.pipe', 'echo evaluated') }}",
            },
        },
        {"vmid": 101, "name": "db-1", "node": "pve2", "memory": 2048, "config": {"ipconfig0": "ip=dhcp"}},
        {"vmid": 102, "name": "db-1", "node": "pve2", "memory": 2048, "status": "running"},
        {
            "vmid": 103, "name": "proxy", "node": "pve2", "type": "lxc", "memory": 512,
            "config": {"net0": "name=eth0,bridge=vmbr0,ip=192.0.2.53/24"},
        },
        {"vmid": 9000, "name": "debian", "node": "pve1", "memory": 512, "template": True},
    ],
    "ha": {"resources": [{"sid": "vm:100", "state": "started"}]},
}  # fmt: skip

Inventory = Callable[..., dict[str, Any]]


@pytest.fixture
def tick() -> int:
    """Seconds between two rounds of the statistics daemon."""
    return 10


@pytest.fixture
def time_scale() -> float:
    """Real seconds of a simulated one."""
    return 0.02


@pytest.fixture
def timing() -> dict[str, float]:
    """How long things take, where that is not as usual."""
    return {}


@pytest.fixture
def cluster(version: str, tick: int, time_scale: float, timing: dict[str, float]) -> Iterator[SimulatedCluster]:
    description = {**CLUSTER, "tick": tick, "timing": timing}
    with SimulatedCluster.start(description, version=version, time_scale=time_scale) as running:
        yield running


@pytest.fixture
def run(cluster: SimulatedCluster, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
        source = tmp_path / "cluster.yml"
        source.write_text(yaml.safe_dump({"plugin": PLUGIN, **options}), encoding="utf-8")
        cluster.reset_requests()
        given = {**cluster.environment(), "ANSIBLE_INVENTORY_UNPARSED_FAILED": "1", **(env or {})}
        return Ansible.run("ansible-inventory", ["--inventory", str(source), "--list"], environment(tmp_path, given))

    return run


@pytest.fixture
def inventory(run: Callable[..., subprocess.CompletedProcess[str]]) -> Inventory:
    def read(env: dict[str, str] | None = None, **options: Any) -> dict[str, Any]:
        done = run(env, **options)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    return read


@pytest.fixture
def session(cluster: SimulatedCluster) -> Session:
    login = {"api_user": cluster.user, "api_password": cluster.password}
    return Session.connect({**login, "api_host": [cluster.host], "api_port": cluster.port, "ca_path": cluster.ca_path})


def finish(session: Session, node: str, upid: str) -> None:
    while session.get(f"/nodes/{node}/tasks/{upid}/status")["status"] == "running":
        time.sleep(0.02)


def cached(folder: Path) -> dict[str, Any]:
    return {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": str(folder / "cache")}


def unmarked(value: Any) -> Any:
    """The value without the marks that ansible-inventory adds to texts that are not trusted."""
    if isinstance(value, dict):
        marked = value.keys() == {"__ansible_unsafe"}
        return value["__ansible_unsafe"] if marked else {key: unmarked(each) for key, each in value.items()}
    return [unmarked(each) for each in value] if isinstance(value, list) else value


def hosts(listed: dict[str, Any]) -> dict[str, Any]:
    return dict(unmarked(listed["_meta"]["hostvars"]))


def paths(cluster: SimulatedCluster) -> list[str]:
    return sorted(entry["path"] for entry in cluster.requests())


@both_versions
def test_inventory__costs_two_requests(inventory: Inventory, cluster: SimulatedCluster, session: Session) -> None:
    # A new cluster has no tasks, and an empty list may as well be that of a user who may not see them.
    finish(session, "pve2", session.post("/nodes/pve2/qemu/101/migrate", target="pve1"))
    cluster.reset_requests()
    listed = inventory()
    assert paths(cluster) == ["/cluster/resources", "/cluster/tasks"]
    assert hosts(listed)["web-1"] == {
        "proxmox_vmid": 100, "proxmox_name": "web-1", "proxmox_type": "qemu", "proxmox_node": "pve1",
        "proxmox_status": "running", "proxmox_pool": "web.shop", "proxmox_tags": ["front-end", "web"],
        "proxmox_cores": 4, "proxmox_memory": 8192, "proxmox_ha_state": "started", "proxmox_lock": None,
    }  # fmt: skip


def test_inventory__groups_hosts(inventory: Inventory) -> None:
    listed = inventory()
    groups = {name: sorted(group["hosts"]) for name, group in listed.items() if "hosts" in group}
    assert groups == {
        "proxmox_node_pve1": ["web-1"],
        "proxmox_node_pve2": ["db-1_101", "db-1_102", "proxy"],
        "proxmox_pool_web_shop": ["web-1"],
        "proxmox_status_running": ["db-1_102", "web-1"],
        "proxmox_status_stopped": ["db-1_101", "proxy"],
        "proxmox_tag_web": ["web-1"],
        "proxmox_tag_front_end": ["web-1"],
        "proxmox_ha_started": ["web-1"],
    }


@both_versions
def test_host__is_reached_by_the_address_that_its_agent_reports_until_it_has_a_new_one(
    inventory: Inventory, cluster: SimulatedCluster, session: Session
) -> None:
    """Proxmox VE shows a new address of a running VM at once, and the one that the guest has nowhere."""
    cluster.set_guest(100, agent=agent("192.0.2.10"))
    session.put("/nodes/pve1/qemu/100/config", ipconfig0="ip=192.0.2.77/24")
    assert cluster.state()["guests"][100]["config"]["ipconfig0"] == "ip=192.0.2.77/24"
    both = {"addresses": ["static", "agent"], "networks": ["192.0.2.0/24"]}
    shown = hosts(inventory(**both))
    assert (shown["web-1"]["ansible_host"], shown["proxy"]["ansible_host"]) == ("192.0.2.10", "192.0.2.53")
    cluster.set_guest(100, agent=agent("198.51.100.9", "192.0.2.77"))
    assert hosts(inventory(**both))["web-1"]["proxmox_addresses"] == ["192.0.2.77"]


def test_inventory__warns_of_shared_names(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    shown = " ".join(run().stderr.split())
    assert "get their VMID as a suffix: db-1" in shown


@both_versions
def test_guests_of_a_dead_node__keep_their_names(
    inventory: Inventory,
    run: Callable[..., subprocess.CompletedProcess[str]],
    cluster: SimulatedCluster,
    tmp_path: Path,
) -> None:
    """After five minutes, Proxmox VE tells them in the lists of backup jobs alone."""
    before = set(hosts(inventory()))
    cluster.set_node("pve2", online=False)
    cluster.advance(400)
    assert set(hosts(inventory())) == before == {"web-1", "db-1_101", "db-1_102", "proxy"}
    assert len(paths(cluster)) <= 4, "one more than otherwise"
    cluster.fault(method="GET", path="/cluster/backup", status=403, message="Permission check failed (/, Sys.Audit)")
    assert set(hosts(inventory())) == before, "the plugin has read them within the last hour"
    shutil.rmtree(tmp_path / NAMES)
    told = " ".join(run().stderr.split())
    assert "names of guests on offline nodes are not known: 101, 102, 103" in told


@both_versions
def test_names_that_the_inventory_has_read__are_known_to_tasks(
    inventory: Inventory, modules: ModuleServer, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    cluster.set_guest(102, config={"name": "db-2"})
    cluster.advance(60)
    inventory(**cached(tmp_path))
    cluster.set_node("pve2", online=False)
    cluster.advance(400)
    cluster.fault(method="GET", path="/cluster/backup", status=403, message="Permission check failed (/, Sys.Audit)")
    controller = Controller(modules, tmp_path, cluster.environment())
    for state in ("present", "absent"):
        failed = controller.fail("ConnectionFailed", name="db-2", memory=512, state=state)
        assert failed["vms"][0]["vmid"] == 102
    new = controller.schedule(vms=[{"name": "new-{n}", "count": 2}], memory=512, check=True)
    assert [vm["node"] for vm in new["vms"]] == ["pve1", "pve1"]
    shutil.rmtree(tmp_path / NAMES)
    controller.fail("VMNotKnown", name="new-3", memory=512)


def test_inventory__leaves_out_what_no_filter_names(inventory: Inventory) -> None:
    listed = inventory(types=["qemu"], filters=["proxmox_node == 'pve2'", "proxmox_status == 'running'"], group_by=[])
    assert list(hosts(listed)) == ["db-1"]
    assert [name for name, group in listed.items() if "hosts" in group] == ["ungrouped"]


def test_inventory__constructs_variables_and_groups(inventory: Inventory) -> None:
    listed = inventory(
        group_by=["node"],
        group_prefix="on_",
        keyed_groups=[{"key": "proxmox_tags", "prefix": "role"}],
        compose={"ansible_user": "'admin'", "gib": "proxmox_memory // 1024"},
        groups={"large": "proxmox_memory >= 8192"},
    )
    assert int(hosts(listed)["web-1"]["gib"]) == 8  # text before ansible-core 2.19
    assert listed["large"]["hosts"] == listed["role_web"]["hosts"] == listed["on_node_pve1"]["hosts"] == ["web-1"]


def test_inventory__strict_reports_what_cannot_be_evaluated(run: Callable[..., Any], inventory: Inventory) -> None:
    filters = ["proxmox_memory > unknown"]
    assert hosts(inventory(filters=filters)) == {}
    failed = run(filters=filters, strict=True)
    assert failed.returncode != 0
    assert 'cannot evaluate "proxmox_memory > unknown" for web-1' in " ".join(failed.stderr.split())


@both_versions
def test_inventory__reads_addresses_on_request(inventory: Inventory, cluster: SimulatedCluster) -> None:
    found = hosts(inventory(addresses=["agent", "static"], networks=["192.0.2.0/24", "2001:db8::/32"]))
    assert found["web-1"]["proxmox_addresses"] == ["192.0.2.100", "192.0.2.10", "2001:db8::a"]
    assert found["web-1"]["ansible_host"] == "192.0.2.100"
    assert found["proxy"]["ansible_host"] == "192.0.2.53"
    assert found["db-1_102"]["proxmox_addresses"] == []
    assert "ansible_host" not in found["db-1_101"]
    asked = [path for path in paths(cluster) if "agent" in path]
    assert asked == ["/nodes/pve1/qemu/100/agent/network-get-interfaces"], "the other VM has no agent"


def test_inventory__has_all_hosts_whatever_an_agent_answers(inventory: Inventory, cluster: SimulatedCluster) -> None:
    odd = [{"name": "x", "ip-addresses": [{"ip-address": "bogus"}, {"prefix": 24}, "x"]}, None, {"ip-addresses": "x"}]
    cluster.set_guest(102, config={"agent": "1"}, agent={"interfaces": odd})
    found = hosts(inventory(addresses=["agent"]))
    assert found["web-1"]["ansible_host"] == "192.0.2.100"
    assert found["db-1_102"]["proxmox_addresses"] == []


def test_inventory__reads_details_only_of_what_passes(inventory: Inventory, cluster: SimulatedCluster) -> None:
    listed = inventory(configs=True, filters=["proxmox_type == 'qemu'", "'ipconfig0' in proxmox_config"])
    assert sorted(hosts(listed)) == ["db-1", "web-1"]
    details = [f"/nodes/{node}/config" for node in ("pve1/qemu/100", "pve2/qemu/101", "pve2/qemu/102")]
    assert paths(cluster) == ["/cluster/options", "/cluster/resources", "/cluster/tasks", *details]


def test_inventory__evaluates_nothing_that_the_cluster_says(inventory: Inventory) -> None:
    found = inventory(configs=True, compose={"notes": "proxmox_config.description"})["_meta"]["hostvars"]["web-1"]
    notes = CLUSTER["guests"][0]["config"]["description"]
    assert found["proxmox_config"]["description"] == found["notes"] == {"__ansible_unsafe": notes}
    assert found["proxmox_name"] == {"__ansible_unsafe": "web-1"}, "a text needs no brace to be evaluated"
    assert found["proxmox_status"] == "running", "words of Proxmox's own are no text of others"


def test_inventory__keeps_what_it_read_in_the_cache(
    inventory: Inventory, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    first = inventory(addresses=["static"], **cached(tmp_path))
    assert len(paths(cluster)) == 7
    assert inventory(addresses=["static"], **cached(tmp_path)) == first
    assert paths(cluster) == []


def test_inventory__reads_everything_again_if_the_cache_lacks_something(
    inventory: Inventory, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    inventory(**cached(tmp_path))
    cluster.remove_guest(101)
    cluster.add_guest(vmid=101, name="payroll", node="pve2", memory=512, config={"ipconfig0": "ip=192.0.2.99/24"})
    cluster.advance(60)
    found = hosts(inventory(addresses=["static"], **cached(tmp_path)))
    assert {name: each["ansible_host"] for name, each in found.items() if "ansible_host" in each} == {
        "web-1": "192.0.2.10", "payroll": "192.0.2.99", "proxy": "192.0.2.53",
    }  # fmt: skip
    assert hosts(inventory(addresses=["static"], **cached(tmp_path))) == found
    assert paths(cluster) == []


CONFIG = {"path": "/nodes/pve2/qemu/101/config", "status": 595}
SILENT = {"path": "/agent/network-get-interfaces", "status": 500, "message": "QEMU guest agent is not running"}


@pytest.mark.parametrize("fault", [CONFIG, SILENT], ids=["config", "agent"])
def test_inventory__keeps_for_a_while_in_the_cache_that_details_are_unknown(
    fault: dict[str, Any], inventory: Inventory, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    options = {"types": ["qemu"], "configs": True, "addresses": ["agent"], **cached(tmp_path)}
    cluster.fault(method="GET", count=1000, **fault)
    incomplete = hosts(inventory(**options))
    cluster.clear_faults()
    assert hosts(inventory(**options)) == incomplete
    assert paths(cluster) == [], "one silent agent must not cost a request per guest in every run"
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_text(re.sub(r'(until\\?": )[0-9.]+', r"\g<1>1", kept.read_text(encoding="utf-8")), encoding="utf-8")
    found = hosts(inventory(**options))
    assert found["db-1_101"]["proxmox_config"]
    assert found["web-1"]["ansible_host"] == "192.0.2.100"
    assert hosts(inventory(**options)) == found
    assert paths(cluster) == []


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        ({"status": 403, "message": "Permission check failed"}, 30),
        ({"status": 500, "message": "got timeout"}, 30),
        ({"hang": True}, 5),
        ({"drop": "after"}, 30),
    ],
    ids=["forbidden", "timeout", "silent", "lost"],
)
def test_inventory__has_all_hosts_whatever_an_agent_does(
    fault: dict[str, Any], seconds: float, run: Callable[..., Any], cluster: SimulatedCluster
) -> None:
    for vmid in range(200, 240):
        config = {"agent": "1", "ipconfig0": f"ip=192.0.2.{vmid}/24"}
        cluster.add_guest(vmid=vmid, name=f"vm-{vmid}", node="pve1", memory=16, status="running", config=config)
    cluster.advance(60)
    cluster.fault(method="GET", path="/agent/network-get-interfaces", **fault)
    done = run(types=["qemu"], addresses=["static", "agent"], details_timeout=seconds)
    assert done.returncode == 0, done.stderr
    if "hang" in fault:
        asked = [path for path in paths(cluster) if path.endswith("/agent/network-get-interfaces")]
        assert len(asked) < 41, "agents were asked one group after the other, each for api_timeout"
    found = hosts(json.loads(done.stdout))
    assert len(found) == 43
    assert "the guest agents of 41 guests could not be read" in " ".join(done.stderr.split())
    if seconds == 30:
        assert found["vm-239"]["ansible_host"] == "192.0.2.239"


def test_inventory__caches_the_guests_though_details_are_incomplete(
    inventory: Inventory, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    cluster.set_node("pve2", online=False)
    cluster.advance(60)
    inventory(addresses=["static"], **cached(tmp_path))
    cluster.reset_requests()
    inventory(**cached(tmp_path))
    assert paths(cluster) == []


def test_inventory__has_a_cache_per_cluster(inventory: Inventory, cluster: SimulatedCluster, tmp_path: Path) -> None:
    first = hosts(inventory(**cached(tmp_path)))
    paris = {**CLUSTER, "guests": [{"vmid": 100, "name": "paris-1", "node": "pve1", "memory": 512}]}
    with SimulatedCluster.start(paris, time_scale=0.02) as other:
        assert list(hosts(inventory(other.environment(), **cached(tmp_path)))) == ["paris-1"]
    assert hosts(inventory(**cached(tmp_path))) == first
    assert paths(cluster) == []


def test_inventory__gives_each_guest_a_host_of_its_own(
    run: Callable[..., subprocess.CompletedProcess[str]], cluster: SimulatedCluster
) -> None:
    for vmid, name in ((110, "db-1-101"), (111, "localhost")):
        cluster.add_guest(vmid=vmid, name=name, node="pve1", memory=512)
    cluster.advance(60)
    done = run(types=["qemu"])
    assert {name: each["proxmox_vmid"] for name, each in hosts(json.loads(done.stdout)).items()} == {
        "web-1": 100, "db-1_101": 101, "db-1_102": 102, "db-1-101": 110, "localhost_111": 111,
    }  # fmt: skip
    assert "get their VMID as a suffix: db-1, localhost" in " ".join(done.stderr.split())


def test_inventory__warns_of_configurations_that_cannot_be_read(
    run: Callable[..., subprocess.CompletedProcess[str]], cluster: SimulatedCluster
) -> None:
    cluster.set_node("pve2", online=False)
    cluster.advance(60)
    shown = " ".join(run(addresses=["static"]).stderr.split())
    # After a while, the cluster no longer knows the names of guests on a lost node.
    assert "the configurations of 3 guests could not be read" in shown
    assert "by this user: db-1, proxy" in shown or "by this user: 101, 102, 103" in shown


@pytest.mark.parametrize("tick", [1_000_000])
def test_inventory__reads_names_that_come_late(
    inventory: Inventory, cluster: SimulatedCluster, session: Session
) -> None:
    finish(session, "pve1", session.post("/nodes/pve1/qemu", vmid=200, name="new", memory=512))
    assert hosts(inventory(filters=["proxmox_vmid == 200"]))["new"]["proxmox_memory"] == 512
    assert paths(cluster) == ["/cluster/resources", "/cluster/tasks", "/nodes/pve1/qemu"]


AT_ONCE = dict.fromkeys(
    ("delete_seconds", "create_seconds", "disk_seconds", "start_seconds", "worker_cache_seconds"), 0.0
)


# With this scale, changes count as recent for ten minutes: on the busiest machine, ansible-inventory takes less.
@pytest.mark.parametrize(("tick", "time_scale", "timing"), [(1_000_000, 20, AT_ONCE)])
def test_inventory__lists_a_new_vm_under_its_own_name_when_its_vmid_was_used_before(
    inventory: Inventory, cluster: SimulatedCluster, session: Session
) -> None:
    finish(session, "pve2", session.delete("/nodes/pve2/qemu/101"))
    finish(session, "pve2", session.post("/nodes/pve2/qemu", vmid=101, name="new", memory=512))
    finish(session, "pve2", session.post("/nodes/pve2/qemu/101/status/start"))
    rows = session.get("/cluster/resources", type="vm")
    assert [row["name"] for row in rows if row["vmid"] == 101] == ["db-1"], "Proxmox shows the earlier VM's name"
    found = hosts(inventory(filters=["proxmox_vmid == 101"], configs=True))
    assert found["new"]["proxmox_config"]["name"] == "new"
    assert found["new"]["proxmox_memory"] == 512
    assert found["new"]["proxmox_status"] == "running"


def test_inventory__evaluates_templates_in_the_connection(inventory: Inventory, cluster: SimulatedCluster) -> None:
    secret = cluster.environment()["PROXMOX_TOKEN_SECRET"]
    lookup = "{{ lookup('ansible.builtin.env', 'SECRET') }}"
    listed = inventory({"SECRET": secret, "PROXMOX_TOKEN_SECRET": ""}, api_token_secret=lookup, types=["lxc"])
    assert list(hosts(listed)) == ["proxy"]


def test_inventory__takes_no_password_of_the_environment_beside_a_token_of_the_source(
    inventory: Inventory, cluster: SimulatedCluster
) -> None:
    token = {"api_user": cluster.token_user, "api_token_id": cluster.token_id, "api_token_secret": cluster.token_secret}
    env = {"PROXMOX_PASSWORD": "of another cluster", "PROXMOX_TOKEN_ID": "", "PROXMOX_TOKEN_SECRET": ""}
    assert list(hosts(inventory(env, **token, types=["lxc"]))) == ["proxy"]
    password = {"api_user": cluster.user, "api_password": cluster.password}
    env = {"PROXMOX_TOKEN_ID": "other", "PROXMOX_TOKEN_SECRET": "of-another-cluster"}
    assert list(hosts(inventory(env, **password, types=["lxc"]))) == ["proxy"]


def test_inventory__trusts_the_systems_authorities_where_ca_path_is_empty(
    inventory: Inventory, cluster: SimulatedCluster
) -> None:
    listed = inventory({"PROXMOX_CA_PATH": "", "REQUESTS_CA_BUNDLE": cluster.ca_path}, types=["lxc"])
    assert list(hosts(listed)) == ["proxy"]


@pytest.mark.parametrize(
    ("env", "options", "told"),
    [
        ({"PROXMOX_HOST": ""}, {}, "InvalidRequest: api_host is missing: set it, or PROXMOX_HOST in the environment"),
        ({"PROXMOX_TOKEN_SECRET": "wrong"}, {}, "AuthenticationFailed: "),
        ({"PROXMOX_CA_PATH": ""}, {}, "ConnectionFailed: "),
        ({}, {"networks": ["192.0.2.300"]}, "InvalidRequest: networks: '192.0.2.300' does not appear to be"),
        ({}, {"group_by": ["colour"]}, "colour"),
    ],
    ids=["no-host", "wrong-secret", "unknown-authority", "no-network", "no-choice"],
)
def test_inventory__reports_what_is_wrong(
    env: dict[str, str], options: dict[str, Any], told: str, run: Callable[..., Any]
) -> None:
    failed = run(env, **options)
    assert failed.returncode != 0
    assert told in " ".join(failed.stderr.split())
    assert "Traceback" not in failed.stderr
