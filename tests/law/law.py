# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold of every decision, written from the documentation of the rules and apart from the plugins that keep
them. FailoverHeadroom and NetworkBridge are left out.
"""

from __future__ import annotations

import itertools
import typing as t
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.patterns.names import name_pattern
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    Decision,
    Disk,
    Expression,
    Guest,
    Node,
    Request,
    Snapshot,
    StorageClass,
)

from .cluster import Cluster, label, place, selects


@dataclass(frozen=True, slots=True)
class Overcommit:
    """How much of a node's CPU or memory may be allocated; reserved is in the unit of the resource."""

    ratio: float
    reserved: float = 0.0
    pools: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, float] = field(default_factory=dict)
    include_stopped: bool = False


@dataclass(frozen=True, slots=True)
class InForce:
    """The rules in force for a decision, by the names of their plugins, with their settings."""

    rules: frozenset[str] = field(default_factory=lambda: RULES)
    cpu: Overcommit = Overcommit(4.0)
    memory: Overcommit = Overcommit(1.0)
    storage_classes: Mapping[str, StorageClass] = field(default_factory=dict)
    max_guests: int | None = None
    max_tagged: Mapping[str, int] = field(default_factory=dict)


class Case(t.NamedTuple):
    """A decision, the request and the rules in force for it, and the VM as a guest of its node."""

    decision: Decision
    request: Request
    in_force: InForce
    vm: Guest
    node: Node


def broken(snapshot: Snapshot, decided: Iterable[tuple[Decision, InForce]]) -> list[str]:
    """The reasons why decisions are unlawful, as sentences; empty if they are lawful.

    snapshot is the cluster before the decisions, with the reservations of others. The decisions are replayed in the
    order in which they were made: each is judged in the cluster as those before it leave it, and then counted.
    """
    cluster = Cluster(snapshot)
    reasons: dict[str, None] = {}
    for decision, in_force in decided:
        vm, node = arrived(decision, snapshot), cluster.nodes.get(decision.node)
        found = ["there is no such node"]
        if node is not None:
            case = Case(decision, decision.request, in_force, vm, node)
            rules = [rule for plugin, rule in OF_CLUSTER if plugin in in_force.rules]
            found = [reason for rule in (own_vmid, of_node, *rules) for reason in rule(cluster, case)]
        reasons.update((f'VM "{vm.name}" ({vm.vmid}) on {vm.node}: {reason}', None) for reason in found)
        cluster.add(vm)
    return list(reasons)


def arrived(decision: Decision, snapshot: Snapshot) -> Guest:
    """The VM of a decision as a guest, with all that it takes."""
    request = decision.request
    space: Counter[tuple[str, str]] = Counter()
    for drive in _drives(decision, snapshot):
        space[decision.storages.get(drive.slot, ""), decision.node] += drive.size
    return Guest(
        decision.vmid, request.name, decision.node, status="running", cores=request.cores, memory=request.memory,
        tags=request.tags, pool=request.pool, constraints=request.constraints, storage_pending=space,
        devices=tuple((each.driver, each.device) for each in decision.devices),
    )  # fmt: skip


# --- identity ---


def own_vmid(cluster: Cluster, case: Case) -> Iterator[str]:
    """A VM has a VMID of its own, and the one that was requested."""
    vmid = case.vm.vmid
    if vmid in cluster.vmids or vmid in cluster.snapshot.vmids_unseen:
        yield "its VMID is taken"
    if case.request.vmid not in (None, vmid):
        yield f"VMID {case.request.vmid} was requested"


def own_name(cluster: Cluster, case: Case) -> Iterator[str]:
    """A VM has a name of its own, at least on its node if it is one per node."""
    if case.vm.name in (cluster.names_on[case.node.name] if case.request.per_node else cluster.names):
        yield "its name is taken"


# --- the node by itself ---


def of_node(_cluster: Cluster, case: Case) -> Iterator[str]:
    """The node and the request suit each other."""
    for plugin, suits in OF_NODE.items():
        if plugin in case.in_force.rules and not suits(case.node, case.request):
            yield f"{plugin} does not hold"


def _pattern(request: Request) -> str | None:
    return request.node_regex or request.context.get("node.qemu-scheduler/regex")


def _matches(expression: Expression, node: Node) -> bool:
    """Whether an expression holds for a node, by Kubernetes' rules."""
    value, values = label(node, expression.key), expression.values
    match expression.operator:
        case "In" | "NotIn" as operator:
            return (value in values) is (operator == "In")
        case "Exists" | "DoesNotExist" as operator:
            return (value is not None) is (operator == "Exists")
    try:
        number, limit = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return number > limit if expression.operator == "Gt" else number < limit


