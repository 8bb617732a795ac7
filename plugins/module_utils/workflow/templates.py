# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finding what C(clone) means in the cluster:

the template, or its copies on several nodes, with the volumes to copy.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..engine.cache import ClusterState
from ..engine.texts import known
from ..errors import AmbiguousName, InvalidRequest, TemplateNotFound
from ..model import MIB, CloneSource, Guest, Request, Template
from ..proxmox.freshness import read_config
from ..proxmox.options.drive_changes import compare_drive
from ..proxmox.options.drives import SIZE_EXPECTED, SMALL_VOLUME, Drive, is_cloudinit
from ..proxmox.options.request import drives_of, pluggable_vcpus
from ..proxmox.options.values import size_in_config
from ..proxmox.reader import Reader
from ..proxmox.unfinished import unfinished
from .entries import Clone, Entry

_DRIVE = re.compile(r"(?:ide|sata|scsi|virtio)\d+|efidisk0|tpmstate0")
_CPU_OPTIONS = frozenset({"cores", "sockets", "vcpus"})


@dataclass(slots=True)
class Templates:
    """The templates of one run; each config, of the VM or of the snapshot that is cloned, is read once."""

    reader: Reader
    _configs: dict[tuple[int, str | None], Mapping[str, t.Any]] = field(default_factory=dict)

    def resolve(self, entry: Entry, cluster: ClusterState) -> Request:
        """The entry's request with its clone source, and the template's sizes where the request gives none: of several
        copies the largest.

        Raises TemplateNotFound, AmbiguousName, and InvalidRequest for what Proxmox cannot clone, or not like this.
        """
        clone = entry.clone
        if clone is None:
            return entry.request
        sources = _sources(entry, clone, cluster)
        configs = [self._config(guest, clone.snapname) for guest in sources]
        for guest, config in zip(sources, configs, strict=True):
            _check_source(entry, clone, guest, config)
            _check_drives(entry, guest, config)
        given = entry.given
        own = {key: entry.request.options[key] for key in _CPU_OPTIONS & given}
        sizes = [{**config, **own} for config in configs]
        memory = entry.request.memory
        if "memory" not in given:
            memory = max((config.get("memory") or 512) * MIB for config in configs)
        templates = tuple(_template(guest, config) for guest, config in zip(sources, configs, strict=True))
        return replace(
            entry.request,
            clone=CloneSource(templates, full=clone.full, storage=clone.storage),
            cores=max(float(size.get("vcpus") or pluggable_vcpus(size)) for size in sizes),
            cores_max=max(map(pluggable_vcpus, sizes)),
            memory=memory,
        )

    def _config(self, guest: Guest, snapshot: str | None) -> Mapping[str, t.Any]:
        key = guest.vmid, snapshot
        if key not in self._configs:
            config = read_config(self.reader, guest.node, guest.vmid, snapshot)
            if config is None:
                raise TemplateNotFound(f"clone: VM {guest.vmid} is no longer on node {guest.node}")
            self._configs[key] = config
        return self._configs[key]


def _sources(entry: Entry, clone: Clone, cluster: ClusterState) -> list[Guest]:
    """The guests to clone from, on nodes that are online: one by VMID; by name one, or templates of that name on
    different nodes.
    """
    vms = [guest for guest in cluster if guest.kind == "qemu"]
    if clone.source.isdecimal():
        found = [guest for guest in vms if guest.vmid == int(clone.source)]
    else:
        found = sorted((guest for guest in vms if guest.name == clone.source), key=lambda guest: guest.vmid)
    if not found:
        templates = known((guest.name for guest in vms if guest.template and guest.name), clone.source)
        raise TemplateNotFound(
            f"clone: no VM {clone.source!r} exists, or this user cannot see it, for {entry.label}; "
            f"known templates: {templates}"
        )
    nodes = {guest.node for guest in found}
    if len(found) > 1 and (len(nodes) < len(found) or not all(guest.template for guest in found)):
        listed = ", ".join(f"{guest.vmid} on {guest.node}" for guest in found)
        raise AmbiguousName(
            f"clone: {len(found)} guests are named {clone.source!r} ({listed}); "
            f"expected one, or one template per node, for {entry.label}"
        )
    online = [guest for guest in found if (info := cluster.node(guest.node)) is not None and info.node.online]
    if not online:
        raise TemplateNotFound(
            f"clone: {_listed(found)}, which {'is' if len(nodes) == 1 else 'are'} offline, for {entry.label}"
        )
    return online


