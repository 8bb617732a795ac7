# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every write to an existing guest passes one place, which proves whom it is for."""

from __future__ import annotations

import ast
import contextlib
import typing as t
from collections.abc import Callable, Iterator

import pytest
from support.pages import CHECKOUT

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    ApiError,
    GuestVanished,
    NotTheSameGuest,
    TaskFailed,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.failures import AnswerLost
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.identity import identity_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.lifecycle import no_fence
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import Poller
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.writes import FRESH_SECONDS, GuestWriter

CODE = CHECKOUT / "plugins"
UTILS = CODE / "module_utils"
VERBS = {"post", "put", "delete"}

WRITERS = {
    "module_utils/proxmox/writes.py": "existing guests",
    "module_utils/proxmox/binder.py": "new guests: create and restore",
    "module_utils/proxmox/moves/own_pools.py": "the pools that mark nodes, and the one that records a tour",
    "module_utils/proxmox/ceph.py": "flags of Ceph",
    "module_utils/proxmox/node_power.py": "nodes that are shut down and woken, and whether HA is armed",
    "module_utils/proxmox/datacenter.py": "whether the HA manager balances",
    "module_utils/proxmox/api/session.py": "the login",
}


def writes() -> Iterator[tuple[str, str]]:
    """Yield the file and the code of each call that writes to the cluster."""
    for path in sorted(CODE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Attribute) and node.attr in VERBS):
                continue
            if ast.unparse(node.value).rpartition(".")[2].lstrip("_") in ("session", "api", "connection"):
                yield path.relative_to(CODE).as_posix(), ast.unparse(node)


def test_writes_to_the_cluster__are_sent_by_these_modules_only() -> None:
    assert {file for file, _call in writes()} <= set(WRITERS)


