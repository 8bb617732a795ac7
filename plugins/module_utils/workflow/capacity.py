# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts how many more VMs fit, by the rules that would place them."""

from __future__ import annotations

import time
import typing as t
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from ..demand import CPU, MEMORY, Usage
from ..engine.advice import Size, filling_nodes, overcommits, right_sizes
from ..engine.cache import ClusterState
from ..engine.framework.interface import Subject
from ..engine.how_many import MOST, CapacityReport, More, how_many
from ..engine.profiles import Profile
from ..engine.scheduling_cycle import Scheduler
from ..engine.usual import with_demand
from ..errors import InvalidRequest
from ..model import Snapshot, Storage
from ..proxmox.inventory.usage import WEEK, grid_for, timeframe_for
from .access import Access, subjects_of
from .bridges import with_bridges_of_eligible
from .counting import Counted, cluster_state, count_reservations, with_moves
from .options.device_options import device_attributes, device_needs
from .options.entries import Entry, build_entries
from .options.plugin_config import check_entries, profiles_in_use, profiles_of
from .options.rules import facts_of
from .options.task import expand
from .templates import Templates

N_PLUS_ONE = {"filters": {"FailoverHeadroom": {"enable": True}}}
"""The plugin config that requires that the cluster can lose any one node."""

BY_USE = {
    "filters": {
        "UsedLimit": {"enable": True},
        **{name: {"enable": False} for name in ("CPUOvercommit", "MemoryOvercommit", "FailoverHeadroom")},
    }
}
"""The plugin config by which only what is used limits CPU and memory."""

AS_USED = ("total", "limited_by", "reason", "shapes", "nodes")

SHAPES = "shapes"

SHAPE = "shape-{}"
"""The name of a shape without one, as VMs need a name."""

