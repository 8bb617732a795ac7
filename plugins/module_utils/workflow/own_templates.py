# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates that a task makes together with their clones: what they will look like, and in which order all are made."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ..engine.cache import ClusterState
from ..errors import TemplateNotFound
from ..model import Decision, Guest, Template
from ..proxmox.api.reader import Reader
from ..proxmox.identity import identity_of
from ..proxmox.inventory.freshness import read_config
from ..proxmox.making import TEMPLATE
from ..proxmox.options.contradictions import config_with
from ..proxmox.options.drives import Drive, is_drive, kind_of
from ..proxmox.options.values import format_size, size_in_config
from .job import Job, group_by_dependency


def in_waves(jobs: Sequence[Job], cluster: ClusterState) -> Iterator[Sequence[Job]]:
    """Yield new VMs in the order of their decisions: a clone after the template of the task that it is made from."""
    return group_by_dependency(jobs, lambda left: [job for job in left if not _has_source_among(job, left, cluster)])


def _has_source_among(job: Job, jobs: Collection[Job], cluster: ClusterState) -> bool:
    """Whether a VM is cloned from a template that is to be made. One that exists has precedence."""
    clone = job.entry.clone
    if clone is None or any(guest.kind == "qemu" and clone.names(guest) for guest in cluster.guests.values()):
        return False
    return any(
        other is not job and other.entry.request.options.get(TEMPLATE) and clone.names(_claim(other)) for other in jobs
    )


def _claim(job: Job) -> Guest:
    """Return what identifies the VM of a job, as far as that is known before its decision."""
    request = job.entry.request
    return Guest(vmid=request.vmid or 0, name=request.name, node=request.node or "", pool=request.pool)


def foretold_config(
    decision: Decision, base: Mapping[str, t.Any], images: Mapping[str, int | None]
) -> dict[str, t.Any]:
    """Return the config that a template will have. base is the one that it is made from, images are the sizes of images
    that drives may be copied from.
    """
    options, storages = decision.request.options, decision.storages
    config = {"name": decision.request.name, **config_with(base, options), TEMPLATE: 1}
    for slot in [slot for slot in config if is_drive(slot)]:
        value, former = config[slot], base.get(slot)
        drive = value if isinstance(value, Drive) else None
        if drive is not None and (drive.volume is not None or drive.cloudinit):
            config[slot] = drive.to_api(storages.get(slot, "none"))
            continue
        kind = kind_of(slot)
        present = kind.read(str(former)) if former is not None else {}
        if present.get("media") == "cdrom" and drive is None:
            continue
        size = size_in_config(present.pop("size", "")) or 0
        if drive is not None:
            size = max(size, drive.size, images.get(drive.source or "") or 0)
            present |= drive.options
        name = present.pop("file", "").partition(":")[2] or f"base-{decision.vmid}-disk-0"
        shown = {"size": format_size(size)} if size else {}
        config[slot] = kind.format({**present, "file": f"{storages.get(slot, 'none')}:{name}", **shown})
    return config


def read_own_template(reader: Reader, template: Template) -> Template:
    """Return the template, which the same run has made meanwhile, with its identity. Raises TemplateNotFound if it has
    not.
    """
    config = read_config(reader, template.node, template.vmid)
    if config is None or config.get("name") != template.name or not config.get(TEMPLATE):
        raise TemplateNotFound(
            f"clone: this run has not created template {template.name}: expected it on {template.node} with VMID "
            f"{template.vmid}"
        )
    return replace(template, identity=identity_of(config, template.node))


def group_templates_first(jobs: Sequence[Job]) -> Iterator[Sequence[Job]]:
    """Return the jobs in groups, templates before their clones."""

    def ready_among(left: Sequence[Job]) -> Sequence[Job]:
        to_make = {vmid for job in left if (vmid := _vmid_made_by(job)) is not None}
        return [job for job in left if not to_make & _sources(job)]

    return group_by_dependency(jobs, ready_among)


def _vmid_made_by(job: Job) -> int | None:
    """Return the VMID of a VM that a job makes or finishes."""
    if job.plan is not None and "finish" in job.plan.actions:
        return job.plan.guest.vmid
    return None if job.decision is None else job.decision.vmid


def _sources(job: Job) -> set[int]:
    template = None if job.decision is None else job.decision.template
    return set() if template is None else {template.vmid}