def test_writes_of_the_binder__are_those_that_make_guests() -> None:
    tree = ast.parse((UTILS / "proxmox/binder.py").read_text(encoding="utf-8"))
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("session.post")
    ]
    paths = {ast.unparse(call.args[0]) for call in calls}
    assert paths == {"f'/nodes/{node}/qemu'", "path"}
    assigned = {
        ast.unparse(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "path"
    }
    assert assigned == {"f'/nodes/{node}/qemu'"}


# --- the writer -------------------------------------------------------------------------------------------------------

APP = {
    "name": "app",
    "meta": "creation-qemu=9.2.0,ctime=1700000000",
    "smbios1": "uuid=11111111-2222-4333-8444-555555555555",
    "vmgenid": "aaaaaaaa-2222-4333-8444-555555555555",
    "digest": "d1",
}
PAYROLL = {**APP, "name": "payroll", "meta": "creation-qemu=9.2.0,ctime=1700000500"}
OLD = {"name": "app", "digest": "d1"}


class Cluster:
    """A cluster with one VM, 100 on pve1, that records what is asked of it."""

    user = "op@pve"

    def __init__(self, config: dict[str, str]) -> None:
        self.config = config
        self.asked: list[str] = []
        self.digests: list[str | None] = []
        self.failures: list[Exception] = []

    def get(self, path: str, **_more: object) -> dict[str, str]:
        self.asked.append(f"GET {path}")
        return self.config

    def _write(self, method: str, path: str, params: t.Any = None, **more: t.Any) -> None:
        given = {**(params or {}), **more}
        digest = given.get("digest")
        self.asked.append(f"{method} {path}")
        self.digests.append(digest)
        if self.failures:
            raise self.failures.pop(0)
        if digest is not None:
            if digest != self.config["digest"]:
                raise ApiError("checksum mismatch (file change by other user?)")
            self.config = {**self.config, "digest": f"{digest}+"}

    def post(self, path: str, params: t.Any = None, **more: t.Any) -> None:
        self._write("POST", path, params, **more)

    def put(self, path: str, params: t.Any = None, **more: t.Any) -> None:
        self._write("PUT", path, params, **more)

    def delete(self, path: str, params: t.Any = None, **more: t.Any) -> None:
        self._write("DELETE", path, params, **more)


class Tasks:
    """Follows no task."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.poller = Poller(clock)

    def wait(self, upid: str) -> None:
        assert upid is None


def writer(cluster: Cluster, planned: dict[str, str], tasks: Tasks | None = None, **options: t.Any) -> GuestWriter:
    identity = identity_of(planned, "pve1")
    return GuestWriter(cluster, tasks or Tasks(), 100, identity, **options)  # type: ignore[arg-type]


WRITES = {
    "configure": lambda guest: guest.configure("pve1", {"cores": 2}),
    "configure_by_task": lambda guest: guest.configure_by_task("pve1", {"cores": 2}),
    "resize": lambda guest: guest.resize("pve1", "scsi0", 1),
    "move_disk": lambda guest: guest.move_disk("pve1", "scsi0", "shared"),
    "command": lambda guest: guest.command("pve1", "stop", {}),
    "convert_to_template": lambda guest: guest.convert_to_template("pve1"),
    "delete": lambda guest: guest.delete("pve1"),
    "clone": lambda guest: guest.clone("pve1", {"newid": 200}, no_fence),
    "migrate": lambda guest: guest.migrate("pve1", {"target": "pve2"}),
    "regenerate_cloud_init": lambda guest: guest.regenerate_cloud_init("pve1"),
    "move_to_pool": lambda guest: guest.move_to_pool("pve1", "web"),
    "add_to_ha": lambda guest: guest.add_to_ha("pve1", {}),
    "change_in_ha": lambda guest: guest.change_in_ha("pve1", {}),
    "create_ha_rule": lambda guest: guest.create_ha_rule("pve1", {}),
    "create_ha_group": lambda guest: guest.create_ha_group("pve1", {}),
    "change_ha_rule": lambda guest: guest.change_ha_rule("pve1", "rule", dict),
}
CONFIG = "GET /nodes/pve1/qemu/100/config"


def test_writes__are_all_tried_here() -> None:
    public = {name for name in vars(GuestWriter) if not name.startswith("_")}
    assert public - {"look"} == set(WRITES)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_write__to_another_guest_is_not_sent(write: t.Any) -> None:
    cluster = Cluster(PAYROLL)

    with pytest.raises(NotTheSameGuest, match="payroll"):
        write(writer(cluster, APP))

    assert [asked for asked in cluster.asked if not asked.startswith("GET")] == []


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_write__costs_one_read_of_the_config(write: t.Any) -> None:
    cluster = Cluster(APP)

    write(writer(cluster, APP))

    assert next(asked for asked in cluster.asked if not asked.startswith("GET /cluster/ha")) == CONFIG
    assert cluster.asked.count(CONFIG) == 1
    assert len([asked for asked in cluster.asked if not asked.startswith("GET")]) == 1


@pytest.mark.parametrize("write", WRITES)
def test_write__carries_the_digest_where_proxmox_takes_one(write: str) -> None:
    cluster = Cluster(APP)

    WRITES[write](writer(cluster, APP))

    takes = {"configure", "configure_by_task", "resize", "move_disk", "change_in_ha"}
    assert cluster.digests == ["d1" if write in takes else None]


def test_digest__proves_the_first_change_without_a_read() -> None:
    cluster = Cluster(APP)
    guest = writer(cluster, APP, digest="d1")

    guest.configure("pve1", {"cores": 2})
    guest.configure("pve1", {"cores": 3})

    change = "PUT /nodes/pve1/qemu/100/config"
    assert cluster.asked == [change, CONFIG, change]


@pytest.mark.parametrize(("config", "refused"), [({**APP, "digest": "d2"}, False), ({**PAYROLL, "digest": "d2"}, True)])
def test_digest_of_an_older_config__is_replaced_after_a_proof(config: dict[str, str], refused: bool) -> None:
    cluster = Cluster(config)
    guest = writer(cluster, APP, digest="d1")

    if refused:
        with pytest.raises(NotTheSameGuest):
            guest.configure("pve1", {"cores": 2})
        assert len(cluster.asked) == 2
    else:
        guest.configure("pve1", {"cores": 2})
        assert len(cluster.asked) == 3


def test_config_that_others_change_all_the_time__is_not_fought_for_without_end() -> None:
    cluster = Cluster(APP)
    cluster.failures = [ApiError("checksum mismatch (file change by other user?)")] * 5

    with pytest.raises(ApiError, match="checksum"):
        writer(cluster, APP).configure("pve1", {"cores": 2})


def test_config_that_was_read_right_now__proves_one_write_only() -> None:
    cluster = Cluster(APP)
    guest = writer(cluster, APP, is_fresh=True)

    guest.command("pve1", "start", {})
    guest.command("pve1", "stop", {})

    assert cluster.asked.count(CONFIG) == 1


def test_config_that_was_read_before_a_pause__proves_nothing() -> None:
    cluster, times = Cluster(PAYROLL), iter([0.0, 2 * FRESH_SECONDS])
    guest = writer(cluster, APP, Tasks(lambda: next(times)), is_fresh=True)

    with pytest.raises(NotTheSameGuest):
        guest.command("pve1", "start", {})

    assert cluster.asked == [CONFIG]


def test_check__sees_each_config_before_the_write() -> None:
    def check(config: t.Any) -> None:
        raise GuestVanished(f"now called {config['name']}")

    cluster = Cluster(APP)
    with pytest.raises(GuestVanished, match="now called app"):
        writer(cluster, APP, check=check).delete("pve1")
    assert cluster.asked == [CONFIG]


def test_guest_without_marks__is_the_same_after_our_own_change() -> None:
    cluster = Cluster(OLD)
    guest = writer(cluster, OLD)

    guest.configure("pve1", {"cores": 2})
    guest.command("pve1", "start", {})

    assert cluster.asked[-1].endswith("/status/start")


@pytest.mark.parametrize("failure", [ApiError("locked"), None])
def test_guest_without_marks__is_not_known_after_a_change_by_others(failure: Exception | None) -> None:
    cluster = Cluster(OLD)
    guest = writer(cluster, OLD)
    if failure is not None:
        cluster.failures = [failure]
        with pytest.raises(ApiError):
            guest.configure("pve1", {"cores": 2})
    cluster.config = {**OLD, "digest": "d2"}

    with pytest.raises(NotTheSameGuest):
        guest.command("pve1", "start", {})


@pytest.mark.parametrize("failure", [None, AnswerLost("lost"), TaskFailed("half done")])
def test_uuid_that_we_have_changed__is_still_that_of_the_same_guest(failure: Exception | None) -> None:
    planned = {key: value for key, value in APP.items() if key != "vmgenid"}
    cluster = Cluster(planned)
    guest = writer(cluster, planned)
    if failure is None:
        guest.configure("pve1", {"smbios1": "uuid=22222222-2222-4333-8444-555555555555"})
    else:
        cluster.failures = [failure]
        with pytest.raises(type(failure)):
            guest.configure("pve1", {"smbios1": "uuid=22222222-2222-4333-8444-555555555555"})
    cluster.config = {**planned, "smbios1": "uuid=22222222-2222-4333-8444-555555555555"}

    guest.command("pve1", "start", {})

    cluster.config = {**planned, "smbios1": "uuid=33333333-2222-4333-8444-555555555555"}
    with pytest.raises(NotTheSameGuest):
        guest.command("pve1", "stop", {})


@pytest.mark.parametrize(
    ("changes", "seen", "refused"),
    [
        ({"smbios1": "uuid=22222222-2222-4333-8444-555555555555"}, {"smbios1", "vmgenid"}, True),
        ({"smbios1": "uuid=22222222-2222-4333-8444-555555555555"}, {"smbios1"}, False),
        ({"vmgenid": "1"}, {"vmgenid"}, False),
        ({"vmgenid": "1"}, {"smbios1", "vmgenid"}, True),
    ],
)
def test_mark_that_we_have_not_changed__stays(changes: dict[str, str], seen: set[str], refused: bool) -> None:
    """A clone of the same template has the same time, and its owner may give it the same name."""
    other = {"smbios1": "uuid=22222222-2222-4333-8444-555555555555", "vmgenid": "22222222-2222-4333-8444-666666666666"}
    cluster = Cluster(APP)
    guest = writer(cluster, APP)
    guest.configure("pve1", changes)
    cluster.config = {**APP, **{key: other[key] for key in seen}}

    with pytest.raises(NotTheSameGuest) if refused else contextlib.nullcontext():
        guest.command("pve1", "start", {})


def test_other_changes_of_ours__explain_no_other_uuid() -> None:
    planned = {key: value for key, value in APP.items() if key != "vmgenid"}
    cluster = Cluster(planned)
    guest = writer(cluster, planned)
    guest.configure("pve1", {"cores": 2})
    cluster.config = {**planned, "smbios1": "uuid=33333333-2222-4333-8444-555555555555"}

    with pytest.raises(NotTheSameGuest):
        guest.command("pve1", "start", {})
