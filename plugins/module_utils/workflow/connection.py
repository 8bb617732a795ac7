# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks a connection step by step: what works, and one sentence about each step that does not. Writes nothing."""

from __future__ import annotations

import importlib.metadata
import platform
import typing as t
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ansible.module_utils.ansible_release import __version__ as core_version

from ..engine.texts import first, join_words, known_names, whole_number
from ..errors import CollectionError, PermissionDenied
from ..model import GIB, Snapshot
from ..proxmox.api.failures import UNREADABLE
from ..proxmox.api.reader import ReadOnce
from ..proxmox.api.session import ROOT, Session, verification
from ..proxmox.inventory.named import read_rights
from ..proxmox.inventory.nodes import with_bridges
from ..proxmox.inventory.rows import Row
from ..proxmox.inventory.snapshot import read_snapshot
from ..proxmox.options.request import cards_in
from ..proxmox.rights import (
    GUESTS,
    START,
    STORAGES,
    Held,
    Holder,
    Need,
    Visible,
    Wanted,
    commands_for,
    is_met,
    needs_of,
    privileges_for,
)
from ..reservations.opening import look_at_ledger
from .options.entries import RUNNING, Entry
from .options.task import Task
from .pools import unknown_pool

OK, WARNING, FAILED = "ok", "warning", "failed"
OLDEST = (8, 0)
"""The oldest supported release of Proxmox VE."""

OFTEN = ("provision", "teardown", "addresses")
"""The purposes that are checked if the task names none: those of the role provision and of teardown."""


@dataclass(slots=True)
class Report:
    """What was found, step by step.

    Attributes:
        checks: name, status and message of each step.
        facts: what else the result has.
    """

    checks: list[dict[str, str]] = field(default_factory=list)
    facts: dict[str, t.Any] = field(default_factory=dict)

    def note(self, name: str, message: str, status: str = OK) -> None:
        self.checks.append({"name": name, "status": status, "message": message})

    def result(self) -> dict[str, t.Any]:
        return {
            "changed": False,
            "ok": all(check["status"] != FAILED for check in self.checks),
            "checks": self.checks,
            **self.facts,
        }


def check_connection(params: Mapping[str, t.Any], per_vm: Iterable[str], now: float) -> dict[str, t.Any]:
    """Return the result of the module. per_vm names the options of one VM. Raises InvalidRequest for options about VMs.
    """
    task = None if params.get("vms") is None else Task.of(params, per_vm, now)
    purposes = purposes_of(params.get("purposes"), [] if task is None else task.entries)
    report = Report(facts={**_NOTHING, "purposes": purposes})
    try:
        session = Session.connect(params)
    except CollectionError as error:
        report.note("connection", f"{error.code}: {error.message}", FAILED)
        return report.result()
    try:
        report.facts["user"] = session.user
        name = report.facts["cluster"] = _read_cluster_name(session)
        report.note("connection", f"{'' if name is None else f'{name}, '}{session.where} as {session.user}")
        if purposes == ["connect"]:
            return report.result()
        release = str(session.get("/version").get("release") or "")
        _check_certificate(report, params)
        _check_versions(report, release)
        _check_cluster(report, ClusterLook(session, release), purposes, [] if task is None else task.entries)
    except CollectionError as error:
        report.note("connection", f"{error.code}: {error.message}", FAILED)
    finally:
        session.close()
    _check_ledger(report, params.get("reservations"))
    return report.result()


_NOTHING: Mapping[str, t.Any] = {
    "cluster": None, "user": None, "versions": {}, "missing": [], "commands": [],
    "storages": [], "bridges": [], "templates": [],
}  # fmt: skip


def purposes_of(named: Iterable[str] | None, entries: Iterable[Entry]) -> list[str]:
    """Return the purposes that are checked: those that the task names, and those of its VMs."""
    found = list(named or (OFTEN if not entries else ("provision",)))
    for entry in entries:
        options = entry.request.options
        if entry.clone is not None:
            found.append("clone")
        if entry.backup is not None:
            found.append("restore")
        if entry.request.ha is not None:
            found.append("ha")
        if entry.request.devices or any(key.startswith(("hostpci", "usb")) for key in options):
            found.append("devices")
        if entry.state == "absent":
            found.append("teardown")
    if not entries and "provision" in found and "clone" not in found:
        found.append("clone")
    return list(dict.fromkeys(found))


