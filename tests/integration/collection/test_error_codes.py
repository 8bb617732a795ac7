# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every error code that the collection has reaches the user of a module: one way to provoke each."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.controller import Controller, ModuleServer, Result
from support.every_module import import_every_module
from support.identities import use_again
from support.module_server import WITHOUT
from support.waiting import until

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import CollectionError
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.ledger import PROOF_SECONDS

NEVER_TOLD = {
    CollectionError.code: "the base of all others, raised nowhere itself",
}
CREATE = {"method": "POST", "path": "/nodes/[^/]+/qemu$"}
BROKEN_PLUGIN = """
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import FilterPlugin


class Moody(FilterPlugin):
    '''Never in the mood.'''

    name = "Moody"

    def filter(self, state, request, node):
        raise ArithmeticError("not today")
"""

FORGETFUL_PLUGIN = """
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import FilterPlugin
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.run import Run


class Forgetful(FilterPlugin):
    '''Makes the run create nothing.'''

    name = "Forgetful"

    def filter(self, state, request, node):
        Run._bind = lambda run, due, placement: placement.seen.lessons
"""


def codes() -> set[str]:
    """The codes of all errors, wherever they are defined."""
    import_every_module()
    classes = [CollectionError]
    for error in classes:
        classes.extend(error.__subclasses__())
    return {error.code for error in classes}


POOLS = {"lan": {"network": "192.0.2.0/24"}}


