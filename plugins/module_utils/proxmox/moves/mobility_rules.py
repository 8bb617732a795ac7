# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives from Proxmox's data how a guest can be moved, or why it cannot and what would change that. Pure."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ...engine.standing_rules import ignoring_tag
from ...engine.texts import join_words
from ...model import NO_DEMANDS, Demands, Guest
from ...plans import API, HA, LIVE, OFFLINE, RESTART, LocalDisk, Mobility
from ..contract import NOT_ALLOWED, unknown_in
from ..options.drives import SMALL_VOLUME, is_cloudinit
from ..options.values import size_in_config
from .checks import allowed_nodes, refusals_in, unknown_in_check
from .demands import OF_ITS_NODE, demands_of, of_another_machine, with_lesser_processors, without_bridges
from .mobility_ha import Cause, Surroundings, against_ha, cure_of_ha, obstacle_of_ha, together_with, via_of

_VOLUME_KEY = re.compile(r"(?:ide|sata|scsi|virtio|efidisk|tpmstate|unused|mp)\d+|rootfs")
_LINKED_CLONE = re.compile(r":(?:\d+/)?base-\d+-disk-[^/]+/")
_SIZE = re.compile(r",size=([^,]+)")
_MOVES_SNAPSHOTS = frozenset({"zfspool", "btrfs"})
"""Types of storages whose volumes keep their snapshots when they are copied; so do qcow2 images everywhere."""

_NOT_WHILE_RUNNING: Mapping[str, str] = {
    "amd-sev": "encrypted memory (amd-sev)",
    "clipboard=vnc": "the VNC clipboard",
    "intel-tdx": "encrypted memory (intel-tdx)",
    "virtiofs": "shared directories (virtiofs)",
}
"""What Proxmox names among the devices of a node while a VM runs, each with its description."""

_MOUNT = "lxc.mount.entry"
_ON_EVERY_NODE = frozenset({
    "/dev/fuse", "/dev/kvm", "/dev/loop-control", "/dev/net", "/dev/net/tun", "/dev/null", "/dev/ppp", "/dev/random",
    "/dev/urandom", "/dev/vhost-net", "/dev/zero",
})  # fmt: skip
"""Devices of the kernel that no hardware stands behind."""

MOVE_OFF = "shut it down, and it can be moved, or permit that (vms_not_live: restart)"
OF_LESSER_PROCESSORS = f"{MOVE_OFF}; or give it a CPU type that all nodes can run"

Refusals = Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Permitted:
    """Which moves the user allows besides those of running VMs on shared storage.

    Attributes:
        offline: whether guests that are off may be moved.
        restart: whether running containers may be stopped, moved and started again.
        restart_vms: whether running VMs that cannot move live may.
        local_disks: whether local disks may be copied.
        tag_rules: whether a tag can prevent moves of a guest.
    """

    offline: bool = True
    restart: bool = False
    restart_vms: bool = False
    local_disks: bool = True
    tag_rules: bool = True


def stuck(why: str, cure: str) -> Mobility:
    """Return the mobility of a guest that cannot be moved."""
    return Mobility(stuck=(why, cure))


def vm_mobility(
    guest: Guest,
    check: Mapping[str, t.Any],
    config: Mapping[str, t.Any],
    around: Surroundings,
    permitted: Permitted,
    linked: frozenset[str] = frozenset(),
) -> Mobility:
    """Return how a VM can be moved.

    check is the answer of C(GET .../migrate); linked are the VM's volumes from which others are cloned.
    """
    running = bool(check.get("running"))
    found = _vm_mobility(guest, check, config, around, permitted, linked, running)
    if not (running and permitted.restart_vms and via_of(guest) == API):
        return found
    off = _vm_mobility(guest, check, config, around, replace(permitted, offline=True), linked, running=False)
    if off.stuck[0]:
        return found
    if found.stuck[0]:
        return replace(off, how=RESTART)
    return replace(found, not_to=off.not_to, restart_to=frozenset(found.not_to.keys() - off.not_to.keys()))