def _tolerated(node: Node, request: Request) -> bool:
    return all(
        any(
            each.key in ("", taint.key)
            and each.effect in ("", taint.effect)
            and (each.operator == "Exists" or each.value == taint.value)
            for each in request.tolerations
        )
        for taint in node.taints
        if taint.effect == "NoSchedule"
    )


def _runs(node: Node, cpu_type: str | None, flags: frozenset[str]) -> bool:
    """Whether a node can run VMs of a CPU type with these flags, as far as is known."""
    everywhere = cpu_type in (None, "host", "max", "kvm32", "kvm64", "qemu32", "qemu64")
    lacking = {flag for flag in flags if not flag.startswith("hv-")} - (node.cpu_flags or flags)
    return not lacking and (everywhere or node.cpu_models is None or cpu_type in node.cpu_models)


OF_NODE: Mapping[str, Callable[[Node, Request], bool]] = {
    "NodeReady": lambda node, _: node.online and not (node.maintenance or node.drained) and node.memory > 0,
    "NodeName": lambda node, request: request.node in (None, node.name),
    "NodeRegex": lambda node, request: not (regex := _pattern(request)) or name_pattern(regex).matches(node.name),
    "NodeAffinity": lambda node, request: all(_matches(each, node) for each in request.node_required),
    "TaintToleration": _tolerated,
    "NamedResources": lambda node, request: all(node.has.get(each) is not False for each in request.named),
    "CPUModel": lambda node, request: _runs(node, request.cpu_type, request.cpu_flags),
    "VCPULimit": lambda node, request: not node.cores or max(request.cores, request.cores_max) <= node.cores,
}


# --- amounts ---


def vcpus(cluster: Cluster, case: Case) -> Iterator[str]:
    """The vCPUs of a node's VMs are within the overcommit ratio."""
    node, limit = case.node, case.in_force.cpu
    allowed = _allocatable(case.vm, limit, node.cores, node.reserved_cores, node.cpu_ratio)
    if _exceeds(cluster.cores[node.name, limit.include_stopped] + case.vm.cores, allowed):
        yield f"too many vCPUs of {node.name} are taken"


def memory(cluster: Cluster, case: Case) -> Iterator[str]:
    """The memory of a node's VMs is within the overcommit ratio."""
    node, limit = case.node, case.in_force.memory
    allowed = _allocatable(case.vm, limit, node.memory, node.reserved_memory, node.memory_ratio)
    if _exceeds(cluster.memory[node.name, limit.include_stopped] + case.vm.memory, allowed):
        yield f"too much memory of {node.name} is taken"


def _allocatable(vm: Guest, limit: Overcommit, size: float, reserved: float | None, ratio: float | None) -> float:
    """The part of a size that may be allocated, by the reserve and the ratio of the node itself, else by the limit: by
    its ratio for the VM's pool, else by the smallest for the VM's tags.
    """
    if ratio is None:
        of_tags = min((limit.tags[tag] for tag in vm.tags & limit.tags.keys()), default=limit.ratio)
        ratio = limit.pools.get(vm.pool or "", of_tags)
    return ratio * max(size - (limit.reserved if reserved is None else reserved), 0.0)


def _exceeds(taken: float, limit: float) -> bool:
    """Whether more is taken than the limit, with a tolerance for rounding."""
    return taken > limit + 1e-9 * abs(limit)


def guests(cluster: Cluster, case: Case) -> Iterator[str]:
    """A node has no more guests than it may, nor guests with one of the VM's tags."""
    node, in_force = case.node.name, case.in_force
    if in_force.max_guests is not None and cluster.counts[node, None] >= in_force.max_guests:
        yield f"there are too many guests on {node}"
    for tag in case.vm.tags & in_force.max_tagged.keys():
        if cluster.counts[node, tag] >= in_force.max_tagged[tag]:
            yield f"there are too many guests on {node} with tag {tag}"


# --- storages and devices ---


