# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold of every state, written from the documentation of the rules and apart from the plugins that keep them.

The law sees a state and no order: a reason is given only where no order of the decisions could have kept the rule. It
keeps silent about what was broken before, about rules that are not in force, and about FailoverHeadroom, CPUModel and
NetworkBridge.
"""

from __future__ import annotations

import typing as t
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from ...model import AffinityTerm, Decision, Expression, Guest, Node, Request, Selector, StorageClass
from ..patterns.names import name_pattern
from .state import NAMES, Overcommit, Placed, State


def broken(state: State) -> list[str]:
    """The reasons why the state is unlawful, as sentences; empty if it is lawful."""
    rules = (overfull, identity, node, volumes, hardware, affinity, spread, ha)
    return sorted({reason for rule in rules for reason in rule(state)})


# Amounts: no more of a node, a storage or a device is taken than there is.


class Claim(t.NamedTuple):
    """The amount that a decision takes of something, and the amount that it found free for itself and those
    before it.
    """

    of: str
    room: float
    size: float


def overfull(state: State) -> Iterator[str]:
    """Everything of which more is taken than there is."""
    claims: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for of, room, size in (*_compute(state), *_counts(state), *_space(state), *_devices(state)):
        claims[of].append((room, size))
    for of, taken in claims.items():
        total = 0.0
        # In every order one of them finds too little: those with the least room cannot have come earlier.
        for room, size in sorted(taken):
            total += size
            if total > room:
                yield f"{of}: more is taken than there is room for"
                break


def _room(limit: float, taken: float) -> float:
    """What is left of a limit, with a tolerance for rounding."""
    return limit + 1e-9 * abs(limit) - taken


def _compute(state: State) -> Iterator[Claim]:
    sums: Counter[tuple[str, bool, str]] = Counter()
    for guest in state.guests:
        for stopped_too in (True, False) if guest.running else (True,):
            sums[guest.node, stopped_too, "vCPUs"] += t.cast("int", guest.cores)
            sums[guest.node, stopped_too, "memory"] += guest.memory
    for decision, in_force in state.decided:
        request, node = decision.request, state.nodes.get(decision.node)
        if node is None:
            continue
        for rule, what, size, wanted, limit, own_reserve, own_ratio in (
            ("CPUOvercommit", "vCPUs", node.cores, request.cores, in_force.cpu, node.reserved_cores, node.cpu_ratio),
            ("MemoryOvercommit", "memory", node.memory, request.memory, in_force.memory, node.reserved_memory,
             node.memory_ratio),
        ):  # fmt: skip
            if rule in in_force.rules:
                left = size - (limit.reserved if own_reserve is None else own_reserve)
                ratio = _ratio(limit, request) if own_ratio is None else own_ratio
                taken = sums[node.name, limit.include_stopped, what]
                yield Claim(f"{what} of {node.name}", _room(ratio * max(left, 0.0), taken), wanted)


def _ratio(limit: Overcommit, request: Request) -> float:
    if request.pool in limit.pools:
        return limit.pools[t.cast("str", request.pool)]
    return min((limit.tags[tag] for tag in request.tags if tag in limit.tags), default=limit.ratio)


def _counts(state: State) -> Iterator[Claim]:
    held = Counter(guest.node for guest in state.guests)
    tagged = Counter((guest.node, tag) for guest in state.guests for tag in guest.tags)
    for decision, in_force, _guest in state.under("GuestLimit"):
        node = decision.node
        if in_force.max_guests is not None:
            yield Claim(f"guests of {node}", in_force.max_guests - held[node], 1)
        for tag in decision.request.tags & in_force.max_tagged.keys():
            yield Claim(f"guests of {node} with tag {tag}", in_force.max_tagged[tag] - tagged[node, tag], 1)


def _space(state: State) -> Iterator[Claim]:
    place = {(row.name, row.node): (row.name, "" if row.shared else row.node) for row in state.snapshot.storages}
    total: Counter[tuple[str, str]] = Counter()
    used: Counter[tuple[str, str]] = Counter()
    for row in state.snapshot.storages:
        key = place[row.name, row.node]
        total[key], used[key] = max(total[key], row.total), max(used[key], row.used)
    for guest in state.snapshot.guests:
        for at, size in guest.storage_pending.items():
            if at in place:
                used[place[at]] += size
    for decision, in_force, _guest in state.under("VolumeBinding"):
        for drive in _drives(decision, state.snapshot.volumes):
            found = place.get((decision.storages.get(drive.slot, ""), decision.node))
            if found is not None and drive.size:
                wanted = in_force.storage_classes.get(drive.storage_class or "", StorageClass(""))
                reserved = wanted.reserved * total[found] if wanted.reserved < 1 else wanted.reserved
                limit = total[found] * wanted.overcommit - reserved
                where = f" on {found[1]}" if found[1] else ""
                yield Claim(f"storage {found[0]}{where}", _room(limit, used[found]), drive.size)


def _devices(state: State) -> Iterator[Claim]:
    rows = {(each.node, each.driver, each.mapping, each.id): each for each in state.snapshot.devices}
    booked = Counter((guest.node, *device) for guest in state.snapshot.guests for device in guest.devices)
    for decision, _in_force, _guest in state.under("DeviceClaims"):
        for got in decision.devices:
            row = rows.get((decision.node, got.driver, got.mapping, got.device))
            if row is not None:
                left = row.capacity - row.in_use - booked[decision.node, got.driver, got.device]
                yield Claim(f"device {got.driver}/{got.device} of {decision.node}", left, 1)


# Single decisions: identity, node, storages and devices.


def identity(state: State) -> Iterator[str]:
    """Decisions whose VMIDs or names belong to others."""
    taken = state.snapshot.vmids_unseen | {guest.vmid for guest in state.snapshot.guests}
    names = {guest.name for guest in state.snapshot.guests if guest.kind == "qemu" and guest.status != "assumed"}
    vmids = Counter(decision.vmid for decision, _in_force in state.decided)
    named = Counter(decision.request.name for decision, _in_force in state.decided)
    for placed in state.placed:
        decision, in_force, _guest = placed
        if decision.vmid in taken or vmids[decision.vmid] > 1:
            yield f"{placed}: its VMID is taken"
        if decision.request.vmid not in (None, decision.vmid):
            yield f"{placed}: VMID {decision.request.vmid} was requested"
        if NAMES in in_force.rules and (decision.request.name in names or named[decision.request.name] > 1):
            yield f"{placed}: its name is taken"


def node(state: State) -> Iterator[str]:
    """Decisions for nodes that the request, or the node itself, forbids."""
    for placed in state.placed:
        node, request, in_force = state.nodes.get(placed.guest.node), placed.decision.request, placed.in_force
        if node is None:
            yield f"{placed}: there is no such node"
            continue
        name, regex, required = _asked_nodes(request)
        holds = {
            "NodeReady": node.online and not (node.maintenance or node.drained) and node.memory > 0,
            "NodeName": name in (None, node.name),
            "NodeRegex": not regex or name_pattern(regex).matches(node.name),
            "NodeAffinity": all(_matches(expression, node) for expression in required),
            "TaintToleration": _tolerated(request, node),
            "VCPULimit": not node.cores or max(request.cores, request.cores_max) <= node.cores,
        }
        yield from (f"{placed}: {rule} does not hold" for rule in holds if rule in in_force.rules and not holds[rule])


def _asked_nodes(request: Request) -> tuple[str | None, str | None, tuple[Expression, ...]]:
    """The name, the pattern and the expressions by which a request asks for nodes."""
    regex = request.node_regex or request.context.get("node.qemu-scheduler/regex")
    return request.node, regex, request.node_required


def _matches(expression: Expression, node: Node) -> bool:
    """Whether an expression holds for a node, by Kubernetes' rules."""
    value, values = _label(node, expression.key), expression.values
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