class Stage:
    """A cluster and a controller, and the ways in which a task on it fails."""

    def __init__(self, cluster: SimulatedCluster, controller: Controller, folder: Path) -> None:
        self.cluster = cluster
        self.controller = controller
        self.folder = folder

    def run(self, **options: object) -> Result:
        return self.controller.run("qemu_schedule", **{"name": "web-1", "memory": 512, **options})

    def invalid_request(self) -> Result:
        return self.run(vmid_range="150-100")

    def invalid_plugin_config(self) -> Result:
        return self.run(plugin_config={"filters": {"Nope": {}}})

    def no_nodes_available(self) -> Result:
        return self.run(node_regex="nowhere")

    def scheduling_gated(self) -> Result:
        return self.run(scheduling_gates=["dns"])

    def no_vmid_available(self) -> Result:
        return self.run(vmid_range="100-100")

    def no_storage_available(self) -> Result:
        return self.run(scsi={"scsi0": {"size": 10**6}})

    def ambiguous_name(self) -> Result:
        self.cluster.add_guest(vmid=120, name="app-1", node="pve3", memory=512)
        self.cluster.advance(60)
        return self.run(name="app-1")

    def vmid_conflict(self) -> Result:
        return self.run(vmid=100)

    def template_not_found(self) -> Result:
        return self.run(clone="nope")

    def cluster_unreachable(self) -> Result:
        closed = {"name": "b", "api_host": ["127.0.0.1"], "api_port": 1, "api_user": "root@pam", "api_password": "x"}
        return self.run(clusters=[{"name": "a", **self.cluster.options()}, closed])

    def archive_not_found(self) -> Result:
        return self.run(archive="999")

    def plugin_failed(self) -> Result:
        file = self.folder / "moody.py"
        file.write_text(BROKEN_PLUGIN, encoding="utf-8")
        return self.run(plugin_paths=[str(file)], plugin_config={"filters": {"Moody": {}}})

    def internal_error(self) -> Result:
        """A run that forgets to create its VMs does not report them as created."""
        plugin = self.folder / "forgetful.py"
        plugin.write_text(FORGETFUL_PLUGIN, encoding="utf-8")
        result = self.run(plugin_paths=[str(plugin)])
        assert (result["changed"], result["vms"][0]["actions"]) == (False, [])
        return result

    def connection_failed(self) -> Result:
        return self.run(api_port=9)

    def authentication_failed(self) -> Result:
        return self.run(api_token_secret="00000000-0000-0000-0000-000000000000")

    def permission_denied(self) -> Result:
        self.cluster.fault(**CREATE, status=403, message="Permission check failed (/vms/103, VM.Allocate)")
        return self.run()

    def api_error(self) -> Result:
        self.cluster.fault(**CREATE, status=500, message="not now")
        return self.run()

    def no_quorum(self) -> Result:
        self.cluster.set_quorum(False)
        return self.run()

    def task_failed(self) -> Result:
        self.cluster.fault(**CREATE, task_error="no space left")
        return self.run()

    def task_timeout(self) -> Result:
        self.cluster.fault(**CREATE, task_held=True)
        return self.run(timeout=1)

    def interrupted(self) -> Result:
        self.cluster.fault(method="GET", path="/cluster/resources$", held=True)
        running = self.controller.start("qemu_schedule", name="web-1", memory=512)
        until(lambda: any(request["path"] == "/cluster/resources" for request in self.cluster.requests()))
        running.interrupt(signal.SIGTERM)
        self.cluster.release()
        return running.result()

    def ledger_unavailable(self) -> Result:
        file = self.folder / "a-file"
        file.write_text("")
        return self.run(reservations=str(file / "ledger.db"))

    def ledger_incompatible(self) -> Result:
        file = self.folder / "ledger.db"
        file.write_text("this is no database, and never was one\n" * 100)
        return self.run(reservations=str(file))

    def invalid_snapshot(self) -> Result:
        return self.run(snapshot={"/cluster/tasks": []})

    def drift_not_applicable(self) -> Result:
        return self.run(name="app-1", scsi={"scsi0": {"size": 1}}, update=True)

    def guest_locked(self) -> Result:
        self.cluster.set_guest(100, config={"lock": "create"})
        return self.run(name="app-1")

    def guest_vanished(self) -> Result:
        gone = "Configuration file 'nodes/pve1/qemu-server/100.conf' does not exist"
        self.cluster.fault(method="GET", path="/nodes/pve1/qemu/100/pending$", status=500, message=gone)
        return self.run(name="app-1")

    def not_the_same_guest(self) -> Result:
        self.cluster.fault(**CREATE, task_held=True, count=1)
        vms = [{"name": "web-1", "memory": 512}, {"name": "app-1", "state": "stopped"}]
        options = {"vms": vms, "parallel_creates": 1, "all_or_nothing": False}
        running = self.controller.start("qemu_schedule", **options)
        self._until_asked("POST", "/qemu")
        use_again(self.cluster, 100)
        self.cluster.release()
        return running.result()

    def limit_exceeded(self) -> Result:
        return self.run(name="app-1", memory=10**6, update=True)

    def already_reserved(self) -> Result:
        self.cluster.fault(**CREATE, hang=True)
        first = self.controller.start("qemu_schedule", name="web-1", memory=512)
        self._until_asked("POST", "/qemu")
        second = self.run()
        first.kill()
        return second

    def reservation_lost(self) -> Result:
        ledger = self.folder / "ledger.db"
        self.cluster.fault(**CREATE, task_held=True)
        slow = self.controller.start("qemu_schedule", name="web-1", state="started", reservations=str(ledger))
        self._until_asked("POST", "/qemu")
        with closing(sqlite3.connect(ledger)) as database, database:
            # As if it had hung for longer than a reservation lasts, before it started what it had created.
            assert database.execute("DELETE FROM qemu_scheduler_reservations").rowcount == 1
        time.sleep(PROOF_SECONDS)
        self.cluster.release()
        return slow.result()

    def missing_library(self) -> Result:
        return self.run(reservations="postgresql://nobody@/none", env={WITHOUT: "psycopg"})

    def lease_lost(self) -> Result:
        ledger = self.folder / "ledger.db"
        reading = {"method": "GET", "path": "/cluster/resources$", "held": True}
        self.cluster.fault(**reading)
        slow = self.controller.start("qemu_schedule", name="web-1", reservations=str(ledger))
        while True:
            until(lambda: not slow.is_running or self.cluster.count_requests("GET", "/cluster/resources"))
            if not slow.is_running:
                return slow.result()
            with closing(sqlite3.connect(ledger, isolation_level=None)) as database:
                # As if others took the lease every time, since reading takes so long. The run looks at its lease only
                # once the transaction has ended.
                database.execute("BEGIN IMMEDIATE")
                database.execute("UPDATE qemu_scheduler_leases SET token = token + 1, expires = 0")
                self.cluster.clear_faults()
                self.cluster.fault(**reading)
                self.cluster.reset_requests()
                database.execute("COMMIT")

    def goals_not_reached(self) -> Result:
        return self.controller.run("node_drain", name=["pve1"], local_disks=False)

    def tour_refused(self) -> Result:
        return self.controller.run("maintenance_tour", name=["pve1"], local_disks=False)

    def shutdown_refused(self) -> Result:
        self.cluster.set_node("pve3", online=False)
        self.cluster.advance(60)
        return self.controller.run("cluster_power", state="off")

    def plan_stale(self) -> Result:
        plan = str(self.folder / "plan.json")
        self.controller.run("node_drain", name=["pve1"], plan_file=plan, check=True)
        self.cluster.set_node("pve2", maintenance=True)
        self.cluster.set_node("pve3", maintenance=True)
        self.cluster.advance(60)
        return self.controller.run("node_drain", name=["pve1"], apply=plan)

    def move_failed(self) -> Result:
        self.cluster.fault(method="POST", path="/migrate$", task_error="migration aborted")
        return self.controller.run("node_drain", name=["pve1"], on_failure="stop")

    def removal_refused(self) -> Result:
        return self.run(name="app-1", memory=None, state="absent", only_tags=["none"])

    def address_conflict(self) -> Result:
        self.cluster.set_guest(101, config={"ipconfig0": "ip=192.0.2.7/24"})
        return self.run(address_pools=POOLS, ipconfig={"ipconfig0": "ip=192.0.2.7/24"})

    def no_address_available(self) -> Result:
        pools = {"lan": {**POOLS["lan"], "ranges": ["192.0.2.50"]}}
        pair = [{"name": "a"}, {"name": "b"}]
        drives = {"net": {"net0": "virtio,bridge=vmbr0"}, "ide": {"ide2": "shared:cloudinit"}}
        return self.run(name=None, vms=pair, address_pools=pools, addresses={"ipconfig0": "lan"}, **drives)

    def other_pool(self) -> Result:
        self.cluster.add_guest(vmid=150, name="web-1", node="pve1", memory=512, pool="web")
        self.cluster.advance(60)
        return self.run(pool="shop")

    def vm_not_known(self) -> Result:
        self.cluster.set_node("pve2", online=False)
        self.cluster.advance(400)
        self.cluster.fault(method="GET", path="/cluster/backup", status=403, message="Permission check failed")
        return self.run()

    def _until_asked(self, method: str, end: str) -> None:
        until(lambda: self.cluster.count_requests(method, end))