def _drives(decision: Decision, snapshot: Snapshot) -> Iterator[Disk]:
    """The drives that a decision makes, with the sizes that they take."""
    request, clone, template = decision.request, decision.request.clone, decision.template
    asked = {disk.slot: disk for disk in request.disks if disk.volume is None}
    if clone is not None and template is not None:
        for slot, source, size in template.volumes:
            disk = asked.pop(slot, Disk(slot))
            copied = clone.full or slot in template.copied
            grown = max(size, disk.size) if copied else max(disk.size - size, 0)
            named, wanted = disk.storage, disk.storage_class
            if clone.full and not (named or wanted):
                named, wanted = clone.storage, clone.storage_class
            # Without a storage, a class leaves it open to a full clone only.
            yield Disk(slot, grown, named or (None if clone.full and wanted else source), wanted)
    for disk in asked.values():
        image = snapshot.volumes.get((decision.node, disk.source or "")) or 0
        yield replace(disk, size=image) if image > disk.size else disk


def storages(cluster: Cluster, case: Case) -> Iterator[str]:
    """Every drive is on a storage of its class that may hold it and has room, and on the requested one."""
    chosen, room = case.decision.storages, []
    for drive in _drives(case.decision, cluster.snapshot):
        name = chosen.get(drive.slot, "")
        storage = cluster.storages.get((name, case.node.name))
        wanted = case.in_force.storage_classes.get(drive.storage_class or "", StorageClass(""))
        if storage is None or not storage.active or drive.content not in storage.content:
            yield f"{drive.slot} cannot be on storage {name or None}"
            continue
        if drive.storage not in (None, name):
            yield f"{drive.slot} is on storage {name}, not on {drive.storage}"
        if (
            wanted.shared not in (None, storage.shared)
            or (wanted.types and storage.type not in wanted.types)
            or (wanted.storages and not any(name_pattern(each).matches(name) for each in wanted.storages))
        ):
            yield f"storage {name} of {drive.slot} is not in class {wanted.name}"
        for other in drive.others:
            if chosen.get(other) != name:
                yield f"{other} is not on storage {name}, where {drive.slot} is"
        reserved = wanted.reserved * storage.total if wanted.reserved < 1 else wanted.reserved
        room.append((storage.total * wanted.overcommit - reserved, place(storage), drive.size))
    own: Counter[tuple[str, str]] = Counter()
    for limit, at, size in sorted(room):  # in any order of the drives
        own[at] += size
        if size and _exceeds(cluster.used[at] + own[at], limit):
            yield f"too much of storage {' on '.join(filter(None, at))} is taken"


def images(cluster: Cluster, case: Case) -> Iterator[str]:
    """The images that drives are made of or contain are there."""
    node, template = case.node.name, case.decision.template
    cloned = {slot for slot, _storage, _size in template.volumes} if template else set()
    used = [(disk.volume, disk.source) for disk in case.request.disks if disk.slot not in cloned]
    for volume in filter(None, itertools.chain.from_iterable(used)):
        storage = cluster.storages.get((volume.partition(":")[0], node))
        lost = cluster.snapshot.volumes.get((node, volume), 0) is None
        if lost or (":" in volume and (storage is None or not storage.active)):
            yield f"{volume} is not there"


def template_locality(cluster: Cluster, case: Case) -> Iterator[str]:
    """A clone on another node than its template needs shared storages."""
    template, node = case.decision.template, case.node.name
    if template is not None and template.node != node:
        for _slot, name, _size in template.volumes:
            storage = cluster.storages.get((name, node))
            if storage is None or not storage.shared:
                yield f"storage {name} of its template on {template.node} is local"


def devices(cluster: Cluster, case: Case) -> Iterator[str]:
    """Every claim has its devices of the node, which work and are free, and are no parts of others that are taken."""
    given, node = case.decision.devices, case.node.name
    taken = cluster.held[node] + Counter(case.vm.devices)
    for claim in case.request.devices:
        if sum(each.claim == claim.name for each in given) not in {each.count for each in claim.one_of or (claim,)}:
            yield f"device claim {claim.name} is not met"
    for each in given:
        device = cluster.devices.get((node, each.driver, each.mapping, each.device))
        if device is None or device.fault or each.node != node:
            yield f"device {each.device} of mapping {each.mapping} cannot be used"
        elif device.in_use + taken[each.driver, each.device] > device.capacity:
            yield f"too much of device {each.driver}/{each.device} of {node} is taken"
        others = {other for driver, other in taken if driver == each.driver == "pci"} - {each.device}
        if any(_overlap(each.device, other) for other in others):
            yield f"device {each.device} is a part of another one that is taken"


def _overlap(one: str, other: str) -> bool:
    """Whether one PCI device is a function of another. Each may have several addresses."""
    pairs = itertools.product(*(each.partition("/")[0].split(";") for each in (one, other)))
    return any(a == b or a.startswith(f"{b}.") or b.startswith(f"{a}.") for a, b in pairs)


