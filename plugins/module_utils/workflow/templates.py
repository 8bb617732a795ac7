# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the source that C(clone) names: the template, or its copies on several nodes, with the volumes to copy."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..engine.cache import ClusterState, assumed_guest
from ..engine.texts import known_names
from ..errors import AmbiguousName, CollectionError, InvalidRequest, TemplateNotFound
from ..model import GIB, CloneSource, Decision, Guest, Identity, Request, Template
from ..proxmox.api.reader import Reader
from ..proxmox.identity import identity_of
from ..proxmox.inventory.freshness import read_config
from ..proxmox.options.contradictions import check_new, config_with
from ..proxmox.options.request import traits_of
from ..proxmox.unfinished import read_mark
from .existing.matching import is_silent
from .options.entries import Entry
from .options.source_options import Clone
from .own_templates import foretold_config
from .sources import check_options, drives_from, sizes_from


@dataclass(slots=True)
class Templates:
    """The templates of one run. Each config, of a VM or of the snapshot that is cloned, is read only once."""

    reader: Reader
    _configs: dict[tuple[int, str | None], Mapping[str, t.Any]] = field(default_factory=dict)
    # Those that the run itself makes, and the VMIDs of those that it finishes.
    _own: dict[int, Guest] = field(default_factory=dict)
    _finished: frozenset[int] = frozenset()
    # The VMs of the task that exist, by what they are clones of.
    _clones: dict[str, frozenset[int]] = field(default_factory=dict)

    def foretell(self, decision: Decision, base: Mapping[str, t.Any], images: Mapping[str, int | None]) -> None:
        """Let clones be made of a template that is decided, but does not exist yet."""
        self._own[decision.vmid] = replace(assumed_guest(decision), template=True)
        self._configs[decision.vmid, None] = foretold_config(decision, base, images)

    def begin(self, finished: Iterable[int]) -> None:
        """Begin a round that finishes these templates. Those that an earlier round decided exist by now, or are decided
        again.
        """
        self._finished = frozenset(finished)
        for vmid in self._own:
            self._configs.pop((vmid, None), None)
        self._own.clear()

    def note_clones(self, made: Iterable[tuple[Clone, int]]) -> None:
        """Note which VMs of the task exist, and what they are clones of."""
        for clone, vmid in made:
            self._clones[clone.called] = self._clones.get(clone.called, frozenset()) | {vmid}

    def resolve(self, entry: Entry, cluster: ClusterState) -> Request:
        """Return the entry's request with its clone source, and with the template's sizes where the request sets none:
        of several copies, the largest.

        Raises TemplateNotFound, AmbiguousName, and InvalidRequest for what Proxmox cannot clone, or not in this way.
        """
        clone = entry.clone
        if clone is None:
            if entry.backup is None:
                check_new(entry.request.options)
            return entry.request
        sources = _sources(entry, clone, self._as_they_are(clone, cluster), cluster)
        configs = [self._config(guest, clone.snapname) for guest in sources]
        _check_alike(entry, clone, sources, configs)
        for guest, config in zip(sources, configs, strict=True):
            if not self._is_own(guest, config):
                _check_source(entry, clone, guest, config)
            check_options(entry, config, f"a clone of VM {guest.vmid} ({guest.name})")
        templates = tuple(
            replace(_template(guest, config), identity=self._identity(guest, config, clone.snapname))
            for guest, config in zip(sources, configs, strict=True)
        )
        return replace(
            entry.request,
            clone=CloneSource(templates, clone.full, clone.storage, clone.storage_class),
            siblings=self._clones.get(clone.called, frozenset()),
            **sizes_from(entry, configs),
            **traits_of(config_with(configs[0], entry.request.options)),
        )

    def base_of(self, request: Request, entry: Entry) -> Mapping[str, t.Any]:
        """Return the config that a clone is made from: that of the first of its templates, which are all alike."""
        if request.clone is None or entry.clone is None:
            return {}
        return self._configs[request.clone.templates[0].vmid, entry.clone.snapname]

    def _as_they_are(self, clone: Clone, cluster: ClusterState) -> list[Guest]:
        """Return the guests. The cluster's list shows some seconds late that a VM has become a template, which matters
        if several have the name.
        """
        guests = [self._own.get(guest.vmid, guest) for guest in cluster.guests.values()]
        named = {guest.vmid: guest for guest in guests if guest.kind == "qemu" and clone.names(guest)}
        plain = [guest for guest in named.values() if not guest.template]
        if not plain or len(named) == 1:
            return guests
        late = {guest.vmid for guest in plain if self._ask_if_template(guest)}
        return [replace(guest, template=True) if guest.vmid in late else guest for guest in guests]

    def _ask_if_template(self, guest: Guest) -> bool:
        with suppress(CollectionError):
            return bool(self._config(guest, None).get("template"))
        return False

    def _is_own(self, guest: Guest, config: Mapping[str, t.Any]) -> bool:
        """Whether the run itself makes or finishes the template, so that it is one when it is cloned."""
        return guest.vmid in self._own or (guest.vmid in self._finished and read_mark(config) is not None)

    def _identity(self, guest: Guest, config: Mapping[str, t.Any], snapshot: str | None) -> Identity | None:
        """Return what the source shows of its creation. If its snapshot shows nothing, its present config may; None if
        it is yet to be made.
        """
        if self._is_own(guest, config):
            return None
        found = identity_of(config, guest.node)
        if snapshot is None or found.is_marked:
            return found
        return identity_of(self._config(guest, None), guest.node)

    def _config(self, guest: Guest, snapshot: str | None) -> Mapping[str, t.Any]:
        """Return the config of a template, or of a snapshot of it. Read once. Raises TemplateNotFound."""
        key = guest.vmid, snapshot
        if key not in self._configs:
            config = read_config(self.reader, guest.node, guest.vmid, snapshot)
            if config is None:
                raise TemplateNotFound(f"clone: VM {guest.vmid} is no longer on node {guest.node}")
            if snapshot is None and guest.name is not None and config.get("name", guest.name) != guest.name:
                raise TemplateNotFound(
                    f"clone: VMID {guest.vmid} on {guest.node} belongs to {config['name']!r} now, not to {guest.name!r}"
                )
            self._configs[key] = config
        return self._configs[key]