def _label(node: Node, key: str) -> str | None:
    """The node's label; its name is one, too."""
    return node.name if key == "node" else node.labels.get(key)


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


class _Drive(t.NamedTuple):
    """A drive that a decision makes: storage is the one that it must be on, if any, others are the slots of drives that
    must be there, too.
    """

    slot: str
    size: int
    storage: str | None
    storage_class: str | None
    content: str = "images"
    others: tuple[str, ...] = ()


def _drives(decision: Decision, volumes: Mapping[tuple[str, str], int | None]) -> Iterator[_Drive]:
    """The drives that a decision makes; volumes are the sizes of images, as in the snapshot."""
    request, clone, template = decision.request, decision.request.clone, decision.template
    asked = {disk.slot: disk for disk in request.disks}
    if clone is not None and template is not None:
        for slot, storage, size in template.volumes:
            disk = asked.pop(slot, None)
            wanted = disk.size if disk else 0
            copied = clone.full or slot in template.copied
            target = (clone.storage if clone.full else None) or storage
            grown = max(size, wanted) if copied else max(wanted - size, 0)
            yield _Drive(slot, grown, target, disk.storage_class if disk else None)
    for disk in asked.values():
        if disk.volume is None:
            image = volumes.get((decision.node, disk.source)) if disk.source else None
            size = max(disk.size, image or 0)
            yield _Drive(disk.slot, size, disk.storage, disk.storage_class, disk.content, disk.others)


