# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the source that C(clone) names: the template, or its copies on several nodes, with the volumes to copy."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..engine.cache import ClusterState
from ..engine.texts import known, whole_number
from ..errors import AmbiguousName, InvalidRequest, TemplateNotFound
from ..model import CloneSource, Guest, Request, Template
from ..proxmox.api.reader import Reader
from ..proxmox.inventory.freshness import read_config
from ..proxmox.unfinished import unfinished
from .options.entries import Entry
from .options.sources import Clone
from .sources import check_drives, drives_from, sizes_from


@dataclass(slots=True)
class Templates:
    """The templates of one run. Each config, of a VM or of the snapshot that is cloned, is read only once."""

    reader: Reader
    _configs: dict[tuple[int, str | None], Mapping[str, t.Any]] = field(default_factory=dict)

    def resolve(self, entry: Entry, cluster: ClusterState) -> Request:
        """The entry's request with its clone source, and with the template's sizes where the request sets none: of
        several copies, the largest.

        Raises TemplateNotFound, AmbiguousName, and InvalidRequest for what Proxmox cannot clone, or not in this way.
        """
        clone = entry.clone
        if clone is None:
            return entry.request
        sources = _sources(entry, clone, cluster)
        configs = [self._config(guest, clone.snapname) for guest in sources]
        for guest, config in zip(sources, configs, strict=True):
            _check_source(entry, clone, guest, config)
            check_drives(entry, config, f"a clone of VM {guest.vmid} ({guest.name})")
        templates = tuple(_template(guest, config) for guest, config in zip(sources, configs, strict=True))
        return replace(
            entry.request,
            clone=CloneSource(templates, full=clone.full, storage=clone.storage),
            **sizes_from(entry, configs),
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
    """The guests to clone from, on online nodes: the one with the VMID or name, or templates of one name per node."""
    vms = [guest for guest in cluster if guest.kind == "qemu"]
    vmid = whole_number(clone.source)
    if vmid is not None:
        found = [guest for guest in vms if guest.vmid == vmid]
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
    """Refuse what Proxmox would refuse on any node, and a source that is itself unfinished."""
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


def _template(guest: Guest, config: Mapping[str, t.Any]) -> Template:
    drives = drives_from(config)
    return Template(
        vmid=guest.vmid,
        node=guest.node,
        name=guest.name or str(guest.vmid),
        volumes=drives.volumes,
        copied=drives.cloudinit,
        media=drives.media,
        description=str(config.get("description") or "").rstrip("\n"),
    )
