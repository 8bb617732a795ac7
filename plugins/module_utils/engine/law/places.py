# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The law about single decisions: identity, node, storages and devices."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from ...model import Node, Request, StorageClass
from ..patterns.names import name_pattern
from .state import NAMES, State, asked_nodes, called, drives, matches


def identity(state: State) -> Iterator[str]:
    """Decisions whose VMIDs or names belong to others."""
    taken = state.snapshot.vmids_unseen | {guest.vmid for guest in state.snapshot.guests}
    names = {guest.name for guest in state.snapshot.guests if guest.kind == "qemu" and guest.status != "assumed"}
    vmids = Counter(decision.vmid for decision, _in_force in state.decided)
    named = Counter(decision.request.name for decision, _in_force in state.decided)
    for decision, in_force in state.decided:
        if decision.vmid in taken or vmids[decision.vmid] > 1:
            yield f"{called(decision)}: its VMID is taken"
        if decision.request.vmid not in (None, decision.vmid):
            yield f"{called(decision)}: VMID {decision.request.vmid} was requested"
        if NAMES in in_force.rules and (decision.request.name in names or named[decision.request.name] > 1):
            yield f"{called(decision)}: its name is taken"


def node(state: State) -> Iterator[str]:
    """Decisions for nodes that the request, or the node itself, forbids."""
    nodes = {node.name: node for node in state.snapshot.nodes}
    for decision, in_force in state.decided:
        node, request = nodes.get(decision.node), decision.request
        if node is None:
            yield f"{called(decision)}: there is no such node"
            continue
        name, regex, required = asked_nodes(request)
        holds = {
            "NodeReady": node.online and not (node.maintenance or node.drained) and node.memory > 0,
            "NodeName": name in (None, node.name),
            "NodeRegex": not regex or name_pattern(regex).matches(node.name),
            "NodeAffinity": all(matches(expression, node) for expression in required),
            "TaintToleration": _tolerated(request, node),
            "VCPULimit": not node.cores or max(request.cores, request.cores_max) <= node.cores,
        }
        yield from (
            f"{called(decision)}: {rule} does not hold" for rule in holds if rule in in_force.rules and not holds[rule]
        )


def _tolerated(request: Request, node: Node) -> bool:
    return all(
        taint.effect != "NoSchedule"
        or any(
            each.key in ("", taint.key)
            and each.effect in ("", taint.effect)
            and (each.operator == "Exists" or each.value == taint.value)
            for each in request.tolerations
        )
        for taint in node.taints
    )


def volumes(state: State) -> Iterator[str]:
    """Drives, images and templates that are not on a suitable storage."""
    rows = {(row.name, row.node): row for row in state.snapshot.storages}
    for decision, in_force in state.under("VolumeBinding"):
        name, node, volumes = called(decision), decision.node, state.snapshot.volumes
        for drive in drives(decision, volumes):
            storage = decision.storages.get(drive.slot)
            row = rows.get((storage or "", node))
            wanted = in_force.storage_classes.get(drive.storage_class or "", StorageClass(""))
            if row is None or not row.active or drive.content not in row.content:
                yield f"{name}: {drive.slot} cannot be on storage {storage}"
            elif drive.storage not in (None, storage):
                yield f"{name}: {drive.slot} is on storage {storage}, not on {drive.storage}"
            elif (
                wanted.shared not in (None, row.shared)
                or (wanted.types and row.type not in wanted.types)
                or (wanted.storages and not any(name_pattern(each).matches(row.name) for each in wanted.storages))
            ):
                yield f"{name}: storage {storage} of {drive.slot} is not in class {wanted.name}"
            for other in drive.others:
                if decision.storages.get(other) != storage:
                    yield f"{name}: {other} is not on storage {storage}, where {drive.slot} is"
        cloned = {slot for slot, _storage, _size in decision.template.volumes} if decision.template else set()
        for disk in decision.request.disks:
            for volume in filter(None, (disk.volume, disk.source) if disk.slot not in cloned else ()):
                row = rows.get((volume.partition(":")[0], node))
                if volumes.get((node, volume), 0) is None or (":" in volume and (row is None or not row.active)):
                    yield f"{name}: {volume} is not there"
    for decision, _in_force in state.under("TemplateLocality"):
        template = decision.template
        for _slot, storage, _size in template.volumes if template and template.node != decision.node else ():
            row = rows.get((storage, decision.node))
            if row is None or not row.shared:
                yield f"{called(decision)}: storage {storage} of its template on {template and template.node} is local"


def hardware(state: State) -> Iterator[str]:
    """Claims without devices, and devices that do not meet their claims."""
    faults = {(each.node, each.driver, each.mapping, each.id): each.fault for each in state.snapshot.devices}
    holders = [(guest.node, *device) for guest in state.snapshot.guests for device in guest.devices]
    holders += [(d.node, got.driver, got.device) for d, _in_force in state.under("DeviceClaims") for got in d.devices]
    ids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for node, driver, device in holders:
        for address in _addresses(device) if driver == "pci" else ():
            ids[node, address.partition(".")[0]].add(device)
    for decision, _in_force in state.under("DeviceClaims"):
        for claim in decision.request.devices:
            got = [each for each in decision.devices if each.claim == claim.name]
            if len(got) not in {each.count for each in claim.one_of or (claim,)}:
                yield f"{called(decision)}: device claim {claim.name} is not met"
        for each in decision.devices:
            if each.node != decision.node or faults.get((each.node, each.driver, each.mapping, each.device), "-"):
                yield f"{called(decision)}: device {each.device} of mapping {each.mapping} cannot be used"
            cards = {address.partition(".")[0] for address in _addresses(each.device)} if each.driver == "pci" else ()
            others = {other for card in cards for other in ids[decision.node, card]} - {each.device}
            if any(_overlap(a, b) for other in others for a in _addresses(other) for b in _addresses(each.device)):
                yield f"{called(decision)}: device {each.device} is a part of another one that is taken"


def _addresses(device: str) -> list[str]:
    return device.partition("/")[0].split(";")


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")