def _vm_mobility(
    guest: Guest,
    check: Mapping[str, t.Any],
    config: Mapping[str, t.Any],
    around: Surroundings,
    permitted: Permitted,
    linked: frozenset[str],
    running: bool,
) -> Mobility:
    """Return how a VM can be moved that runs, or if it did not run."""
    via = via_of(guest)
    disks = tuple(_local_disks(check, config))
    why = (
        _tag_cause(guest, permitted)
        or obstacle_of_ha(guest, around)
        or unknown_in_check(check, guest.kind)
        or _device_cause(check, running)
        or _volume_cause(guest, check, around, running, linked)
        or _cause_not_permitted(running, disks, permitted)
    )
    if why is not None:
        return stuck(*why)
    mapped = {disk.storage for disk in disks} if via == API else set()
    demands = demands_of(config, guest.kind, live=running)
    sees_cpu = running and demands.cpu_type in OF_ITS_NODE
    lesser = dict(with_lesser_processors(demands, guest, around)) if sees_cpu else {}
    replicated = running and guest.vmid in around.replicated and (via == API or _has_snapshots(check))
    refusals = (
        _refused_nodes(check, mapped, guest, around),
        without_bridges(demands, guest, around),
        of_another_machine(guest, around),
        lesser.items(),
        _nodes_without_replica(guest, around) if replicated else (),
    )
    mobility = _mobility(guest, around, LIVE if running else OFFLINE, disks, refusals, check, demands)
    return replace(mobility, cure=OF_LESSER_PROCESSORS) if lesser and not mobility.cure else mobility


def container_mobility(
    guest: Guest,
    check: Mapping[str, t.Any],
    config: Mapping[str, t.Any],
    around: Surroundings,
    permitted: Permitted,
) -> Mobility:
    """Return how a container can be moved. Proxmox itself checks little of this, and before 9 nothing."""
    running, disks = guest.running, tuple(_disks_of_container(config, around))
    why = (
        _tag_cause(guest, permitted)
        or obstacle_of_ha(guest, around)
        or unknown_in_check(check, guest.kind)
        or _bind_mount_cause(config)
        or _container_device_cause(config)
        or _container_snapshot_cause(config, disks, around)
        or _restart_cause(running, permitted)
        or _cause_not_permitted(running, disks, permitted)
    )
    if why is not None:
        return stuck(*why)
    demands = demands_of(config, guest.kind)
    refusals = (
        _refused_nodes(check, set(), guest, around),
        without_bridges(demands, guest, around),
        of_another_machine(guest, around),
    )
    return _mobility(guest, around, RESTART if running else OFFLINE, disks, refusals, check, demands)


def presume(guest: Guest, around: Surroundings, permitted: Permitted) -> Mobility:
    """Return how a guest can be moved as far as the cluster's list shows, which has no local disks and devices."""
    container = guest.kind == "lxc"
    why = (
        _tag_cause(guest, permitted)
        or obstacle_of_ha(guest, around)
        or (_restart_cause(guest.running, permitted) if container else None)
        or _cause_not_permitted(guest.running, (), permitted)
        or offline_cause(guest, around)
    )
    if why is not None:
        return stuck(*why)
    return _mobility(guest, around, OFFLINE if not guest.running else RESTART if container else LIVE)


def _mobility(
    guest: Guest,
    around: Surroundings,
    how: str,
    disks: tuple[LocalDisk, ...] = (),
    refusals: Iterable[Refusals] = (),
    check: Mapping[str, t.Any] | None = None,
    demands: Demands = NO_DEMANDS,
) -> Mobility:
    """Return how a guest can be moved that is not stuck. refusals are the nodes that cannot take it, besides those that
    HA rules exclude.
    """
    via, targets = via_of(guest), around.replicated.get(guest.vmid, frozenset())
    by_ha = via == HA
    return Mobility(
        how=how,
        via=via,
        disks=disks,
        not_to=_join(*refusals, against_ha(guest, around)),
        cure=cure_of_ha(guest, around) if by_ha else "",
        together=together_with(guest, check or {}, around) if by_ha else frozenset(),
        replicated_to=targets,
        cost=(guest.memory if how == LIVE else 0) + (0 if targets else sum(disk.size for disk in disks)),
        map_storages=via == API,
        demands=demands,
    )


def storage_of(volume: str) -> str:
    """Return the storage of a volume."""
    return volume.partition(":")[0]


# --- why a guest cannot be moved ---


def offline_cause(guest: Guest, around: Surroundings) -> Cause | None:
    """Return why a guest on a node that is offline cannot be moved."""
    return (f"its node {guest.node} is offline", "bring the node back") if guest.node in around.offline else None


def _tag_cause(guest: Guest, permitted: Permitted) -> Cause | None:
    tag = ignoring_tag(guest.tags) if permitted.tag_rules else None
    return None if tag is None else (f"its tag {tag} keeps it where it is", f"remove the tag {tag}, or move it by hand")