def _sources(entry: Entry, clone: Clone, guests: Iterable[Guest], cluster: ClusterState) -> list[Guest]:
    """Return the guests to clone from, on online nodes: the one with the VMID or name, or templates of one name per
    node.
    """
    vms = [guest for guest in guests if guest.kind == "qemu"]
    namesakes = sorted((guest for guest in vms if clone.names(guest)), key=lambda guest: guest.vmid)
    if not namesakes:
        templates = known_names(
            (guest.name for guest in vms if guest.template and guest.name), clone.name or str(clone.vmid)
        )
        raise TemplateNotFound(
            f"clone: no VM {clone.called} exists, or this user cannot see it, for {entry.label}; "
            f"known templates: {templates}"
        )
    silent = [guest for guest in vms if is_silent(guest) and clone.vmid is None and clone.allows(guest)]
    found = _claim(entry, clone, namesakes, silent)
    nodes = {guest.node for guest in found}
    online = [guest for guest in found if (info := cluster.by_name.get(guest.node)) is not None and info.node.online]
    if not online:
        raise TemplateNotFound(
            f"clone: {_list_locations(found)}, which {'is' if len(nodes) == 1 else 'are'} offline, for {entry.label}"
        )
    return online


def _claim(entry: Entry, clone: Clone, namesakes: Sequence[Guest], silent: Sequence[Guest]) -> Sequence[Guest]:
    """Return the guests that the task means, among those of the name.

    Everybody may give a name to a VM of their own. So the pool decides whose template it is: that of C(clone), else
    that of the VM, as only who may write to a pool can put a template there. Beside templates, plain VMs do not count.

    C(silent) are guests whose names are not known, as their node has been offline for some minutes: one of them in
    another pool may be the template that is meant.
    """
    found = [guest for guest in namesakes if clone.allows(guest)]
    if not found:
        raise TemplateNotFound(
            f"clone: no VM {clone.called} is{clone.place}, for {entry.label}; there is {_name_guests(namesakes)}"
        )
    if clone.pool is None and entry.request.pool is not None:
        found = [guest for guest in found if guest.pool == entry.request.pool] or found
    pools = {guest.pool for guest in found}
    unknown = [guest for guest in silent if guest.pool not in pools]
    if unknown and None not in pools and entry.request.pool not in pools and not entry.accept_unknown:
        raise AmbiguousName(
            f"clone: {_name_guests(found)} is named {clone.called}, and so may be guests on nodes that cannot be "
            f"reached and whose names are unknown: {_name_guests(unknown[:_TOLD])}, for {entry.label}. {_CHOOSE}, or "
            "set accept_unknown=true"
        )
    # Of a guest on such a node, Proxmox VE does not tell either whether it is a template.
    templates = [guest for guest in found if guest.template or guest.status == "unknown"]
    # Who may create guests outside of all pools may do so anywhere: such a VM is nobody's trap.
    if templates and not (_without_pool(found) and not _without_pool(templates)):
        found = templates
    several = len(found) > 1
    if several and (
        len({g.node for g in found}) < len(found) or len({g.pool for g in found}) > 1 or found != templates
    ):
        raise AmbiguousName(
            f"clone: {len(found)} guests are named {clone.called}: {_name_guests(found)}; expected one, or one "
            f"template per node, all in one pool, for {entry.label}. {_CHOOSE}"
        )
    return found


