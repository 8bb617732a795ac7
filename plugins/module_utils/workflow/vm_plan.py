# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task is about to do with its VMs, as a document: VMs to create with their decisions, and actions on others;
before all that, moves of guests that make room.
"""

from __future__ import annotations

import json
import re
import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..errors import InvalidRequest
from ..model import VMID_MAX, VMID_MIN, Identity
from ..plans import Move, NodeCourse, Plan
from ..proxmox.identity import as_json
from ..proxmox.options.drift import ChangeSet
from ..proxmox.options.table import VM_ARGUMENT_SPEC
from ..proxmox.outcomes import allocations
from .documents import (
    Check,
    Key,
    a_count,
    a_text,
    anything,
    check_digest,
    each_written,
    list_of,
    map_of,
    one_of,
    optional,
    read_document,
    record,
    seal,
    unseal,
    values_written,
    writer_of,
    wrong,
)
from .job import Job
from .moves.plan_document import MOVE, NODE, PREMISES, an_identity, check_moves
from .moves.premises import Premises
from .options.entries import Entry
from .report import report_of

if t.TYPE_CHECKING:
    from .moves.results import MovesOutcome

FORMAT = "qemu_scheduler.proxmox plan of VMs"

FINISH = "finish"
CREATIONS = ("create", "clone", "restore")
ACTIONS = (
    *(*CREATIONS, FINISH, "update", "delete"),
    *("start", "stop", "reboot", "restart", "pause", "resume", "suspend"),
)

HIDDEN = "********"
_SECRET = frozenset(name for name, spec in VM_ARGUMENT_SPEC.items() if spec.get("no_log"))
_NOT_SENT = frozenset({"host_groups", "host_vars"})
"""Options that change nothing in the cluster. Variables of hosts may be secret."""
_CHOSEN = re.compile(r"ipconfig([12]?\d|3[01])|nameserver|searchdomain")


@dataclass(frozen=True, slots=True)
class PlannedDevice:
    """A device for a claim: the parameter that attaches it, and its value."""

    claim: str
    option: str
    value: str


@dataclass(frozen=True, slots=True)
class PlannedTemplate:
    """The guest that a VM is cloned from. identity is what its config shows of its creation."""

    vmid: int
    node: str
    identity: Identity | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Change:
    """A parameter of a VM that exists, as it is and as it is to be; None for one that is not set. Secrets are stars."""

    old: t.Any
    new: t.Any


@dataclass(frozen=True, slots=True)
class PlannedVM:
    """What is to be done with one VM.

    Attributes:
        vmid, node: None for a VM that does not exist and is not wanted.
        why: the decision about a new VM in one sentence, empty for one that exists.
        actions: in the order in which they are done; none for a VM that is as requested.
        status: Proxmox's word for what the VM does before that; C(absent) for one that does not exist.
        storages: where new drives are made, and others are moved to, by slot.
        addresses: the parameters that were chosen from address pools.
        template, archive: what it is cloned or restored from.
        changes: what differs from the request, whether it is to be changed or not.
        pending: what of the config is not in effect before the VM is stopped and started.
        request: the options of the VM that the task sets, secrets as stars; None for one that is beyond count.
        after: ids of the moves that must have ended before it is created.
        identity: what the config of a VM that exists shows of its creation.
    """

    name: str
    vmid: int | None
    node: str | None
    why: str = ""
    actions: tuple[str, ...] = ()
    status: str = "absent"
    storages: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[PlannedDevice, ...] = ()
    addresses: Mapping[str, str] = field(default_factory=dict)
    template: PlannedTemplate | None = None
    archive: str | None = None
    changes: Mapping[str, Change] = field(default_factory=dict)
    pending: Mapping[str, Change] = field(default_factory=dict)
    request: Mapping[str, t.Any] | None = None
    after: tuple[int, ...] = ()
    identity: Identity | None = None

    @property
    def is_new(self) -> bool:
        """Whether the VM is to be created."""
        return not set(self.actions).isdisjoint(CREATIONS)

    @property
    def label(self) -> str:
        """What the VM is called in messages."""
        return f'VM "{self.name}"' if self.name else f"VM {self.vmid}"


@dataclass(frozen=True, slots=True)
class VMPlan:
    """What is to be done with the VMs of a task, in its order, after moves of guests that make room for them.

    nodes are those that the moves touch; premises is what the plan assumes of the cluster.
    """

    vms: tuple[PlannedVM, ...]
    premises: Premises
    moves: tuple[Move, ...] = ()
    nodes: Mapping[str, NodeCourse] = field(default_factory=dict)

    @property
    def room(self) -> Plan:
        """The moves as a plan of their own."""
        return Plan(f"place {sum(vm.is_new for vm in self.vms)} VM(s)", True, self.moves, nodes=self.nodes)


# --- from the jobs of a run -------------------------------------------------------------------------------------------


def planned_vm(job: Job) -> PlannedVM:
    """Return what is to be done with the VM of a job, as far as it is known."""
    entry, guest, plan, decision = job.entry, job.guest, job.plan, job.decision
    actions, request = tuple(report_of(job).actions), requested_options(entry)
    if plan is not None and guest is not None:
        return PlannedVM(
            name=entry.request.name or guest.name or "",
            vmid=guest.vmid,
            node=plan.guest.node,
            actions=actions,
            status=plan.status,
            storages=_placed_drives(plan.changes),
            changes=_changes({key: change for key, change in plan.drift.items() if key != "node"}),
            pending=_changes(plan.pending),
            request=request,
            identity=plan.identity,
        )
    if decision is None:
        return PlannedVM(entry.request.name, entry.request.vmid, None, actions=actions, request=request)
    template, archive = decision.template, decision.request.archive
    return PlannedVM(
        name=entry.request.name,
        vmid=decision.vmid,
        node=decision.node,
        why=job.outcome.message if job.outcome is not None else "",
        actions=actions,
        storages=dict(decision.storages),
        devices=tuple(PlannedDevice(each.claim, each.option, each.value) for each in decision.devices),
        addresses={
            key: str(value) for key, value in decision.request.options.items() if key not in entry.request.options
        },
        template=None if template is None else PlannedTemplate(template.vmid, template.node, template.identity),
        archive=None if archive is None else archive.volume,
        request=request,
    )


def requested_options(entry: Entry) -> dict[str, t.Any] | None:
    """Return the options of a VM that the task sets, as JSON has them, with stars for secrets."""
    if not entry.given:
        return None
    told = {key: HIDDEN if key in _SECRET else value for key, value in entry.given.items() if key not in _NOT_SENT}
    asked: dict[str, t.Any] = json.loads(json.dumps(told, default=str))
    return asked


def _placed_drives(changes: ChangeSet) -> dict[str, str]:
    parameters = changes.parameters
    new = {slot: str(parameters[slot]).partition(":")[0] for slot in sorted(allocations(parameters))}
    return {**new, **changes.moves}


def _changes(found: Mapping[str, Mapping[str, t.Any]]) -> dict[str, Change]:
    told = json.loads(json.dumps(found, default=str))
    return {key: Change(change["old"], change["new"]) for key, change in told.items()}


# --- the schema -------------------------------------------------------------------------------------------------------


def _check_vmid(where: str, value: t.Any) -> int:
    if not VMID_MIN <= a_count(where, value) <= VMID_MAX:
        raise wrong(where, value, f"a VMID from {VMID_MIN} to {VMID_MAX}")
    return int(value)


_vmid = Check(_check_vmid, {"type": "integer", "minimum": VMID_MIN, "maximum": VMID_MAX})


def _parameter_of_addresses(name: str) -> str:
    if not _CHOSEN.fullmatch(name):
        raise ValueError(name)
    return name


DEVICE = {name: Key(name, a_text) for name in ("claim", "option", "value")}
IDENTITY = Key("identity", optional(an_identity), lambda known: None if known is None else as_json(known))
TEMPLATE = {"vmid": Key("vmid", _vmid), "node": Key("node", a_text), "identity": IDENTITY}
CHANGE = {name: Key(name, anything) for name in ("old", "new")}

VM = {
    "name": Key("name", a_text),
    "vmid": Key("vmid", optional(_vmid)),
    "node": Key("node", optional(a_text)),
    "why": Key("why", a_text),
    "actions": Key("actions", list_of(one_of(*ACTIONS)), list),
    "status": Key("status", a_text),
    "storages": Key("storages", map_of(a_text), dict),
    "devices": Key("devices", list_of(record(PlannedDevice, DEVICE)), each_written(writer_of(DEVICE))),
    "addresses": Key(
        "addresses", map_of(a_text, _parameter_of_addresses, "ipconfigN, nameserver and searchdomain"), dict
    ),
    "template": Key(
        "template",
        optional(record(PlannedTemplate, TEMPLATE)),
        lambda template: None if template is None else writer_of(TEMPLATE)(template),
    ),
    "archive": Key("archive", optional(a_text)),
    "changes": Key("changes", map_of(record(Change, CHANGE)), values_written(writer_of(CHANGE))),
    "pending": Key("pending", map_of(record(Change, CHANGE)), values_written(writer_of(CHANGE))),
    "request": Key("request", optional(map_of(anything))),
    "after": Key("after", list_of(a_count), list),
    "identity": IDENTITY,
}

PLAN = {
    "vms": Key("vms", list_of(record(PlannedVM, VM)), each_written(writer_of(VM))),
    "moves": Key("moves", list_of(record(Move, MOVE)), each_written(writer_of(MOVE))),
    "nodes": Key("nodes", map_of(record(NodeCourse, NODE)), values_written(writer_of(NODE))),
    "assumes": Key("premises", record(Premises, PREMISES), writer_of(PREMISES)),
}


def document_of(jobs: Iterable[Job], cluster: str, room: MovesOutcome | None) -> dict[str, t.Any]:
    """Return the document of what is to be done with the VMs of all jobs, none of which has failed.

    room is what was planned to make room for them.
    """
    vms = tuple(planned_vm(job) for job in jobs)
    if room is None:
        return as_document(VMPlan(vms, Premises(cluster)))
    moves = room.plan.moves
    # None is created before all have ended.
    after = tuple(move.id for move in moves)
    vms = tuple(replace(vm, after=after) if vm.is_new else vm for vm in vms)
    return as_document(VMPlan(vms, room.premises, moves, room.plan.nodes))


def as_document(plan: VMPlan) -> dict[str, t.Any]:
    """Return the document of a plan, as JSON has it."""
    return seal(FORMAT, writer_of(PLAN)(plan))


def read_plan(source: t.Any, option: str) -> VMPlan:
    """Return the plan that an option holds, or that is in the file which it names.

    Raises InvalidRequest, which names the option and the key: for another format or version, a key that is missing,
    unknown or of the wrong type, a VM that is listed twice, and a digest that is not the document's.
    """
    document = read_document(source, option)
    plan: VMPlan = record(VMPlan, PLAN)(option, unseal(document, FORMAT, option))
    seen: set[object] = set()
    for number, vm in enumerate(plan.vms):
        where = f"{option}.vms[{number}]"
        copy = bool((vm.request or {}).get("per_node"))
        identity = {key for key in ((vm.name, vm.node) if copy else vm.name, vm.vmid) if key}
        if identity & seen:
            raise InvalidRequest(f"{where}: {vm.label} is listed twice")
        if vm.actions and (vm.vmid is None or vm.node is None):
            raise InvalidRequest(f"{where}: {vm.label} has actions, but no VMID or no node")
        unknown = sorted(set(vm.after) - {move.id for move in plan.moves})
        if unknown:
            raise InvalidRequest(f"{where}.after: {unknown[0]} is not a move of the plan")
        seen |= identity
    check_moves(plan.moves, plan.premises, option)
    check_digest(document, option)
    return plan