class ClusterLook:
    """What this user sees of the cluster."""

    def __init__(self, session: Session, release: str) -> None:
        self.reader = ReadOnce(session)
        self.user = session.user
        self.release = release

    @cached_property
    def snapshot(self) -> Snapshot:
        snapshot = read_snapshot(self.reader)
        online = [node for node in snapshot.nodes if node.online]
        return Snapshot(with_bridges(self.reader, online), snapshot.guests, snapshot.storages, pools=snapshot.pools)

    @cached_property
    def zones(self) -> Mapping[str, str]:
        """The zone of each VNet, as far as this user sees them."""
        try:
            rows = self.reader.get("/cluster/sdn/vnets")
        except UNREADABLE:
            return {}
        return {str(row.get("vnet")): str(row.get("zone")) for row in rows or ()}

    @cached_property
    def view(self) -> Visible:
        bridges = {name for node in self.snapshot.nodes for name in node.bridges or ()}
        return Visible(
            nodes=tuple(sorted(node.name for node in self.snapshot.nodes)),
            storages=tuple(sorted({each.name for each in self.snapshot.storages if "images" in each.content})),
            bridges={name: self.zones.get(name, "localnetwork") for name in sorted(bridges)},
            templates=tuple(sorted(guest.vmid for guest in self.snapshot.guests if guest.template)),
            modern=(whole_number(self.release.partition(".")[0]) or 0) >= 9,
        )

    def read_privileges(self, path: str) -> Mapping[str, object]:
        return read_rights(self.reader, path)

    def find_holders(self, needs: Sequence[Need]) -> list[Holder]:
        """Return who lacks a privilege: the user, or a token and its user. Without Sys.Audit on C(/access), a token
        cannot see what its user holds, which is at least what it holds itself.
        """
        owner, separator, _token = self.user.partition("!")
        held = self.read_privileges if not separator else self._reader_of_privileges(owner)
        users = [] if owner == ROOT else [("--users", owner, held)]
        tokens = [("--tokens", self.user, self.read_privileges)] if separator else []
        return [
            Holder(option, name, have, missing)
            for option, name, have in (*users, *tokens)
            if (missing := [need for need in needs if not is_met(need, have)])
        ]

    def _reader_of_privileges(self, user: str) -> Held:
        try:
            self.reader.get("/access/permissions", userid=user, path="/")
        except UNREADABLE:
            return self.read_privileges
        return lambda path: self.reader.get("/access/permissions", userid=user, path=path).get(path) or {}

    def read_roles(self) -> list[str]:
        try:
            return [str(row.get("roleid")) for row in self.reader.get("/access/roles")]
        except UNREADABLE:
            return []


def _read_cluster_name(session: Session) -> str | None:
    """Return the name of the cluster, or that of a node that is in none; None without Sys.Audit on C(/)."""
    try:
        rows: list[Row] = session.get("/cluster/status")
    except PermissionDenied:
        return None
    names = {row.get("type"): row.get("name") for row in rows}
    return names.get("cluster") or names.get("node")


def _check_certificate(report: Report, params: Mapping[str, t.Any]) -> None:
    """Note whether certificates are verified."""
    trusted = verification(params)
    if trusted is False:
        cure = "copy /etc/pve/pve-root-ca.pem from a node and set ca_path (PROXMOX_CA_PATH) instead"
        report.note("certificate", f"not verified, because validate_certs is false: {cure}", WARNING)
    else:
        report.note("certificate", f"verified with {'the authorities of this system' if trusted is True else trusted}")


