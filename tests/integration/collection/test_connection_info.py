# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor: what it says of connections and rights; the commands that it prints grant what is missing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.controller import Controller, Result
from support.place import Api
from support.versions import VERSIONS, both_versions

DOCS = Path(__file__).resolve().parents[3] / "docs"
SECRET = "12345678-1234-4234-8234-123456789abc"
FEW = {"PROXMOX_USER": "few@pve", "PROXMOX_TOKEN_ID": "tok", "PROXMOX_TOKEN_SECRET": SECRET}

PROVISION = ["provision", "clone", "teardown", "addresses"]

Start = Callable[..., SimulatedCluster]
Control = Callable[..., Controller]

VMS: list[dict[str, Any]] = [
    {"name": "made", "pool": "web", "cores": 2, "state": "started", "scsi": {"scsi0": {"size": 8, "storage": "shared"}},
     "net": {"net0": "virtio,bridge=vmbr0"}},
    {"name": "cloned", "clone": "debian-13", "agent": "enabled=1"},
]  # fmt: skip


def described(*, privsep: bool, acl: Iterable[dict[str, Any]] = (), **roles: list[str]) -> dict[str, Any]:
    """The quiet cluster of three nodes, with a user of a token who has these roles."""
    description = yaml.safe_load((CLUSTERS / "three-nodes.yml").read_text(encoding="utf-8"))
    description.update(
        roles=roles,
        users=[{"name": "few@pve"}],
        tokens=[{"id": "few@pve!tok", "secret": SECRET, "privsep": privsep}],
        acl=list(acl),
    )
    return dict(description)


def as_root(cluster: SimulatedCluster) -> Api:
    with_password = {"PROXMOX_USER": cluster.user, "PROXMOX_PASSWORD": cluster.password, "PROXMOX_TOKEN_SECRET": ""}
    return Api({**cluster.environment(), **with_password})


def carry_out(cluster: SimulatedCluster, commands: Iterable[str]) -> None:
    """Do what the commands of pveum do, as root."""
    api = as_root(cluster)
    for command in commands:
        _pveum, what, action, name, *options = shlex.split(command)
        given = dict(zip(options[::2], options[1::2], strict=True))
        if (what, action) == ("role", "add"):
            api.ask("POST", "/access/roles", roleid=name, privs=given["--privs"])
        else:
            assert (what, action) == ("acl", "modify"), command
            holders = {option[2:]: given[option] for option in ("--users", "--tokens") if option in given}
            api.ask("PUT", "/access/acl", path=name, roles=given["--roles"], **holders)


def status_of(result: Result, name: str) -> str:
    return str(next(check["status"] for check in result["checks"] if check["name"] == name))


def message_of(result: Result, name: str) -> str:
    return str(next(check["message"] for check in result["checks"] if check["name"] == name))


@both_versions
def test_administrator__finds_everything_in_order_and_nothing_is_written(
    cluster: SimulatedCluster, controller: Controller, version: str
) -> None:
    before = cluster.state()
    cluster.reset_requests()

    result = controller.run("connection_info", vms=VMS)

    assert result["ok"], result["checks"]
    assert {check["status"] for check in result["checks"]} == {"ok"}
    assert result["versions"]["proxmox_ve"] == version
    assert result["cluster"] == "three-nodes"
    assert message_of(result, "connection").startswith("three-nodes, 127.0.0.1:")
    assert result["missing"] == result["commands"] == []
    assert {row["name"] for row in result["storages"] if row["usable"]} == {"local-lvm", "shared"}
    assert {row["name"]: row["nodes"] for row in result["bridges"]} == {
        "vmbr0": ["pve1", "pve2", "pve3"],
        "vmbr1": ["pve1", "pve2"],
    }
    assert result["templates"] == [{"name": "debian-13", "vmid": 9000, "node": "pve1", "usable": True}]
    assert {**cluster.state(), "now": 0} == {**before, "now": 0}
    assert [request for request in cluster.requests() if request["method"] != "GET"] == []
    assert not (controller.folder / "state").exists(), "no ledger is created"


