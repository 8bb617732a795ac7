# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random clusters and requests for property tests, and simple checks of the rules."""

from __future__ import annotations

import re

from hypothesis import strategies as st

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    Decision,
    Disk,
    Expression,
    Guest,
    Node,
    Request,
    Selector,
    Snapshot,
    SpreadConstraint,
    Storage,
    Taint,
    Toleration,
)

KEYS = st.sampled_from(["node", "zone", "rack"])
SELECTORS = st.sampled_from(
    [Selector(name="web-.*"), Selector(name="db-.*"), Selector(tags=frozenset({"blue"})), Selector(pool="prod")]
)
# What is not a plain choice is made once: hypothesis looks into each strategy, which takes longer than to draw from it.
LABELS = st.fixed_dictionaries({}, optional={"zone": st.sampled_from("ab"), "rack": st.sampled_from("xyz")})
TAINT = Taint("gpu", "yes")
SOFT_TAINT = Taint("slow", effect="PreferNoSchedule")


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """One to five unlike nodes, a few guests, a local storage per node and a shared one."""
    names = [f"pve{number}" for number in range(draw(st.integers(1, 5)))]
    nodes = tuple(
        Node(
            name,
            online=draw(st.sampled_from([True, True, True, False])),
            cores=draw(st.integers(1, 6)),
            memory=draw(st.integers(2, 8)) * GIB,
            labels=draw(LABELS),
            taints=draw(st.sampled_from([(), (), (TAINT,), (SOFT_TAINT,)])),
        )
        for name in names
    )
    local = tuple(Storage("local", name, total=draw(st.integers(1, 30)) * GIB) for name in names)
    shared = tuple(Storage("ceph", name, "rbd", shared=True, total=20 * GIB) for name in names)
    guests = tuple(
        Guest(
            100 + 2 * number,
            draw(st.sampled_from(["web-old", "db-old", None])),
            draw(st.sampled_from(names)),
            status=draw(st.sampled_from(["running", "stopped"])),
            template=draw(st.booleans()),
            cores=1,
            memory=GIB,
            tags=draw(st.sampled_from([frozenset(), frozenset({"blue"})])),
        )
        for number in range(draw(st.integers(0, 5)))
    )
    return Snapshot(nodes=nodes, guests=guests, storages=local + shared)


TERMS = st.builds(
    AffinityTerm,
    together=st.booleans(),
    selector=SELECTORS,
    required=st.booleans(),
    topology_key=KEYS,
    weight=st.integers(1, 100),
)
SPREADS = st.builds(
    SpreadConstraint, topology_key=KEYS, selector=SELECTORS, max_skew=st.integers(1, 2), hard=st.booleans()
)
KNOWN_EXPRESSIONS = (Expression("zone", "In", ("a",)), Expression("rack", "Exists"))
EXPRESSIONS = (*KNOWN_EXPRESSIONS, Expression("x", "Exists"))
AFFINITY = st.lists(TERMS, max_size=2)
SPREAD = st.lists(SPREADS, max_size=2)
REQUIRED = st.lists(st.sampled_from(KNOWN_EXPRESSIONS), max_size=1)
PREFERRED = st.lists(st.sampled_from(EXPRESSIONS), max_size=2)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """A small VM with some rules; the sizes are few, so that requests share evaluations."""
    return Request(
        name=f"{draw(st.sampled_from(['web', 'db', 'app']))}-{draw(st.integers(0, 2))}",
        cores=draw(st.integers(1, 2)),
        memory=draw(st.integers(1, 2)) * GIB,
        disks=draw(
            st.sampled_from([(), (), (Disk("scsi0", GIB),), (Disk("scsi0", 3 * GIB, "ceph"), Disk("scsi1", GIB))])
        ),
        tags=draw(st.sampled_from([frozenset(), frozenset({"blue"})])),
        pool=draw(st.sampled_from([None, "prod"])),
        affinity=tuple(draw(AFFINITY)),
        topology_spread=tuple(draw(SPREAD)),
        node_required=tuple(draw(REQUIRED)),
        node_preferred=tuple(draw(PREFERRED)),
        tolerations=draw(st.sampled_from([(), (Toleration(operator="Exists"),)])),
    )