_CHOOSE = "Choose with clone: {name, pool}, {name, node} or {vmid}"


def _without_pool(guests: Sequence[Guest]) -> bool:
    return any(guest.pool is None for guest in guests)


def _check_alike(entry: Entry, clone: Clone, sources: Sequence[Guest], configs: Sequence[Mapping[str, t.Any]]) -> None:
    """Refuse templates of one name that are not copies of one another. Raises AmbiguousName."""
    traits = [_traits_to_match(config) for config in configs]
    differing = sorted({key for made in traits for key, value in made.items() if value != traits[0].get(key)})
    differing += sorted({key for key in traits[0] if any(key not in made for made in traits)} - {*differing})
    if differing:
        has = "; ".join(
            f"VM {guest.vmid} on {guest.node}{_pool_of(guest)} has {key} {made.get(key, 'not set')}"
            for key in differing[:_TOLD]
            for guest, made in zip(sources, traits, strict=True)
        )
        raise AmbiguousName(
            f"clone: {len(sources)} templates are named {clone.called} and are not copies of one another: {has}, for "
            f"{entry.label}. {_CHOOSE}"
        )


_TOLD = 3
_MADE_OF = ("bios", "machine", "ostype", "scsihw", "arch")
_SMALL = frozenset({"efidisk0", "tpmstate0"})
"""Drives whose size depends on the type of their storage."""


def _traits_to_match(config: Mapping[str, t.Any]) -> dict[str, str]:
    """Return what a template is made of, which has to be the same in its copies. Each storage may round sizes up."""
    drives = drives_from(config)
    sized = {
        slot: size for slot, _storage, size in drives.volumes if slot not in drives.cloudinit and slot not in _SMALL
    }
    return {
        **{slot: f"of {size / GIB:.3g} GiB" for slot, size in sized.items()},
        **{slot: "there" for slot, _storage, _size in drives.volumes if slot not in sized},
        **{key: str(config[key]) for key in _MADE_OF if key in config},
        "tags": ", ".join(sorted(traits_of(config)["tags"])) or "none",
    }


def _pool_of(guest: Guest) -> str:
    return f" in pool {guest.pool}" if guest.pool else ""


def _name_guests(guests: Sequence[Guest]) -> str:
    """Return the guests for a message about names."""
    return ", ".join(
        f"{'template' if guest.template else 'VM'} {guest.vmid} on {guest.node}{_pool_of(guest) or ' in no pool'}"
        for guest in guests
    )


def _list_locations(guests: Sequence[Guest]) -> str:
    return ", ".join(f"VM {guest.vmid} ({guest.name}) is on {guest.node}" for guest in guests)


def _check_source(entry: Entry, clone: Clone, guest: Guest, config: Mapping[str, t.Any]) -> None:
    """Refuse what Proxmox would refuse on any node, and a source that is itself unfinished."""
    if read_mark(config) is not None:
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
    """Return a VM as the template of a clone, as its config describes it."""
    drives, mark = drives_from(config), read_mark(config)
    description = str(config.get("description") or "").rstrip("\n") if mark is None else mark.description
    return Template(
        vmid=guest.vmid,
        node=guest.node,
        name=guest.name or str(guest.vmid),
        volumes=drives.volumes,
        copied=drives.cloudinit,
        media=drives.media,
        description=description,
    )