def test_connect__takes_one_request_and_needs_no_privilege(start: Start, control: Control) -> None:
    cluster = start(described(privsep=False))
    cluster.reset_requests()
    few = control(cluster).run("connection_info", env=FEW, purposes=["connect"])
    assert (few["ok"], few["cluster"], len(cluster.requests())) == (True, None, 1)
    carry_out(cluster, ["pveum acl modify / --users few@pve --roles PVEAuditor"])
    assert control(cluster).run("connection_info", env=FEW, purposes=["connect"])["cluster"] == "three-nodes"


@both_versions
@pytest.mark.parametrize("privsep", [False, True])
@pytest.mark.parametrize("options", [{"vms": VMS}, {}, {"purposes": ["drain", "rebalance", "ha", "devices", "ceph"]}])
def test_commands__grant_exactly_what_is_missing(
    start: Start, control: Control, options: dict[str, Any], *, privsep: bool
) -> None:
    cluster = start(described(privsep=privsep))
    controller = control(cluster)
    first = controller.run("connection_info", env=FEW, **options)
    assert not first["ok"]
    assert status_of(first, "rights") == "failed"
    # Storages and bridges are seen only with the first rights.
    carry_out(cluster, first["commands"])
    second = controller.run("connection_info", env=FEW, **options)
    carry_out(cluster, second["commands"])
    last = controller.run("connection_info", env=FEW, **options)
    assert last["missing"] == [], last["commands"]
    assert last["ok"], last["checks"]


@pytest.mark.parametrize("auditor", [False, True])
def test_commands__take_nothing_away(start: Start, control: Control, *, auditor: bool) -> None:
    """An entry on a path replaces what is inherited there."""
    access = [{"path": "/access", "user": "few@pve", "role": "PVEAuditor"}] if auditor else []
    cluster = start(
        described(
            privsep=False,
            acl=[
                {"path": "/", "user": "few@pve", "role": "Own"},
                {"path": "/pool", "user": "few@pve", "role": "PVEPoolAdmin"},
                *access,
            ],
            Own=["Sys.Audit", "VM.Audit", "VM.Migrate", "VM.Console", "Datastore.Audit", "Datastore.AllocateTemplate"],
        )
    )
    controller, root = control(cluster), as_root(cluster)
    paths = ("/", "/vms", "/vms/100", "/vms/9000", "/storage", "/storage/shared", "/pool/web")
    kinds = {"/": "Sys.", "/vms": "VM.", "/storage": "Datastore.", "/pool": "Pool."}

    def held() -> set[tuple[str, str]]:
        answers = [root.get("/access/permissions", userid="few@pve", path=path) for path in paths]
        return {(path, privilege) for answer in answers for path, those in answer.items() for privilege in those}

    before = {(path, privilege) for path, privilege in held() if privilege.startswith(kinds["/" + path.split("/")[1]])}
    assert len(before) > 10
    carry_out(cluster, controller.run("connection_info", env=FEW, vms=VMS)["commands"])
    carry_out(cluster, controller.run("connection_info", env=FEW, vms=VMS)["commands"])
    assert before <= held()
    assert controller.run("connection_info", env=FEW, vms=VMS)["ok"]