# --- relations to other guests ---


def anti_affinity(cluster: Cluster, case: Case) -> Iterator[str]:
    """A VM is apart from those that it must be apart from, and from those that must be apart from it."""
    apart = [term for term in case.request.affinity if term.required and not term.together]
    beside = (cluster.selected(each.selector, each.topology_key)[label(case.node, each.topology_key)] for each in apart)
    repelled = (
        domain == label(case.node, key) and selects(selector, case.vm) for key, domain, selector in cluster.repelled
    )
    if any(beside) or any(repelled):
        yield "it is not apart from VMs that it must be apart from"


def affinity(cluster: Cluster, case: Case) -> Iterator[str]:
    """A VM is with those that it must be with. The first of its kind may be on any node that has the labels."""
    together = [term for term in case.request.affinity if term.required and term.together]
    found = {term: cluster.selected(term.selector, term.topology_key) for term in together}
    first = not any(map(Counter.total, found.values())) and all(selects(term.selector, case.vm) for term in together)
    for term in together:
        domain = label(case.node, term.topology_key)
        if domain is None or not (first or found[term][domain]):
            yield "it is not with the VMs that it must be with"


def spread(cluster: Cluster, case: Case) -> Iterator[str]:
    """No domain has more of the selected VMs than the emptiest one and the skew. Nodes that the request does not
    allow, or that lack a label, do not count.
    """
    request = case.request
    hard = [constraint for constraint in request.topology_spread if constraint.hard]
    allowed = [
        node
        for node in (cluster.nodes.values() if hard else ())
        if all(OF_NODE[plugin](node, request) for plugin in ("NodeName", "NodeRegex", "NodeAffinity"))
        and all(label(node, constraint.topology_key) is not None for constraint in hard)
    ]
    for constraint in hard:
        key, selector = constraint.topology_key, constraint.selector
        found, domain = cluster.selected(selector, key, allowed), label(case.node, key)
        skew = found[domain] + selects(selector, case.vm) - min(found.values(), default=0)
        if domain is None or skew > constraint.max_skew:
            yield f"it is not spread over {key} within {constraint.max_skew}"


def ha_rules(cluster: Cluster, case: Case) -> Iterator[str]:
    """The HA manager would not move the VM because of a rule that it joins, or that has its VMID already."""
    intent, vmid = case.request.ha, case.vm.vmid
    if intent is None:
        return
    rules = [rule for rule in cluster.snapshot.ha_rules if not rule.disabled]
    own = [rule for rule in rules if rule.name == intent.joins or case.request.vmid in rule.vmids]
    members = {rule.name: rule.vmids | cluster.joined[rule.name] for rule in rules}
    members.update((rule.name, members[rule.name] | {vmid}) for rule in own)
    positive = [members[rule.name] for rule in rules if rule.type == "resource-affinity" and rule.positive]
    together = frozenset({vmid})
    # Rules also keep a VM with those that others are kept with.
    while (larger := together.union(*(each for each in positive if each & together))) != together:
        together = larger
    kept, here = together - {vmid}, cluster.on[case.node.name]
    for rule in own:
        if rule.unknown:
            yield f"HA rule {rule.name} has {rule.unknown}, which is unknown"
        elif rule.type == "node-affinity":
            only = sum(each.type == rule.type for each in own) == 1
            # A negative rule names the nodes to avoid.
            if only and rule.strict and (case.node.name in rule.nodes) is not rule.positive:
                yield f"it is not on a node of HA rule {rule.name}"
        elif rule.positive:
            if kept & cluster.vmids and not kept & here:
                yield f"it is not with the VMs of HA rule {rule.name}"
        elif (members[rule.name] - together) & here:
            yield f"it is not apart from the VMs of HA rule {rule.name}"


OF_CLUSTER: tuple[tuple[str, Callable[[Cluster, Case], Iterator[str]]], ...] = (
    ("Names", own_name),
    ("CPUOvercommit", vcpus),
    ("MemoryOvercommit", memory),
    ("GuestLimit", guests),
    ("VolumeBinding", storages),
    ("VolumeBinding", images),
    ("TemplateLocality", template_locality),
    ("DeviceClaims", devices),
    ("VMAffinity", anti_affinity),
    ("VMAffinity", affinity),
    ("TopologySpread", spread),
    ("HARules", ha_rules),
)
RULES: frozenset[str] = frozenset({*OF_NODE, *(plugin for plugin, _rule in OF_CLUSTER)})
"""The plugins whose rules the law knows. There is none for Names."""