_OPTIONS = {CPU: "cores", MEMORY: "memory"}
"""The options of a VM that set its size."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """The VMs to count, and the rules that would place them.

    Attributes:
        device_attributes: what the user says of devices, by mapping, C(mapping@node) or C(address@node).
        names: what the result calls each of the VMs. Those of one name are one shape.
    """

    entries: Sequence[Entry]
    profiles: Mapping[str, Profile]
    default_profile: str
    device_attributes: Mapping[str, Mapping[str, t.Any]]
    names: Sequence[str]

    @classmethod
    def of(
        cls, params: Mapping[str, t.Any], per_vm: Iterable[str], profiles: Mapping[str, Profile], default: str
    ) -> Shapes:
        """Return the shapes that a task describes. per_vm names the options of one VM, which the top level and each of
        C(shapes) may have.

        Raises InvalidRequest.
        """
        entries = _entries(params, per_vm)
        if any(entry.state == "absent" for entry in entries):
            raise InvalidRequest("state: 'absent' has no capacity to count, expected present, started or stopped")
        check_entries(entries, profiles, default)
        attributes = device_attributes(params.get("device_attributes"))
        return cls(entries, profiles, default, attributes, names_of(params, entries))

    def fit(
        self, access: Access, counted: Counted, *, most: int = MOST, fresh: bool = True, known_only: bool = False
    ) -> CapacityReport:
        """Return how many of the VMs fit into the cluster, at most so many. fresh is that of Access.complete.

        known_only leaves out nodes of which it is not known what they use.

        Reads only what the VMs need besides nodes, guests and storages. Raises InvalidRequest, TemplateNotFound,
        AmbiguousName, PluginFailed, and what reading the cluster raises.
        """
        seen = cluster_state(with_moves(counted.snapshot, counted.under_way), counted.stand_ins)
        templates = Templates(access.reader)
        entries, volumes = self.entries, {}
        if any(entry.backup is not None for entry in entries):
            from .archives import Archives

            archives = Archives(access.reader)
            entries = [archives.resolve(entry, counted.snapshot) for entry in entries]
            volumes = archives.volumes
        resolved = [templates.resolve(entry, seen) for entry in entries]
        devices = device_needs(resolved, self.device_attributes)
        subjects = subjects_of(profiles_in_use(self.entries, self.profiles, self.default_profile).values())
        whole = access.complete(
            counted.snapshot, resolved, subjects, devices, many=True, fresh=fresh, all_bridges=False
        )
        whole = replace(whole, volumes={**whole.volumes, **volumes})
        if known_only:
            whole = replace(whole, nodes=tuple(node for node in whole.nodes if node.demand))
        state = cluster_state(with_moves(whole, counted.under_way), counted.stand_ins)
        requests = [access.standing.add_to_request(request, whole.nodes) for request in resolved]
        if Subject.DEMAND in subjects:
            requests = [with_demand(request, state.guests.values()) for request in requests]
        if access.known_bridges is not None:
            scheduler = Scheduler(state, self.profiles, self.default_profile)
            whole = replace(whole, nodes=with_bridges_of_eligible(access, scheduler, requests))
            state = cluster_state(with_moves(whole, counted.under_way), counted.stand_ins)
        firsts = {name: number for number, name in reversed(list(enumerate(self.names)))}
        alone = sorted(firsts.values()) if len(firsts) > 1 else ()
        return how_many(state, self.profiles, requests, default_profile=self.default_profile, most=most, alone=alone)


def count_capacity(params: Mapping[str, t.Any], per_vm: Iterable[str]) -> dict[str, t.Any]:
    """Return the module's result. per_vm names the options of one VM, which the top level and each of C(shapes) may
    have.

    Raises InvalidRequest, and what reading the cluster raises.
    """
    above = N_PLUS_ONE if params["n_plus_one"] else {}
    shapes = Shapes.of(params, per_vm, *profiles_of(params, above))
    access = Access.open(params, facts_of(params.get("nodes")))
    try:
        reservations = access.ledger.reservations(access.identity())
        counted = count_reservations(access.read(), reservations, ask_if_another=access.ask_if_another)
        report = shapes.fit(access, counted)
        advised = {}
        if params.get("advice"):
            by_use = replace(shapes, profiles=profiles_of(params, BY_USE)[0]).fit(
                access, counted, fresh=False, known_only=True
            )
            used = _result(by_use, shapes.names)
            # Without a node, nothing would fit, whatever is used.
            as_used = {key: used[key] for key in AS_USED} if by_use.nodes else None
            advised = {"as_used": as_used, **advice(access, counted.snapshot)}
    finally:
        access.close()
    counts = counted_by_n_plus_one(counted.snapshot.storages) if params["n_plus_one"] else None
    return {"n_plus_one_counts": counts, **_result(report, shapes.names), **advised}


COUNTED_BY_N_PLUS_ONE = (
    "CPU, memory, taints, and the rules that bind guests to nodes or keep them apart (strict HA rules, tags, rules of"
    " the task), not for other rules, local disks and devices"
)
"""What counts for whether the guests of a lost node find another one."""

NOTHING_SHARED = (
    "; no storage for disks is shared, so that guests of a lost node stay down until it is back, unless they are"
    " replicated"
)


def counted_by_n_plus_one(storages: Iterable[Storage]) -> str:
    """Return what counts for whether the guests of a lost node find another one, and whether their disks can at all."""
    of_disks = [storage for storage in storages if "images" in storage.content]
    shared = not of_disks or any(storage.shared for storage in of_disks)
    return COUNTED_BY_N_PLUS_ONE + ("" if shared else NOTHING_SHARED)


def _entries(params: Mapping[str, t.Any], per_vm: Iterable[str]) -> list[Entry]:
    """Return an entry for each shape. Those without a name get one."""
    if not params.get("shapes"):
        return build_entries({**params, "name": params.get("name") or SHAPE.format(1)}, per_vm, time.time())
    shapes = expand(params["shapes"], params, SHAPES)
    named = [{**shape, "name": shape.get("name") or SHAPE.format(number)} for number, shape in enumerate(shapes.vms, 1)]
    return build_entries({**params, "name": None, "vms": named}, per_vm, time.time(), shapes.origins, SHAPES)


def names_of(params: Mapping[str, t.Any], entries: Sequence[Entry]) -> list[str]:
    """Return what the result calls each VM: a shape with a count is one, by its name with C({n})."""
    written = params.get("shapes") or []
    if not written:
        return [entry.request.name for entry in entries]
    counted = [
        str(written[origin].get("name")) if written[origin].get("count") else ""
        for origin in expand(written, params, SHAPES).origins
    ]
    return [name or entry.request.name for name, entry in zip(counted, entries, strict=True)]


def _result(report: CapacityReport, names: Sequence[str]) -> dict[str, t.Any]:
    """Return the result of the module. Shapes of one name are added up."""
    fit_of: Counter[str] = Counter()
    for name, fit in zip(names, report.shapes, strict=True):
        fit_of[name] += fit
    only = More(0, report.limited_by, report.reason)
    more_of = {names[number]: more for number, more in report.more.items()} or dict.fromkeys(names, only)
    return {
        "changed": False,
        "total": report.total,
        "limited_by": report.limited_by,
        "reason": report.reason,
        "shapes": [
            {"name": name, "fit": fit, "more": more.fit, "limited_by": more.limited_by, "reason": more.reason}
            for name, fit in fit_of.items()
            for more in (more_of[name],)
        ],
        "nodes": [asdict(node) for node in report.nodes],
    }


def advice(access: Access, snapshot: Snapshot) -> dict[str, t.Any]:
    """Return what the statistics of a week advise: sizes that would suit VMs better, ratios that would suit nodes, and
    nodes that will be full.

    One request for each node that is online, and one for each running VM there.
    """
    reader = access.reader
    timeframe = timeframe_for(WEEK, reader)
    grid = grid_for(WEEK, timeframe, reader.server_time() or time.time())
    online = {node.name: node for node in snapshot.nodes if node.online}
    vms = [guest for guest in snapshot.guests if guest.kind == "qemu" and guest.running and guest.node in online]
    vms = [guest for guest in vms if guest.vmid > 0]
    usage = Usage(
        grid,
        access.statistics.node_curves(online.values(), timeframe, grid),
        {name: {CPU: node.cores, MEMORY: node.memory} for name, node in online.items()},
        access.statistics.demands(vms, snapshot.guests, timeframe, grid),
    )
    running = [info for info in ClusterState(snapshot).nodes if info.node.online]
    allocated = {info.name: {CPU: info.cores, MEMORY: float(info.memory)} for info in running}
    return {
        "right_sizes": [{**size._asdict(), "options": _options(size)} for size in right_sizes(vms, usage)],
        "overcommit": [ratio._asdict() for ratio in overcommits(usage, allocated)],
        "full_in_days": [growth._asdict() for growth in filling_nodes(usage)],
    }


def _options(size: Size) -> dict[str, int]:
    """Return the options of a VM with which qemu_schedule would give it that size."""
    sockets = {"sockets": 1} if size.resource == CPU else {}
    return {"vmid": size.vmid, _OPTIONS[size.resource]: size.suggested, **sockets}