@both_versions
def test_privileges_for_a_list__are_complete_exactly_if_the_vms_can_be_made(start: Start, control: Control) -> None:
    cluster = start(described(privsep=False))
    controller, before = control(cluster), cluster.state()["guests"].keys()
    for _ in range(2):
        carry_out(cluster, controller.run("connection_info", env=FEW, vms=VMS)["commands"])
    api = as_root(cluster)

    def can_make_them() -> bool:
        result = controller.run("qemu_schedule", env=FEW, vms=VMS)
        for vmid in cluster.state()["guests"].keys() - before:
            cluster.remove_guest(vmid)
        return not result.get("failed")

    assert can_make_them()
    roles = {row["roleid"]: row["privs"].split(",") for row in api.get("/access/roles") if "Scheduler" in row["roleid"]}
    for role, held in roles.items():
        for privilege in held:
            api.ask("PUT", f"/access/roles/{role}", privs=",".join({*held} - {privilege}))
            is_complete = controller.run("connection_info", env=FEW, vms=VMS)["ok"]
            assert is_complete == can_make_them(), (role, privilege)
            api.ask("PUT", f"/access/roles/{role}", privs=",".join(held))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("page", "role", "purposes"),
    [
        ("awx.md", r'# Proxmox VE {}\npveum role add QemuScheduler --privs "(.+)"', PROVISION),
        ("operating.md", r'pveum role add NodeDrainer --privs "(.+)"', ["drain"]),
    ],
)
def test_documented_role__has_nothing_missing(
    start: Start, control: Control, version: str, page: str, role: str, purposes: list[str]
) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    (privileges,) = re.findall(role.format(version[0]), text)
    acl = [{"path": "/", "user": "few@pve", "role": "Documented"}]
    cluster = start(described(privsep=False, acl=acl, Documented=privileges.split()))
    result = control(cluster).run("connection_info", env=FEW, purposes=purposes)
    assert result["missing"] == []
    assert result["ok"], result["checks"]


@pytest.mark.parametrize(
    ("env", "code", "cure"),
    [
        ({"PROXMOX_HOST": "nowhere.invalid"}, "ConnectionFailed", "cannot connect"),
        ({**FEW, "PROXMOX_TOKEN_SECRET": SECRET.replace("1", "2")},
         "AuthenticationFailed", "refused few@pve!tok"),
        ({"PROXMOX_CA_PATH": None}, "ConnectionFailed", "ca_path"),
        ({"PROXMOX_HOST": None}, "InvalidRequest", "PROXMOX_HOST"),
        ({"PROXMOX_TOKEN_ID": None}, "InvalidRequest", "PROXMOX_TOKEN_ID"),
    ],
)  # fmt: skip
def test_failed_connection__is_a_result_with_one_sentence(
    start: Start, control: Control, env: dict[str, str], code: str, cure: str
) -> None:
    result = control(start(described(privsep=False))).run("connection_info", env=env)
    assert not result.get("failed")
    assert not result["ok"]
    (check,) = (check for check in result["checks"] if check["status"] == "failed")
    assert check["name"] == "connection"
    assert check["message"].startswith(code)
    assert cure in check["message"]
    assert SECRET not in str(result)


def test_list__names_what_the_cluster_does_not_have(controller: Controller) -> None:
    vms = [
        {"name": "a", "clone": "debian-14"},
        {"name": "b", "net": {"net0": "virtio,bridge=vmbr7"}, "scsi": {"scsi0": {"size": 8, "storage": "sharde"}}},
        {"name": "c", "pool": "webb"},
    ]
    result = controller.run("connection_info", vms=vms)
    said = [check["message"] for check in result["checks"] if check["name"] == "list"]
    assert [text.partition("; known")[0] for text in said] == [
        "VM \"a\": clone: no template 'debian-14'",
        "VM \"b\": net0: no node has the bridge 'vmbr7'",
        "VM \"b\": no storage 'sharde', or this user cannot see it",
        "VM \"c\": pool: pool 'webb' does not exist, or this user cannot see it",
    ]
    assert said[2].endswith("did you mean shared?")


def test_ledger__that_cannot_be_used_is_named(controller: Controller, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a ledger", encoding="utf-8")
    damaged = controller.run("connection_info", reservations=str(tmp_path / "file"))
    assert status_of(damaged, "ledger") == "failed"
    assert "LedgerIncompatible" in message_of(damaged, "ledger")
    new = controller.run("connection_info", reservations=str(tmp_path / "new" / "ledger.db"))
    assert message_of(new, "ledger").endswith("which the first run creates")
    assert not (tmp_path / "new").exists()


def test_unverified_certificate__is_a_warning_with_its_cure(controller: Controller) -> None:
    result = controller.run("connection_info", validate_certs=False, purposes=["plan"])
    assert result["ok"], result["checks"]
    assert status_of(result, "certificate") == "warning"
    assert "ca_path" in message_of(result, "certificate")