PROVOCATIONS: dict[str, Callable[[Stage], Result]] = {
    "InvalidRequest": Stage.invalid_request,
    "InvalidPluginConfig": Stage.invalid_plugin_config,
    "NoNodesAvailable": Stage.no_nodes_available,
    "SchedulingGated": Stage.scheduling_gated,
    "NoVMIDAvailable": Stage.no_vmid_available,
    "NoStorageAvailable": Stage.no_storage_available,
    "AmbiguousName": Stage.ambiguous_name,
    "VMIDConflict": Stage.vmid_conflict,
    "TemplateNotFound": Stage.template_not_found,
    "ClusterUnreachable": Stage.cluster_unreachable,
    "ArchiveNotFound": Stage.archive_not_found,
    "InternalError": Stage.internal_error,
    "PluginFailed": Stage.plugin_failed,
    "ConnectionFailed": Stage.connection_failed,
    "AuthenticationFailed": Stage.authentication_failed,
    "PermissionDenied": Stage.permission_denied,
    "ApiError": Stage.api_error,
    "NoQuorum": Stage.no_quorum,
    "TaskFailed": Stage.task_failed,
    "TaskTimeout": Stage.task_timeout,
    "Interrupted": Stage.interrupted,
    "LedgerUnavailable": Stage.ledger_unavailable,
    "LedgerIncompatible": Stage.ledger_incompatible,
    "InvalidSnapshot": Stage.invalid_snapshot,
    "DriftNotApplicable": Stage.drift_not_applicable,
    "GuestLocked": Stage.guest_locked,
    "GuestVanished": Stage.guest_vanished,
    "NotTheSameGuest": Stage.not_the_same_guest,
    "LimitExceeded": Stage.limit_exceeded,
    "AlreadyReserved": Stage.already_reserved,
    "ReservationLost": Stage.reservation_lost,
    "LeaseLost": Stage.lease_lost,
    "MissingLibrary": Stage.missing_library,
    "GoalsNotReached": Stage.goals_not_reached,
    "PlanStale": Stage.plan_stale,
    "MoveFailed": Stage.move_failed,
    "RemovalRefused": Stage.removal_refused,
    "AddressConflict": Stage.address_conflict,
    "NoAddressAvailable": Stage.no_address_available,
    "OtherPool": Stage.other_pool,
    "VMNotKnown": Stage.vm_not_known,
    "TourRefused": Stage.tour_refused,
    "ShutdownRefused": Stage.shutdown_refused,
}