def _device_cause(check: Mapping[str, t.Any], running: bool) -> Cause | None:
    """Return the device that keeps a guest on its node, if there is one, and the remedy."""
    info: Mapping[str, t.Any] = check.get("mapped-resource-info") or {}
    # Proxmox also names mapped USB devices and directories as local ones.
    named = sorted(set(check.get("local_resources") or ()) - info.keys())
    local = [each for each in named if each not in _NOT_WHILE_RUNNING]
    if local:
        return f"it uses devices of its node: {join_words(local)}", f"remove {join_words(local)}, or use mapped devices"
    if running and named:
        return f"it runs with {_NOT_WHILE_RUNNING[named[0]]}", MOVE_OFF
    fixed = sorted(key for key, mapping in info.items() if not mapping.get("live-migration"))
    if running and fixed:
        what = join_words(fixed)
        return f"it runs with mapped devices that cannot move live: {what}", MOVE_OFF
    return None


def _volume_cause(
    guest: Guest, check: Mapping[str, t.Any], around: Surroundings, running: bool, linked: frozenset[str]
) -> Cause | None:
    """Return the volume that keeps a guest on its node, if there is one, and the remedy."""
    for row in check.get("local_disks") or ():
        volume, slot = str(row.get("volid", "")), row.get("drivename") or "a volume"
        if row.get("cdrom") and not is_cloudinit(volume):
            return _image_cause(row, volume)
        if _LINKED_CLONE.search(volume):
            return f"{slot} is a linked clone on the local storage {storage_of(volume)}", (
                f"move {slot} to a shared storage, or clone the VM in full"
            )
        if volume in linked:
            return f"{slot} on the local storage {storage_of(volume)} has linked clones", (
                "remove the linked clones, or keep the template on a shared storage"
            )
        if row.get("referenced_in_snapshot"):
            moves = around.types.get(storage_of(volume)) in _MOVES_SNAPSHOTS or volume.endswith(".qcow2")
            # A replica has the snapshots already.
            if (running and not (row.get("replicate") and around.replicated.get(guest.vmid))) or not moves:
                names = join_words(sorted(row["referenced_in_snapshot"]))
                return f"{slot} on the local storage {storage_of(volume)} has snapshots: {names}", (
                    "remove the snapshots" + (", or shut it down" if moves else "")
                )
    return None


def _has_snapshots(check: Mapping[str, t.Any]) -> bool:
    """Whether snapshots hold local volumes: of a running VM, only replicas of these can be used, by the HA manager,
    too.
    """
    return any(row.get("referenced_in_snapshot") for row in check.get("local_disks") or ())


def _image_cause(row: Mapping[str, t.Any], volume: str) -> Cause:
    """Return why an image on a local storage keeps a VM. A drive can be emptied, a snapshot that holds it cannot."""
    slot, snapshots = row.get("drivename"), sorted(row.get("referenced_in_snapshot") or ())
    cures = [f"eject it: set {slot} to none,media=cdrom"] if slot else []
    cures += [f"remove the snapshots that hold it: {join_words(snapshots)}"] if snapshots else []
    holders = [slot] if slot else []
    holders += [f"snapshot {name}" for name in snapshots]
    verb = "hold" if len(holders) > 1 else "holds"
    why = f"{join_words(holders or ['a drive'])} {verb} the image {volume}, which is on a local storage"
    return why, "; ".join(cures or ["eject it"])


def _cause_not_permitted(running: bool, disks: tuple[LocalDisk, ...], permitted: Permitted) -> Cause | None:
    """Return which kind of move the task does not permit, and the option that does."""
    if not running and not permitted.offline:
        return "it is off, and moves of guests that are off are not permitted", "permit offline moves (offline: true)"
    if disks and not permitted.local_disks:
        slots = join_words(sorted(disk.slot for disk in disks))
        return (
            f"{slots} would have to be copied, which is not permitted",
            "permit the copying of local disks (local_disks: true)",
        )
    return None


def _bind_mount_cause(config: Mapping[str, t.Any]) -> Cause | None:
    for key, value in sorted(config.items()):
        local = str(value).startswith("/") and not re.search(r"(?:^|,)shared=1", str(value))
        if re.fullmatch(r"mp\d+", key) and local:
            return f"{key} mounts {str(value).partition(',')[0]} of its node", f"remove {key}, or mark it as shared"
    return None


