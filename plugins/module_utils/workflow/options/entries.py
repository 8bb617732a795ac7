# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The VMs that a task asks for: one by its own options, or many under C(vms) with those as their defaults."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...engine.node_selection import CLUSTER_KEY
from ...engine.texts import known_names
from ...errors import CollectionError, InvalidRequest
from ...model import Expression, Guest, HAIntent, Request
from ...other_words import GUARDS
from ...proxmox.options.request import vm_request
from ..lasting import lasting_tags, with_tags
from .rules import parse_priority_classes, parse_rules
from .uniqueness import check_unique

if t.TYPE_CHECKING:
    from ...model import DeviceClaim, DeviceClass
    from .address_pools import Pools, Wanted
    from .source_options import Backup, Clone

# --- the states of a VM that a task may ask for ---

STATES = ("present", "started", "stopped", "absent", "restarted", "paused", "suspended")
RUNNING = frozenset({"started", "restarted"})
"""The states in which a new VM is started."""

NOT_CREATED = frozenset({"paused", "suspended"})
"""The states that only a running VM can reach."""

PAUSED = "paused"


def require_creatable(label: str, state: str) -> None:
    """Raise InvalidRequest if a VM does not exist and a state is requested that only an existing VM can have."""
    if state in NOT_CREATED:
        raise InvalidRequest(f"state: {label} does not exist, and only a VM that runs can be {state}")


# --- guards: VMs without certain tags, or outside a pool, are never removed, whatever a list says ---


class RemovalRefused(CollectionError):
    """A VM is to be removed, and C(only_tags) or C(only_pool) protects it.

    Cure: check that the VM is the one that you mean. To remove it, correct C(only_tags) or C(only_pool), or remove the
    VM from the list.
    """

    code = "RemovalRefused"


@dataclass(frozen=True, slots=True)
class Guard:
    """What a VM must have to be removed: all of these tags, and this pool if it is given."""

    tags: frozenset[str] = frozenset()
    pool: str | None = None

    @classmethod
    def of(cls, body: Mapping[str, t.Any]) -> Guard:
        """Return the guard of a task. Raises InvalidRequest for an empty option: of a variable that was not set, it
        would allow everything.
        """
        for name in GUARD_OPTIONS:
            if body.get(name) in ("", []):
                raise InvalidRequest(f"{name}: is empty, expected {GUARDS[name]}", option=name)
        # Proxmox VE stores tags in lower case.
        return cls(frozenset(str(tag).lower() for tag in body.get("only_tags") or ()), body.get("only_pool") or None)

    def allows(self, guest: Guest) -> bool:
        return not self._missing(guest) and self.pool in (None, guest.pool)

    def check(self, label: str, guest: Guest) -> None:
        """Raise RemovalRefused unless the guest may be removed. label is how the VM is called in messages."""
        where = f"{label} ({guest.vmid} on {guest.node}) is not removed"
        missing = self._missing(guest)
        if missing:
            has = ", ".join(sorted(guest.tags)) or "none"
            raise RemovalRefused(f"{where}: only_tags requires the tag {missing[0]}, and its tags are: {has}")
        if self.pool is not None and guest.pool != self.pool:
            has = f"is in pool {guest.pool}" if guest.pool else "is in no pool that this user can see"
            raise RemovalRefused(f"{where}: only_pool requires pool {self.pool}, and it {has}")

    def _missing(self, guest: Guest) -> list[str]:
        """Return the tags that the guest lacks."""
        return sorted(self.tags - {tag.lower() for tag in guest.tags})


NO_GUARD = Guard()

GUARD_OPTIONS: t.Final[dict[str, dict[str, t.Any]]] = {
    "only_tags": {"type": "list", "elements": "str"},
    "only_pool": {"type": "str"},
}
"""The options of a guard."""

# --- entries ---

IDENTITY = ("name", "vmid")
"""The options that identify a VM, and so cannot be defaults for several VMs."""

SOURCES = ("clone", "archive")
"""The options that name what a VM is made from."""