def test_each_code__is_provoked_or_known_to_be_told_to_nobody() -> None:
    assert codes() == set(PROVOCATIONS) | set(NEVER_TOLD)


@pytest.mark.parametrize("code", sorted(PROVOCATIONS))
def test_module__fails_with(code: str, cluster: SimulatedCluster, controller: Controller, tmp_path: Path) -> None:
    result = PROVOCATIONS[code](Stage(cluster, controller, tmp_path))
    assert result.get("failed"), result
    assert (result["error_code"], bool(result["msg"])) == (code, True)
    assert cluster.token_secret not in str(result)
    guests = cluster.state()["guests"].values()
    assert len([guest for guest in guests if guest["name"] == "web-1"]) <= 1
    own = [vm for vm in result.get("vms", ()) if vm.get("error")]
    # A task that goes on changes the cluster, and so does a VM that is created and not started.
    changed = code in ("TaskTimeout", "ReservationLost")
    assert all(vm["error"]["message"] and vm["changed"] is changed for vm in own)


# --- what is told of connections ---


def test_certificate_that_is_not_trusted__is_refused(controller: Controller) -> None:
    failed = controller.fail("ConnectionFailed", name="web-1", env={"PROXMOX_CA_PATH": None})
    assert "certificate" in failed["msg"]
    assert "ca_path" in failed["msg"]


@pytest.mark.parametrize("variable", ["PROXMOX_HOST", "PROXMOX_USER", "PROXMOX_TOKEN_SECRET"])
def test_connection_option_that_is_missing__is_named(controller: Controller, variable: str) -> None:
    failed = controller.fail("InvalidRequest", name="web-1", env={variable: None})
    assert variable.lower().replace("proxmox", "api") in failed["msg"]


def test_password__will_do_as_well_as_a_token(controller: Controller, cluster: SimulatedCluster) -> None:
    login = {"PROXMOX_TOKEN_ID": None, "PROXMOX_TOKEN_SECRET": None, "PROXMOX_USER": cluster.user}
    result = controller.schedule(name="web-1", api_password=cluster.password, env=login, args="-no-shutdown")
    assert cluster.state()["guests"][result["vmid"]]["config"]["args"] == "-no-shutdown"
    failed = controller.fail("AuthenticationFailed", name="web-2", api_password="wrong-geheim", env=login)
    assert "wrong-geheim" not in str(failed)


def test_user_who_may_only_look__can_plan_and_leaves_nothing_reserved(
    start: Callable[..., SimulatedCluster], modules: ModuleServer, tmp_path: Path
) -> None:
    description = yaml.safe_load((CLUSTERS / "three-nodes.yml").read_text(encoding="utf-8"))
    secret = "11111111-1111-1111-1111-111111111111"
    description |= {
        "users": [{"name": "guest@pve"}],
        "tokens": [{"id": "guest@pve!ci", "secret": secret, "privsep": False}],
        "acl": [{"path": "/", "user": "guest@pve", "role": "PVEAuditor"}],
    }
    cluster = start(description)
    token = {"PROXMOX_USER": "guest@pve", "PROXMOX_TOKEN_ID": "ci", "PROXMOX_TOKEN_SECRET": secret}
    controller = Controller(modules, tmp_path / "guest", {**cluster.environment(), **token})
    assert controller.schedule(name="web-1", check=True)["changed"] is True
    failed = controller.fail("PermissionDenied", name="web-1")
    assert controller.run("vmid_pick")["vmid"] == failed["vms"][0]["decision"]["vmid"]