def _container_device_cause(config: Mapping[str, t.Any]) -> Cause | None:
    """Return what a container uses of its node besides mount points. Proxmox checks none of it: where it is missing,
    the container does not start.
    """
    used = [(key, str(value)) for key, value in sorted(config.items()) if re.fullmatch(r"dev\d+", key)]
    rows = config.get("lxc")
    raw = [row for row in rows if isinstance(row, list) and row[:1] == [_MOUNT]] if isinstance(rows, list) else []
    used += [(_MOUNT, str(row[-1]).strip()) for row in raw]
    for key, value in used:
        path = re.split(r"[,\s]", value.removeprefix("path="), maxsplit=1)[0]
        if path.startswith("/") and path not in _ON_EVERY_NODE:
            return f"{key} gives it {path} of its node", f"remove {key}, or move it by hand"
    return None


def _container_snapshot_cause(
    config: Mapping[str, t.Any], disks: tuple[LocalDisk, ...], around: Surroundings
) -> Cause | None:
    """Return the snapshots that keep a container on its node, if there are any, and the remedy."""
    fixed = sorted(disk.slot for disk in disks if around.types.get(disk.storage) not in _MOVES_SNAPSHOTS)
    if config.get("parent") and fixed:
        return f"it has snapshots, and {join_words(fixed)} on a local storage", "remove the snapshots"
    return None


def _restart_cause(running: bool, permitted: Permitted) -> Cause | None:
    """Return why a running container is not moved, if restarts are not permitted, and the remedy."""
    if running and not permitted.restart:
        return (
            "it is a running container, which moves only by being restarted",
            "permit restarts of containers (containers: restart)",
        )
    return None


# --- what has to be copied ---


def _local_disks(check: Mapping[str, t.Any], config: Mapping[str, t.Any]) -> Iterator[LocalDisk]:
    """Yield the disks that a move of a VM copies, by its own check."""
    slots = {str(value).partition(",")[0]: key for key, value in config.items() if _VOLUME_KEY.fullmatch(key)}
    for row in check.get("local_disks") or ():
        volume = str(row.get("volid", ""))
        size = SMALL_VOLUME if is_cloudinit(volume) else row.get("size") or 0
        slot = str(row.get("drivename") or slots.get(volume, volume))
        yield LocalDisk(slot, storage_of(volume), size)


def _disks_of_container(config: Mapping[str, t.Any], around: Surroundings) -> Iterator[LocalDisk]:
    """Yield the disks that a move of a container copies: Proxmox VE has no check that names them."""
    for key, value in sorted(config.items()):
        volume = str(value).partition(",")[0]
        storage = storage_of(volume)
        if re.fullmatch(r"rootfs|(?:mp|unused)\d+", key) and ":" in volume and storage not in around.shared:
            size = _SIZE.search(str(value))
            yield LocalDisk(key, storage, (size_in_config(size[1]) or 0) if size else 0, "rootdir")


# --- where a guest cannot go ---


def _join(*refusals: Refusals) -> dict[str, str]:
    """Return the first reason for each node."""
    found: dict[str, str] = {}
    for node, reason in (pair for pairs in refusals for pair in pairs):
        found.setdefault(node, reason)
    return found


def _refused_nodes(
    check: Mapping[str, t.Any], mapped: set[str], guest: Guest, around: Surroundings
) -> Iterator[tuple[str, str]]:
    """Yield the nodes that Proxmox's check refuses. mapped are storages whose volumes may go to other storages."""
    told = refusals_in(check)
    for node, reasons in told.items():
        storages = sorted(set(reasons.get("unavailable_storages") or ()) - mapped)
        devices = sorted(reasons.get("unavailable-resources") or ())
        if storages:
            yield node, f"lacked the storage {join_words(storages)}"
        causes = {str(each.get("cause")) for each in reasons.get("blocking-ha-resources") or ()}
        # The engine knows where other guests of a resource-affinity rule are, and may move these first.
        if causes - {"resource-affinity"}:
            yield node, f"were refused by the HA manager because of {join_words(sorted(causes))}"
        if devices:
            yield node, f"lacked the mapped devices of {join_words(devices)}"
        if unknown := unknown_in(reasons, NOT_ALLOWED):
            yield node, f"were refused by Proxmox VE for a reason that this version does not know, {unknown}"
    allowed = allowed_nodes(check)
    if allowed is not None:
        for node in around.nodes.keys() - told.keys() - {*allowed} - {guest.node}:
            yield node, "were not among the nodes that Proxmox VE allows"


def _nodes_without_replica(guest: Guest, around: Surroundings) -> Iterator[tuple[str, str]]:
    for node in around.nodes.keys() - around.replicated[guest.vmid]:
        yield node, "were no replication targets of the VM"
