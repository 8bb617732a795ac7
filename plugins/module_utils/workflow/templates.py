# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finding what C(clone) means in the cluster:

the template, or its copies on several nodes, with the volumes to copy.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..errors import AmbiguousName, TemplateNotFound
from ..model import MIB, CloneSource, Guest, Request, Template
from ..proxmox.freshness import read_config
from ..proxmox.options.drives import is_cloudinit
from ..proxmox.options.values import size_in_config
from ..proxmox.reader import Reader
from .entries import Clone, Entry

_DRIVE = re.compile(r"(?:ide|sata|scsi|virtio)\d+|efidisk0|tpmstate0")


@dataclass(slots=True)
class Templates:
    """The templates of one run; each config is read once.

    Attributes:
        configs: the config of each template that was looked at, by VMID.
    """

    reader: Reader
    configs: dict[int, Mapping[str, t.Any]]

    def resolve(self, entry: Entry, guests: Iterable[Guest]) -> Request:
        """The entry's request with its clone source, and the template's sizes where the request gives none.

        Raises TemplateNotFound, AmbiguousName.
        """
        clone = entry.clone
        if clone is None:
            return entry.request
        sources = _sources(entry, clone, guests)
        templates = tuple(_template(guest, self._config(guest)) for guest in sources)
        config = self._config(sources[0])
        given = entry.given
        cores = entry.request.cores
        if not given & {"cores", "sockets", "vcpus"}:
            cores = float(config.get("vcpus") or int(config.get("cores") or 1) * int(config.get("sockets") or 1))
        memory = entry.request.memory if "memory" in given else int(str(config.get("memory") or 512)) * MIB
        return replace(
            entry.request,
            clone=CloneSource(templates, full=clone.full, storage=clone.storage),
            cores=cores,
            memory=memory,
        )

    def _config(self, guest: Guest) -> Mapping[str, t.Any]:
        if guest.vmid not in self.configs:
            config = read_config(self.reader, guest.node, guest.vmid)
            if config is None:
                raise TemplateNotFound(f"clone: VM {guest.vmid} is not on node {guest.node} any more")
            self.configs[guest.vmid] = config
        return self.configs[guest.vmid]


def _sources(entry: Entry, clone: Clone, guests: Iterable[Guest]) -> list[Guest]:
    """The guests to clone from: one by VMID; by name one, or templates of that name on different nodes."""
    vms = [guest for guest in guests if guest.kind == "qemu"]
    if clone.source.isdecimal():
        found = [guest for guest in vms if guest.vmid == int(clone.source)]
    else:
        found = sorted((guest for guest in vms if guest.name == clone.source), key=lambda guest: guest.vmid)
    if not found:
        raise TemplateNotFound(
            f"clone: no VM {clone.source!r} is there, or this user may not see it, for {entry.label}"
        )
    nodes = {guest.node for guest in found}
    if len(found) > 1 and (len(nodes) < len(found) or not all(guest.template for guest in found)):
        listed = ", ".join(f"{guest.vmid} on {guest.node}" for guest in found)
        raise AmbiguousName(
            f"clone: {len(found)} guests are named {clone.source!r} ({listed}); "
            f"expected one, or one template per node, for {entry.label}"
        )
    return found


def _template(guest: Guest, config: Mapping[str, t.Any]) -> Template:
    volumes = []
    for slot, value in sorted(config.items()):
        if not _DRIVE.fullmatch(slot):
            continue
        volume, _separator, rest = str(value).partition(",")
        storage, separator, _name = volume.partition(":")
        options = dict(part.partition("=")[::2] for part in rest.split(","))
        if separator and not (options.get("media") == "cdrom" and not is_cloudinit(volume)):
            volumes.append((slot, storage, size_in_config(options.get("size", "")) or 0))
    return Template(
        vmid=guest.vmid,
        node=guest.node,
        name=guest.name or str(guest.vmid),
        is_template=guest.template,
        running=guest.running,
        volumes=tuple(volumes),
    )