def _check_versions(report: Report, release: str) -> None:
    """Note whether the releases of Proxmox VE and of the libraries are supported."""
    versions = {
        "proxmox_ve": release,
        "ansible_core": core_version,
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in ("proxmoxer", "requests")},
    }
    report.facts["versions"] = versions
    text = f"Proxmox VE {release}, ansible-core {core_version}, Python {versions['python']}"
    if tuple(whole_number(part) or 0 for part in release.split(".")) < OLDEST:
        report.note("versions", f"{text}: Proxmox VE {OLDEST[0]}.{OLDEST[1]} or later is needed", FAILED)
    else:
        report.note("versions", f"{text}, proxmoxer {versions['proxmoxer']}, requests {versions['requests']}")


def _check_cluster(report: Report, look: ClusterLook, purposes: Iterable[str], entries: Sequence[Entry]) -> None:
    """Note what the user can do on the cluster, and which names of the entries it does not have."""
    nodes = look.view.nodes
    report.note("nodes", f"online: {join_words(nodes)}" if nodes else "no node is online", OK if nodes else FAILED)
    wanted = _wanted_privileges(look, entries)
    needs = needs_of(purposes, wanted, look.view)
    missing = [] if look.user == ROOT else [need for need in needs if not is_met(need, look.read_privileges)]
    report.facts["missing"] = [
        {"privilege": need.privilege, "path": need.grant, "purpose": need.purpose} for need in missing
    ]
    report.facts["commands"] = commands_for(look.find_holders(needs), look.read_roles()) if missing else []
    _note_rights(report, missing, purposes)
    _note_storages(report, look)
    _note_bridges(report, look)
    _note_templates(report, look)
    for problem in first(list(_problems(look, entries)), 10):
        report.note("list", problem, FAILED)


def _wanted_privileges(look: ClusterLook, entries: Sequence[Entry]) -> Wanted:
    """Return what the purposes need, as far as the entries tell: pools, storages, bridges, templates and devices."""
    made = [entry for entry in entries if entry.state != "absent"]
    pools: dict[str | None, frozenset[str]] = {}
    for entry in entries:
        exists = entry.update or entry.clone is not None or entry.backup is not None
        config = privileges_for(entry.request.options, exists=exists) if entry.state != "absent" else frozenset()
        start = {START} if entry.state in RUNNING else set()
        pools[entry.request.pool] = pools.get(entry.request.pool, frozenset()) | config | start
    if not made:
        return Wanted(pools) if pools else Wanted()
    return Wanted(
        pools=pools,
        storages=frozenset(storage for entry in made for storage in _storages_of(entry)),
        bridges=frozenset(bridge for entry in made for bridge in entry.request.bridges),
        templates=frozenset(guest.vmid for entry in made for guest in _sources_of(look, entry)),
    )


def _storages_of(entry: Entry) -> Iterator[str | None]:
    """Yield the storages on which a VM gets new volumes; None for one that the scheduler chooses."""
    if entry.clone is not None:
        yield entry.clone.storage
    for disk in entry.request.disks:
        if disk.volume is None:
            yield disk.storage


def _sources_of(look: ClusterLook, entry: Entry) -> list[t.Any]:
    """Return the guests that may be the source of a VM."""
    clone = entry.clone
    if clone is None:
        return []
    return [g for g in look.snapshot.guests if g.kind == "qemu" and clone.names(g) and clone.allows(g)]


def _note_rights(report: Report, missing: list[Need], purposes: Iterable[str]) -> None:
    """Note the privileges that this user lacks, for each of the purposes."""
    wanted = ", ".join(purposes)
    if not missing:
        report.note("rights", f"sufficient for: {wanted}")
        return
    told = first([f"{need.privilege} on {need.grant} ({need.purpose})" for need in missing], 6)
    cure = "run the commands below on a node, or reduce what is checked with purposes"
    report.note("rights", f"missing: {', '.join(told)}; {cure}", FAILED)