FOR_SOURCES = {
    "full": ("clone",),
    "storage": SOURCES,
    "storage_class": ("clone",),
    "format": ("clone",),
    "snapname": ("clone",),
    "unique": ("archive",),
}
"""Options that require one of these sources."""

_IN_DRIVES = {
    "storage": "; set it in each drive, for example scsi0: local-lvm:32",
    "storage_class": "; set it in each drive, for example scsi0: {size: 32, storage_class: fast}",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One VM of the task.

    Attributes:
        position: its number in the task, from 0.
        request: the requested VM; request.clone is not filled in yet.
        state: present, started, stopped or absent.
        clone: the source, if it is to be cloned; backup, if it is to be restored.
        update: whether drift of an existing VM is applied.
        rename: whether the VM with the VMID may have another name, and gets the requested one.
        adopt: whether a VM of this name in another pool is the requested one.
        accept_unknown: whether it is treated as missing although it may be one of the VMs whose names are not known.
        limits: C(enforce) if the limits of its node keep an existing VM from growing and starting, else C(warn).
        apply_pending: C(reboot) if a running VM is stopped and started to apply pending changes, else C(never).
        given: the options that the user set, with their values, including defaults from the top level. They may hold
            secrets.
        guard: the tags and pool that it must have to be removed.
        addresses: for each C(ipconfigN) the pools that its static addresses come from.
        clusters: the names of the clusters that it may be on, if the task is about several; empty for all of them.
        host_groups, host_vars: the groups and variables of the VM as an inventory host.
        planned_why: the reason in the plan that is applied, for a VM that it creates.
        lasting: the tags that store its lasting rules; they are among the tags of the request.
    """

    position: int
    request: Request
    state: str
    clone: Clone | None = None
    backup: Backup | None = None
    update: bool = False
    rename: bool = False
    adopt: bool = False
    accept_unknown: bool = False
    limits: str = "enforce"
    apply_pending: str = "never"
    given: Mapping[str, t.Any] = field(default_factory=dict, repr=False)
    guard: Guard = NO_GUARD
    addresses: Wanted = field(default_factory=dict)
    clusters: tuple[str, ...] = ()
    host_groups: tuple[str, ...] = ()
    host_vars: Mapping[str, t.Any] = field(default_factory=dict)
    lasting: frozenset[str] = frozenset()
    planned_why: str = ""

    @property
    def label(self) -> str:
        """How the VM is called in messages."""
        where = f" on {self.request.node}" if self.request.per_node and self.request.node else ""
        return _label(self.request.name, self.request.vmid) + where


def _label(name: str | None, vmid: int | None) -> str:
    return f'VM "{name}"' if name else f"VM {vmid}"


def build_entries(
    params: Mapping[str, t.Any],
    per_vm: Iterable[str],
    now: float,
    origins: Sequence[int] | None = None,
    option: str = "vms",
) -> list[Entry]:
    """Return one entry per VM, checked as far as that is possible without reading the cluster.

    per_vm names the options that an entry of C(vms) may have. now is the time of the request, in seconds. origins are
    the positions of the entries as the user wrote them, if several come from one. option is what messages call the
    list. Raises InvalidRequest.
    """
    common = {name: params.get(name) for name in per_vm}
    priorities = parse_priority_classes(params["priority_classes"]) if params.get("priority_classes") else {}
    classes = _classes(params["device_classes"]) if params.get("device_classes") else {}
    pools = pools_of(params) if params.get("address_pools") else {}
    vms = params.get("vms")
    bodies = [common] if vms is None else _with_defaults(vms, common, option)
    entries = []
    for position, body in enumerate(bodies):
        where = f"{option}[{origins[position] if origins else position}]." if vms else ""
        if body.get("per_node"):
            from .per_node import check_per_node

            check_per_node(where, body, several_clusters=bool(params.get("clusters")))
        given = vms[position] if vms else body
        if any(given.get(name) is not None for name in FOR_SOURCES):
            _check_sources(where, given, body)
        try:
            rules = parse_rules(body, prefix=where, priority_classes=priorities)
            claims = _claims(where, body["devices"], classes) if body.get("devices") else ()
            addresses = _addresses(where, body, pools) if body.get("addresses") else {}
        except InvalidRequest as error:
            text = f"{error.message}, for {_label(body.get('name'), body.get('vmid'))}" if where else error.message
            raise InvalidRequest(text, **error.details) from error
        entry = _entry(position, where, body, {"created": now, "devices": claims, **rules})
        if body.get("cluster"):
            entry = _on_clusters(where, entry, tuple(body["cluster"]), params)
        entries.append(replace(entry, addresses=addresses))
    check_unique(entries, option)
    wanted = [entry for entry in entries if entry.state != "absent"]
    if any(entry.request.gang for entry in wanted):
        _check_groups(wanted)
    if any(entry.request.ha for entry in wanted):
        _check_new_rules(wanted)
    return entries


def pools_of(params: Mapping[str, t.Any]) -> Pools:
    """Return the address pools of a task that has some, by name. Raises InvalidRequest."""
    from .address_pools import parse_pools

    return parse_pools(params["address_pools"])


def _addresses(where: str, body: Mapping[str, t.Any], pools: Pools) -> Wanted:
    from .address_pools import parse_addresses

    return parse_addresses(f"{where}addresses", body["addresses"], pools, body.get("ipconfig") or {})


def _classes(given: Mapping[str, t.Any]) -> Mapping[str, DeviceClass]:
    from .device_options import device_classes

    return device_classes(given)


def _claims(
    where: str, given: Iterable[Mapping[str, t.Any]], classes: Mapping[str, DeviceClass]
) -> tuple[DeviceClaim, ...]:
    from .device_options import device_claims

    return device_claims(given, classes, prefix=where)


def _with_defaults(
    vms: Sequence[Mapping[str, t.Any]], common: Mapping[str, t.Any], option: str
) -> list[dict[str, t.Any]]:
    """Return the options of each VM, with defaults from the top level. Refuses those that apply to no VM; one that
    applies only to some VMs is fine.
    """
    for name in IDENTITY:
        if common.get(name) is not None:
            raise InvalidRequest(f"{name}: cannot be a default for several VMs; set it in each entry of {option}")
    bodies = [{name: common[name] if vm.get(name) is None else vm[name] for name in common} for vm in vms]
    if any(common.get(name) is not None for name in FOR_SOURCES):
        any_of_them = {source: next((body[source] for body in bodies if body.get(source)), None) for source in SOURCES}
        if not all(body.get("state") == "absent" for body in bodies):
            _check_sources("", common, any_of_them)
    return bodies


def _check_sources(where: str, given: Mapping[str, t.Any], body: Mapping[str, t.Any]) -> None:
    """Refuse options of given that have no effect on the VM that body describes."""
    if body.get("state") == "absent":
        return
    for option, sources in FOR_SOURCES.items():
        value = given.get(option)
        idle = value is None or (option, value) == ("format", "unspecified")
        if not idle and not any(body.get(source) is not None for source in sources):
            hint = _IN_DRIVES.get(option, "")
            wanted = " or ".join(sources)
            raise InvalidRequest(f"{where}{option}: {value!r} requires {wanted}, which is not set{hint}")


def _entry(position: int, where: str, body: Mapping[str, t.Any], rules: Mapping[str, t.Any]) -> Entry:
    """Return the entry of one VM.

    rules are the fields of Request that do not come from the VM's own options; where is the prefix of option names in
    messages.
    """
    try:
        request = vm_request(body)
    except InvalidRequest as error:
        raise InvalidRequest(where + error.message, **error.details) from error
    state = body.get("state") or "present"
    template = bool(body.get("template"))
    if state in RUNNING and template:
        raise InvalidRequest(f"{where}state: {state!r} contradicts template: a template cannot run")
    if body.get("rename") and (state == "absent" or not (request.name and request.vmid)):
        raise InvalidRequest(f"{where}rename: requires name and vmid, and a state other than absent")
    request = replace(request, per_node=bool(body.get("per_node")), **rules)
    lasting: frozenset[str] = frozenset()
    if request.affinity or request.node_required:
        lasting = lasting_tags(body, request, where)
        request = with_tags(request, lasting) if lasting else request
    if request.ha is not None and state != "absent":
        request = replace(request, ha=_ha(where, request.ha, state, template=template))
    has_source = body.get("clone") is not None or body.get("archive") is not None
    clone, backup = _source(where, body) if has_source else (None, None)
    return Entry(
        position=position,
        request=request,
        state=state,
        clone=clone,
        backup=backup,
        update=bool(body.get("update")),
        rename=bool(body.get("rename")),
        adopt=bool(body.get("adopt")),
        accept_unknown=bool(body.get("accept_unknown")),
        limits=body.get("limits") or "enforce",
        apply_pending=body.get("apply_pending") or "never",
        given={name: value for name, value in body.items() if value is not None},
        guard=Guard.of(body) if any(body.get(name) is not None for name in GUARD_OPTIONS) else NO_GUARD,
        host_groups=tuple(body.get("host_groups") or ()),
        host_vars=dict(body.get("host_vars") or {}),
        lasting=lasting,
    )


def _source(where: str, body: Mapping[str, t.Any]) -> tuple[Clone | None, Backup | None]:
    from .source_options import backup_of, clone_of

    clone = None if body.get("clone") is None else clone_of(body)
    return clone, None if body.get("archive") is None else backup_of(where, body)


def _ha(where: str, ha: HAIntent, state: str, *, template: bool) -> HAIntent:
    """Return the HA state of the VM. The HA manager starts a VM without a state, so a VM that shall not run gets
    C(stopped).

    Raises InvalidRequest if the HA state would undo the requested state.
    """
    if template and ha.state == "started":
        raise InvalidRequest(f"{where}ha.state: 'started' contradicts template: a template cannot run")
    opposed = ("stopped", "disabled") if state in RUNNING else ("started",) if state == "stopped" else ()
    if ha.state in opposed:
        raise InvalidRequest(f"{where}ha.state: {ha.state!r} contradicts state: {state!r}")
    return replace(ha, state="stopped") if ha.state is None and (template or state == "stopped") else ha


def _on_clusters(where: str, entry: Entry, wanted: tuple[str, ...], params: Mapping[str, t.Any]) -> Entry:
    """Return the entry with the clusters that it may be on."""
    names = [cluster["name"] for cluster in params.get("clusters") or ()]
    if not names:
        raise InvalidRequest(f"{where}cluster: {', '.join(wanted)} requires clusters, which is not set")
    for name in wanted:
        if name not in names:
            raise InvalidRequest(f"{where}cluster: unknown cluster {name!r}, known: {known_names(names, name)}")
    required = (*entry.request.node_required, Expression(CLUSTER_KEY, "In", wanted))
    return replace(entry, clusters=wanted, request=replace(entry.request, node_required=required))


def _check_groups(entries: Iterable[Entry]) -> None:
    """Refuse groups whose VMs set different values of min_available."""
    first: dict[str, Entry] = {}
    for entry in entries:
        gang = entry.request.gang
        if gang is None:
            continue
        other = first.setdefault(gang.name, entry)
        if other.request.gang != gang:
            raise InvalidRequest(
                f"group.min_available: {_least(entry)} and {_least(other)}, both in group {gang.name!r}; "
                "expected the same for all VMs of a group"
            )


def _check_new_rules(entries: Iterable[Entry]) -> None:
    """Refuse HA rules that VMs of a task would make in different ways."""
    first: dict[str | None, Entry] = {}
    for entry in entries:
        intent = entry.request.ha
        if intent is None or intent.create is None:
            continue
        other = first.setdefault(intent.joins, entry)
        if other.request.ha != replace(intent, state=other.request.ha.state if other.request.ha else None):
            raise InvalidRequest(
                f"ha.create: {entry.label} and {other.label} would make {intent.joins!r} in different ways, expected "
                "the same for all VMs"
            )


def _least(entry: Entry) -> str:
    gang = entry.request.gang
    return f"{gang.min_available if gang and gang.min_available else 'not given'} for {entry.label}"