def _listed(guests: Sequence[Guest]) -> str:
    return ", ".join(f"VM {guest.vmid} ({guest.name}) is on {guest.node}" for guest in guests)


def _check_source(entry: Entry, clone: Clone, guest: Guest, config: Mapping[str, t.Any]) -> None:
    """Refuse what Proxmox would refuse whatever the node, and a source that is itself unfinished."""
    if unfinished(config) is not None:
        raise InvalidRequest(
            f"clone: VM {guest.vmid} ({guest.name}) is not finished, as its description says: run the task that "
            f"creates it again, or remove that line, for {entry.label}",
            option="clone",
        )
    # The cluster's list shows late that a VM has become a template.
    is_template = guest.template or config.get("template")
    if not clone.full and not is_template and clone.snapname is None:
        raise InvalidRequest(
            f"full: VM {guest.vmid} ({guest.name}) is not a template, and Proxmox makes linked clones of templates and "
            f"of snapshots only, for {entry.label}",
            option="full",
        )
    if guest.status == "running" and "tpmstate0" in config and clone.snapname is None:
        raise InvalidRequest(
            f"clone: VM {guest.vmid} ({guest.name}) is running, and Proxmox does not copy a TPM state that is in use, "
            f"for {entry.label}",
            option="clone",
        )


def _check_drives(entry: Entry, guest: Guest, config: Mapping[str, t.Any]) -> None:
    """Refuse drives that the clone would not get, as their slots hold other or larger ones of the template."""
    for slot, drive in drives_of(entry.request.options).items():
        reasons = _obstacles(drive, config.get(slot))
        if reasons:
            raise InvalidRequest(
                f"{slot}: is not possible in a clone of VM {guest.vmid} ({guest.name}): {'; '.join(reasons)}",
                option=slot,
            )


def _obstacles(drive: Drive, current: t.Any) -> Sequence[str]:
    """Why a drive cannot be had in the clone of a VM that has current in its slot. On which storage is not asked here:
    the scheduler knows where each is made.
    """
    if current is None:
        return [f"it has none, and a new one needs {SIZE_EXPECTED}"] if drive.unsized else []
    change = compare_drive(replace(drive, storage=None), str(current), "any")
    if change is not None and change.reasons:
        return change.reasons
    return ["the template already has this disk, and import-from is for new disks"] if drive.source is not None else []


def _template(guest: Guest, config: Mapping[str, t.Any]) -> Template:
    volumes: list[tuple[str, str, int]] = []
    copied: list[str] = []
    media: list[tuple[str, str]] = []
    for slot, value in sorted(config.items()):
        if not _DRIVE.fullmatch(slot):
            continue
        volume, _separator, rest = str(value).partition(",")
        storage, separator, _name = volume.partition(":")
        options = dict(part.partition("=")[::2] for part in rest.split(","))
        size = size_in_config(options.get("size", "")) or 0
        if not separator:
            continue
        if is_cloudinit(volume):
            volumes.append((slot, storage, max(size, SMALL_VOLUME)))
            copied.append(slot)
        elif options.get("media") == "cdrom":
            media.append((slot, storage))
        else:
            volumes.append((slot, storage, size))
    return Template(
        vmid=guest.vmid,
        node=guest.node,
        name=guest.name or str(guest.vmid),
        volumes=tuple(volumes),
        copied=frozenset(copied),
        media=tuple(media),
        description=str(config.get("description") or "").rstrip("\n"),
    )
