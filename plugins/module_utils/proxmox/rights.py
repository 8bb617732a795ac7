# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which privileges of Proxmox VE a purpose needs, where, and the commands that grant those that are missing. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .inventory.rows import mark_of
from .options.drives import Drive, Value

CLUSTER, GUESTS, STORAGES, POOLS, MAPPINGS = "/", "/vms", "/storage", "/pool", "/mapping"
BRIDGES = "/sdn/zones/localnetwork"
ABOVE = frozenset({CLUSTER, GUESTS, STORAGES, POOLS, MAPPINGS, BRIDGES})
"""The paths on which a privilege has to be inherited by the paths below."""

PURPOSES: Mapping[str, str] = {
    "connect": "log in",
    "plan": "see nodes, guests and storages, and decide",
    "provision": "create VMs",
    "clone": "clone templates",
    "restore": "restore backups",
    "update": "change VMs",
    "teardown": "remove VMs",
    "addresses": "ask guest agents for addresses",
    "drain": "drain nodes",
    "rebalance": "move guests",
    "ha": "manage HA resources",
    "devices": "pass devices through",
    "ceph": "set flags of Ceph",
}
"""What users do, each with the words of messages."""

_CONFIG: Mapping[str, str] = {
    r"cores|cpu|cpulimit|cpuunits|numa\d*|sockets|vcpus": "VM.Config.CPU",
    r"allow-ksm|balloon|memory|shares": "VM.Config.Memory",
    r"acpi|audio\d+|hotplug|kvm|machine|rng\d+|scsihw|serial\d+|smbios1|tablet|vga|watchdog": "VM.Config.HWType",
    r"net\d+|ipconfig\d+|ci\w+|nameserver|searchdomain|sshkeys": "VM.Config.Network",
    r"(efidisk|ide|sata|scsi|tpmstate|virtio)\d+|boot|bootdisk|vmstatestorage": "VM.Config.Disk",
    r"(hostpci|usb|virtiofs)\d+": "Mapping.Use",
}
"""The privilege that a parameter of a VM needs. All others need VM.Config.Options."""

_OF_EVERY_VM = frozenset({"VM.Config.Options"})
"""Name, notes and tags."""


START = "VM.PowerMgmt"
ALL = frozenset(
    {START, *(f"VM.Config.{part}" for part in ("CDROM", "CPU", "Disk", "HWType", "Memory", "Network", "Options"))}
)
"""What VMs need whose options are not known."""