def volumes(state: State) -> Iterator[str]:
    """Drives, images and templates that are not on a suitable storage."""
    rows = {(row.name, row.node): row for row in state.snapshot.storages}
    for placed in state.under("VolumeBinding"):
        decision, in_force, _guest = placed
        node, volumes = decision.node, state.snapshot.volumes
        for drive in _drives(decision, volumes):
            storage = decision.storages.get(drive.slot)
            row = rows.get((storage or "", node))
            wanted = in_force.storage_classes.get(drive.storage_class or "", StorageClass(""))
            if row is None or not row.active or drive.content not in row.content:
                yield f"{placed}: {drive.slot} cannot be on storage {storage}"
            elif drive.storage not in (None, storage):
                yield f"{placed}: {drive.slot} is on storage {storage}, not on {drive.storage}"
            elif (
                wanted.shared not in (None, row.shared)
                or (wanted.types and row.type not in wanted.types)
                or (wanted.storages and not any(name_pattern(each).matches(row.name) for each in wanted.storages))
            ):
                yield f"{placed}: storage {storage} of {drive.slot} is not in class {wanted.name}"
            for other in drive.others:
                if decision.storages.get(other) != storage:
                    yield f"{placed}: {other} is not on storage {storage}, where {drive.slot} is"
        cloned = {slot for slot, _storage, _size in decision.template.volumes} if decision.template else set()
        for disk in decision.request.disks:
            for volume in filter(None, (disk.volume, disk.source) if disk.slot not in cloned else ()):
                row = rows.get((volume.partition(":")[0], node))
                if volumes.get((node, volume), 0) is None or (":" in volume and (row is None or not row.active)):
                    yield f"{placed}: {volume} is not there"
    for placed in state.under("TemplateLocality"):
        template, node = placed.decision.template, placed.decision.node
        for _slot, storage, _size in template.volumes if template and template.node != node else ():
            row = rows.get((storage, node))
            if row is None or not row.shared:
                yield f"{placed}: storage {storage} of its template on {template and template.node} is local"


def hardware(state: State) -> Iterator[str]:
    """Claims without devices, and devices that do not meet their claims."""
    faults = {(each.node, each.driver, each.mapping, each.id): each.fault for each in state.snapshot.devices}
    holders = [(guest.node, *device) for guest in state.snapshot.guests for device in guest.devices]
    under = state.under("DeviceClaims")
    holders += [(each.guest.node, got.driver, got.device) for each in under for got in each.decision.devices]
    ids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for node, driver, device in holders:
        for address in _addresses(device) if driver == "pci" else ():
            ids[node, address.partition(".")[0]].add(device)
    for placed in under:
        decision = placed.decision
        for claim in decision.request.devices:
            got = [each for each in decision.devices if each.claim == claim.name]
            if len(got) not in {each.count for each in claim.one_of or (claim,)}:
                yield f"{placed}: device claim {claim.name} is not met"
        for each in decision.devices:
            if each.node != decision.node or faults.get((each.node, each.driver, each.mapping, each.device), "-"):
                yield f"{placed}: device {each.device} of mapping {each.mapping} cannot be used"
            cards = {address.partition(".")[0] for address in _addresses(each.device)} if each.driver == "pci" else ()
            others = {other for card in cards for other in ids[decision.node, card]} - {each.device}
            if any(_overlap(a, b) for other in others for a in _addresses(other) for b in _addresses(each.device)):
                yield f"{placed}: device {each.device} is a part of another one that is taken"


def _addresses(device: str) -> list[str]:
    return device.partition("/")[0].split(";")


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


# Relations to other guests: affinity, spread and the rules of the HA manager.


def _selects(selector: Selector, guest: Guest) -> bool:
    return (
        selector.pool in (None, guest.pool)
        and selector.group in (None, guest.group)
        and {tag.lower() for tag in selector.tags} <= {tag.lower() for tag in guest.tags}
        and (selector.name is None or (guest.name is not None and name_pattern(selector.name).matches(guest.name)))
    )


def _count(nodes: Mapping[str, Node], guests: Iterable[Guest], selector: Selector, key: str) -> Counter[str]:
    """How many of the guests are selected in each domain, over these nodes."""
    found = (_label(nodes[guest.node], key) for guest in guests if guest.node in nodes and _selects(selector, guest))
    return Counter(domain for domain in found if domain is not None)