def _note_storages(report: Report, look: ClusterLook) -> None:
    """Note the storages, and which of them this user can use for disks."""
    by_name: dict[str, dict[str, t.Any]] = {}
    for each in sorted(look.snapshot.storages, key=lambda each: (each.name, each.node)):
        row = by_name.setdefault(each.name, {"name": each.name, "type": each.type, "shared": each.shared, "nodes": []})
        row["content"] = sorted(each.content)
        row["free_gib"] = max(row.get("free_gib", 0.0), round((each.total - each.used) / GIB, 1))
        if each.active:
            row["nodes"].append(each.node)
    for row in by_name.values():
        may = "Datastore.AllocateSpace" in look.read_privileges(f"{STORAGES}/{row['name']}")
        row["usable"] = bool(row["nodes"]) and "images" in row["content"] and may
    report.facts["storages"] = list(by_name.values())
    usable = [f"{row['name']} ({row['free_gib']} GiB free)" for row in by_name.values() if row["usable"]]
    _note_usable(report, "storages", usable, "no storage for disks can be used: see rights")


def _note_bridges(report: Report, look: ClusterLook) -> None:
    """Note the bridges, and which of them this user can use."""
    rows: list[dict[str, t.Any]] = [
        {
            "name": name,
            "nodes": sorted(node.name for node in look.snapshot.nodes if name in (node.bridges or ())),
            "usable": "SDN.Use" in look.read_privileges(look.view.bridge(name)),
        }
        for name in look.view.bridges
    ]
    report.facts["bridges"] = rows
    nodes = len(look.view.nodes)
    usable = [
        row["name"] if len(row["nodes"]) == nodes else f"{row['name']} ({', '.join(row['nodes'])} only)"
        for row in rows
        if row["usable"]
    ]
    _note_usable(report, "bridges", usable, "no bridge can be used: VMs get no network cards")


def _note_templates(report: Report, look: ClusterLook) -> None:
    """Note the templates, and which of them this user can clone."""
    rows = [
        {
            "name": guest.name,
            "vmid": guest.vmid,
            "node": guest.node,
            "usable": "VM.Clone" in look.read_privileges(f"{GUESTS}/{guest.vmid}"),
        }
        for guest in sorted(look.snapshot.guests, key=lambda guest: guest.vmid)
        if guest.template
    ]
    report.facts["templates"] = rows
    usable = [f"{row['name']} ({row['vmid']})" for row in rows if row["usable"]]
    _note_usable(report, "templates", usable, "none can be cloned" if rows else "none is visible")


def _note_usable(report: Report, name: str, usable: list[str], otherwise: str) -> None:
    report.note(name, ", ".join(first(usable, 10)) or otherwise, OK if usable else WARNING)


def _problems(look: ClusterLook, entries: Sequence[Entry]) -> Iterator[str]:
    """Yield what the VMs name and the cluster does not have, each once."""
    told: set[str] = set()
    for entry in entries:
        for problem in _missing_of_entry(look, entry) if entry.state != "absent" else ():
            if problem not in told:
                told.add(problem)
                yield f"{entry.label}: {problem}"


def _missing_of_entry(look: ClusterLook, entry: Entry) -> Iterator[str]:
    """Yield what an entry names and the cluster does not have, as sentences."""
    snapshot, view = look.snapshot, look.view
    if entry.clone is not None and not _sources_of(look, entry):
        names = [guest.name for guest in snapshot.guests if guest.template and guest.name]
        templates = known_names(names, entry.clone.name)
        yield f"clone: no template {entry.clone.called}{entry.clone.place}; known: {templates}"
    for option, card in cards_in(entry.request.options):
        bridge = card.get("bridge")
        if bridge is not None and view.bridges and bridge not in view.bridges:
            yield f"{option}: no node has the bridge {bridge!r}; known: {known_names(view.bridges, bridge)}"
    there = {each.name for each in snapshot.storages}
    for name in sorted({name for name in _storages_of(entry) if name is not None} - there):
        yield f"no storage {name!r}, or this user cannot see it; known: {known_names(there, name)}"
    problem = unknown_pool(look.reader, snapshot, entry.request.pool)
    if problem is not None:
        yield problem


def _check_ledger(report: Report, where: str | None) -> None:
    try:
        report.note("ledger", look_at_ledger(where))
    except CollectionError as error:
        report.note("ledger", f"{error.code}: {error.message}", FAILED)