@dataclass(frozen=True, slots=True)
class Need:
    """A privilege that is needed.

    Attributes:
        anywhere: it is enough to hold it on one of these paths.
        grant: the path on which the command grants it.
        purpose: one of PURPOSES.
    """

    privilege: str
    anywhere: tuple[str, ...]
    grant: str
    purpose: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What VMs need that are to be made, or None in place of those where no list of VMs says it.

    Attributes:
        pools: where they are created, None for outside of any pool, each with the privileges for the options of its VMs
            and to start them.
        storages: those that they name. None among them: any storage for disks will do.
        bridges: those that they name.
        templates: the VMIDs of what they are cloned from.
    """

    pools: Mapping[str | None, frozenset[str]] = field(default_factory=lambda: {None: ALL})
    storages: frozenset[str | None] | None = None
    bridges: frozenset[str] | None = None
    templates: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Visible:
    """What the user sees of the cluster.

    Attributes:
        storages: those for disks. bridges: all of them, with the zone of each. templates: their VMIDs.
    """

    nodes: tuple[str, ...] = ()
    storages: tuple[str, ...] = ()
    bridges: Mapping[str, str] = field(default_factory=dict)
    templates: tuple[int, ...] = ()
    modern: bool = True

    def bridge(self, name: str) -> str:
        """Return the path of a bridge or VNet."""
        return f"/sdn/zones/{self.bridges.get(name, 'localnetwork')}/{name}"


def privileges_for(options: Mapping[str, Value], *, exists: bool) -> frozenset[str]:
    """Return the privileges that setting these options of a request needs, apart from those on storages and bridges.

    exists: whether the VM exists, perhaps as a clone. The drives of a new one need privileges on storages only.
    """
    set_here = {name: value for name, value in options.items() if exists or not isinstance(value, Drive)}
    return _OF_EVERY_VM | {_privilege(name, value) for name, value in set_here.items()}


def _privilege(name: str, value: Value) -> str:
    if isinstance(value, Drive) and value.cdrom:
        return "VM.Config.CDROM"
    return next((held for pattern, held in _CONFIG.items() if re.fullmatch(pattern, name)), "VM.Config.Options")


def needs_of(purposes: Iterable[str], wanted: Wanted, seen: Visible) -> list[Need]:
    """Return what these purposes need on the cluster, each privilege on each path once."""
    found: dict[tuple[str, str], Need] = {}
    for purpose in ("plan", *purposes):
        for privilege, anywhere, grant in _NEEDS[purpose](wanted, seen):
            found.setdefault((privilege, grant), Need(privilege, anywhere, grant, purpose))
    return list(found.values())


_Found = Iterator[tuple[str, tuple[str, ...], str]]


def _plan(_wanted: Wanted, seen: Visible) -> _Found:
    yield "Sys.Audit", (CLUSTER,), CLUSTER
    yield "VM.Audit", (GUESTS,), GUESTS
    yield "Datastore.Audit", (*(f"{STORAGES}/{name}" for name in seen.storages), STORAGES), STORAGES


def _provision(wanted: Wanted, seen: Visible) -> _Found:
    """Yield the privileges for creating these VMs, each with the paths of which one suffices and the one to name."""
    for pool, config in sorted(wanted.pools.items(), key=str):
        places = (GUESTS,) if pool is None else (f"{POOLS}/{pool}", GUESTS)
        for privilege in sorted({"VM.Allocate", *config} - {"Mapping.Use"}):
            yield privilege, places, places[0]
    if any("Mapping.Use" in config for config in wanted.pools.values()):
        yield from _devices(wanted, seen)
    yield from _space(wanted, seen)
    yield from _bridges(wanted, seen)


def _space(wanted: Wanted, seen: Visible) -> _Found:
    """Yield the privileges for allocating disks."""
    for storage in sorted({None} if wanted.storages is None else wanted.storages, key=str):
        if storage is None:
            yield "Datastore.AllocateSpace", (*(f"{STORAGES}/{each}" for each in seen.storages), STORAGES), STORAGES
        else:
            for privilege in ("Datastore.AllocateSpace", "Datastore.Audit"):
                yield privilege, (f"{STORAGES}/{storage}",), f"{STORAGES}/{storage}"


def _bridges(wanted: Wanted, seen: Visible) -> _Found:
    if wanted.bridges is None:
        yield "SDN.Use", (*map(seen.bridge, seen.bridges), BRIDGES), BRIDGES
    for bridge in sorted(wanted.bridges or ()):
        yield "SDN.Use", (seen.bridge(bridge),), seen.bridge(bridge)


def _clone(wanted: Wanted, seen: Visible) -> _Found:
    if wanted.templates is None:
        yield "VM.Clone", (*(f"{GUESTS}/{vmid}" for vmid in seen.templates), GUESTS), GUESTS
    for vmid in sorted(wanted.templates or ()):
        for privilege in ("VM.Audit", "VM.Clone"):
            yield privilege, (f"{GUESTS}/{vmid}",), f"{GUESTS}/{vmid}"


def _restore(wanted: Wanted, seen: Visible) -> _Found:
    yield "VM.Backup", (GUESTS,), GUESTS
    yield from _space(wanted, seen)


def _teardown(wanted: Wanted, _seen: Visible) -> _Found:
    for pool in sorted(wanted.pools, key=str):
        places = (GUESTS,) if pool is None else (f"{POOLS}/{pool}", GUESTS)
        yield "VM.Allocate", places, places[0]
        yield START, places, places[0]


def _addresses(_wanted: Wanted, seen: Visible) -> _Found:
    yield "VM.GuestAgent.Audit" if seen.modern else "VM.Monitor", (GUESTS,), GUESTS


def _drain(_wanted: Wanted, seen: Visible) -> _Found:
    yield "VM.Migrate", (GUESTS,), GUESTS
    for node in seen.nodes:
        for privilege in ("Pool.Allocate", "Pool.Audit"):
            yield privilege, (f"{POOLS}/{mark_of(node)}",), POOLS


def _rebalance(_wanted: Wanted, _seen: Visible) -> _Found:
    yield "VM.Migrate", (GUESTS,), GUESTS


def _ha(_wanted: Wanted, _seen: Visible) -> _Found:
    yield "Sys.Console", (CLUSTER,), CLUSTER


def _devices(_wanted: Wanted, _seen: Visible) -> _Found:
    yield "Mapping.Use", (MAPPINGS,), MAPPINGS


def _ceph(_wanted: Wanted, _seen: Visible) -> _Found:
    yield "Sys.Modify", (CLUSTER,), CLUSTER


_NEEDS: Mapping[str, Callable[[Wanted, Visible], _Found]] = {
    "connect": lambda _wanted, _seen: iter(()),
    "plan": _plan,
    "provision": _provision,
    "clone": _clone,
    "restore": _restore,
    "update": _provision,
    "teardown": _teardown,
    "addresses": _addresses,
    "drain": _drain,
    "rebalance": _rebalance,
    "ha": _ha,
    "devices": _devices,
    "ceph": _ceph,
}


Held = Callable[[str], Mapping[str, object]]
"""Returns the privileges on a path, each with whether the paths below inherit it."""


def is_met(need: Need, held: Held) -> bool:
    """Whether a user with these privileges has what is needed."""
    return any(
        held(path).get(need.privilege) if path in ABOVE else need.privilege in held(path) for path in need.anywhere
    )


@dataclass(frozen=True, slots=True)
class Holder:
    """A user or a token, with what it holds and what it lacks. option is that of C(pveum) which names it."""

    option: str
    name: str
    held: Held
    missing: Sequence[Need]


_OF_PATH: Mapping[str, tuple[str, ...]] = {
    "vms": ("VM.",),
    "storage": ("Datastore.",),
    "pool": ("Pool.", "VM.", "Datastore."),
    "sdn": ("SDN.",),
    "mapping": ("Mapping.",),
}
"""The privileges that Proxmox VE looks for on paths, by their first part."""


def commands_for(holders: Iterable[Holder], roles: Collection[str]) -> list[str]:
    """Return the commands for a node that grant to each holder what it lacks, and take nothing away.

    An entry on a path replaces what the holder inherits there from the paths above. So the roles have that as well.
    roles are those that exist, as far as that is known: a new role gets a name of its own.
    """
    made: dict[tuple[str, frozenset[str]], str] = {}
    commands = []
    for holder in holders:
        for path, privileges in _grants(holder).items():
            role = made.get((path, privileges))
            if role is None:
                role = made[path, privileges] = _free_name(path, {*roles, *made.values()})
                commands.append(f"pveum role add {role} --privs {shlex.quote(' '.join(sorted(privileges)))}")
            commands.append(
                f"pveum acl modify {shlex.quote(path)} {holder.option} {shlex.quote(holder.name)} --roles {role}"
            )
    return commands


def _grants(holder: Holder) -> dict[str, frozenset[str]]:
    """Return the privileges that the new entry on each path has, the paths above first."""
    found: dict[str, frozenset[str]] = {}
    for path in sorted({need.grant for need in holder.missing}):
        lacking = {need.privilege for need in holder.missing if need.grant == path}
        above = {p for other, held in found.items() if path.startswith(f"{other.rstrip('/')}/") for p in held}
        # Both are what the path inherits or has.
        found[path] = frozenset(lacking | {p for p in {*holder.held(path), *above} if _counts(p, path)})
    return found


def _counts(privilege: str, path: str) -> bool:
    kinds = _OF_PATH.get(path.split("/")[1])
    return kinds is None or privilege.startswith((*kinds, "Permissions."))


def _free_name(path: str, taken: Collection[str]) -> str:
    """Return a name for a role that is not taken."""
    words = re.findall(r"[A-Za-z0-9]+", path)
    name = "Scheduler-" + ("-".join(words) or "cluster")[:60]
    numbers = (f"{name}-{number}" for number in range(2, 10_000))
    return name if name not in taken else next(each for each in numbers if each not in taken)