def broken_rules(snapshot: Snapshot, placed: list[Decision], decision: Decision) -> list[str]:
    """The required rules that decision breaks, with placed already there: by counting guests one by one."""
    request = decision.request
    nodes = {node.name: node for node in snapshot.nodes}
    there = [(g.name, g.tags, g.pool, g.node) for g in snapshot.guests if not g.template]
    there += [(d.request.name, d.request.tags, d.request.pool, d.node) for d in placed]
    me = (request.name, request.tags, request.pool, decision.node)
    broken = []
    for term in (term for term in request.affinity if term.required):
        near = [
            g for g in there if _selected(term.selector, g) and _same(nodes, term.topology_key, g[3], decision.node)
        ]
        anywhere = [g for g in there if _selected(term.selector, g) and _domain(nodes, term.topology_key, g[3])]
        if term.together and not near and (anywhere or not _selected(term.selector, me)):
            broken.append(f"not with {term}")
        if not term.together and near:
            broken.append(f"not apart from {term}")
    for other in placed:
        for term in (term for term in other.request.affinity if term.required and not term.together):
            if _selected(term.selector, me) and _same(nodes, term.topology_key, other.node, decision.node):
                broken.append(f"{other.request.name} wants to be apart: {term}")
    for constraint in (constraint for constraint in request.topology_spread if constraint.hard):
        if _skew(request, nodes, constraint, [*there, me], decision.node) > constraint.max_skew:
            broken.append(f"skewed: {constraint}")
    if TAINT in nodes[decision.node].taints and not request.tolerations:
        broken.append("taint")
    if not all(_allows(expression, nodes[decision.node]) for expression in request.node_required):
        broken.append("node affinity")
    return broken


Placed = tuple[str | None, frozenset[str], str | None, str]


def _selected(selector: Selector, guest: Placed) -> bool:
    name, tags, pool, _node = guest
    return (
        (selector.name is None or bool(name and re.fullmatch(selector.name, name)))
        and selector.tags <= tags
        and selector.pool in (None, pool)
    )


def _domain(nodes: dict[str, Node], key: str, name: str) -> str | None:
    return name if key == "node" else nodes[name].labels.get(key)


def _same(nodes: dict[str, Node], key: str, one: str, other: str) -> bool:
    return _domain(nodes, key, one) is not None and _domain(nodes, key, one) == _domain(nodes, key, other)


def _allows(expression: Expression, node: Node) -> bool:
    value = node.labels.get(expression.key)
    return value in expression.values if expression.operator == "In" else value is not None


def _skew(
    request: Request, nodes: dict[str, Node], constraint: SpreadConstraint, there: list[Placed], at: str
) -> float:
    """How many more guests the domain of at has than the emptiest one, including the request; inf without a domain."""
    hard = [constraint.topology_key for constraint in request.topology_spread if constraint.hard]
    allowed = [
        node
        for node in nodes.values()
        if all(_allows(expression, node) for expression in request.node_required)
        and all(_domain(nodes, key, node.name) is not None for key in hard)
    ]
    counts = {_domain(nodes, constraint.topology_key, node.name): 0 for node in allowed}
    for guest in there:
        if _selected(constraint.selector, guest) and guest[3] in {node.name for node in allowed}:
            counts[_domain(nodes, constraint.topology_key, guest[3])] += 1
    mine = _domain(nodes, constraint.topology_key, at)
    if mine not in counts:
        return float("inf")
    others = [count for domain, count in counts.items() if domain != mine]
    itself = _selected(constraint.selector, (request.name, request.tags, request.pool, at))
    return counts[mine] - min([*others, counts[mine] - itself])