def affinity(state: State) -> Iterator[str]:
    """Decisions that break a required affinity or anti-affinity term."""
    under, nodes = state.under("VMAffinity"), state.nodes
    every, bound = [placed.guest for placed in state.placed], [placed.guest for placed in under]
    terms = {term for placed in under for term in placed.decision.request.affinity if term.required}
    before = {term: _count(nodes, state.guests, term.selector, term.topology_key) for term in terms}
    beside = {
        term: _count(nodes, every if term.together else bound, term.selector, term.topology_key) for term in terms
    }
    kept = {
        (term, _label(nodes[guest.node], term.topology_key))
        for guest in state.guests
        for term in (guest.constraints.affinity if guest.node in nodes else ())
        if term.required and not term.together
    }
    first: Counter[frozenset[AffinityTerm]] = Counter()
    for placed in under:
        me, host = placed.guest, nodes.get(placed.guest.node, Node(placed.guest.node))
        required = [term for term in placed.decision.request.affinity if term.required]
        near = {
            term: before[term][domain] + beside[term][domain] > _selects(term.selector, me)
            for term in required
            if (domain := _label(host, term.topology_key)) is not None
        }
        beside_me = any(others and not term.together for term, others in near.items())
        if beside_me or any(
            domain is not None and domain == _label(host, term.topology_key) and _selects(term.selector, me)
            for term, domain in kept
        ):
            yield f"{placed}: is not apart from VMs that it must be apart from"
        together = frozenset(term for term in required if term.together)
        if not all(near.get(term) for term in together):
            # The first of its kind may be alone, where it is among those that it must be with.
            first[together] += 1
            kind = all(_selects(term.selector, me) and term in near and not before[term] for term in together)
            if first[together] > 1 or not kind:
                yield f"{placed}: is not with the VMs that it must be with"


def spread(state: State) -> Iterator[str]:
    """Decisions that exceed the skew of a required spread constraint."""
    kinds: dict[tuple[t.Any, ...], list[Placed]] = defaultdict(list)
    for placed in state.under("TopologySpread"):
        request = placed.decision.request
        hard = tuple(constraint for constraint in request.topology_spread if constraint.hard)
        kinds[hard, *_asked_nodes(request)].append(placed)
    for (hard, name, regex, required), alike in kinds.items():
        nodes = {
            node.name: node
            for node in state.nodes.values()
            if name in (None, node.name)
            and (not regex or name_pattern(regex).matches(node.name))
            and all(_matches(expression, node) for expression in required)
            and all(_label(node, constraint.topology_key) is not None for constraint in hard)
        }
        theirs = {id(placed) for placed in alike}
        for constraint in hard:
            key = constraint.topology_key
            kept = _count(nodes, [*state.guests, *(placed.guest for placed in alike)], constraint.selector, key)
            # VMs that the constraint does not bind may have come later.
            free = (placed.guest for placed in state.placed if id(placed) not in theirs)
            late = _count(nodes, free, constraint.selector, key)
            domains = {_label(node, key) or "" for node in nodes.values()}
            lowest = min((kept[domain] + late[domain] for domain in domains), default=0)
            for placed in alike:
                domain = _label(state.nodes.get(placed.guest.node, Node(placed.guest.node)), key)
                if domain is None or kept[domain] - lowest > constraint.max_skew:
                    yield f"{placed}: is not spread over {key} within {constraint.max_skew}"


def ha(state: State) -> Iterator[str]:
    """Decisions that the HA manager would undo by moving the VM."""
    rules = {rule.name: rule for rule in state.snapshot.ha_rules if not rule.disabled}
    before = {guest.vmid for guest in state.snapshot.guests}
    on: dict[str, set[int]] = defaultdict(set)
    members = {name: set(rule.vmids) for name, rule in rules.items()}
    for guest in (*state.snapshot.guests, *(placed.guest for placed in state.placed)):
        on[guest.node].add(guest.vmid)
        intent = guest.constraints.ha
        if intent is not None and intent.joins in members:
            members[intent.joins].add(guest.vmid)
    bound: dict[str, dict[int, Placed]] = {name: {} for name in rules}
    for placed in state.under("HARules"):
        request = placed.decision.request
        for name, rule in rules.items():
            if request.ha is not None and (request.ha.joins == name or request.vmid in rule.vmids):
                bound[name][placed.guest.vmid] = placed
    positive = [members[name] for name, rule in rules.items() if rule.type == "resource-affinity" and rule.positive]
    for name, rule in rules.items():
        alone = []
        for vmid, placed in bound[name].items():
            here = on[placed.guest.node] - {vmid}
            kept = _kept_together(positive, vmid)
            if rule.type == "node-affinity":
                own = [each for each in rules if rules[each].type == rule.type and vmid in bound[each]]
                if rule.strict and placed.guest.node not in rule.nodes and own == [name]:
                    yield f"{placed}: is not on a node of HA rule {name}"
            elif rule.positive and not here & kept:
                alone.append(placed)
            elif not rule.positive and here & (before | bound[name].keys()) & members[name] - kept:
                yield f"{placed}: is not apart from the VMs of HA rule {name}"
        if len(alone) > (not members[name] & before):
            yield from (f"{placed}: is not with the VMs of HA rule {name}" for placed in alone)


def _kept_together(positive: Iterable[set[int]], vmid: int) -> set[int]:
    """The VM and all that HA rules keep with it, directly or through others."""
    group = {vmid}
    while len(larger := group.union(*(members for members in positive if members & group))) > len(group):
        group = larger
    return group
