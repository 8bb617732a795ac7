# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option C(clusters): the clusters that a task chooses from, and connecting to all of them at once."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ...engine.node_selection import CLUSTER_KEY
from ...errors import CollectionError, ConnectionFailed, InvalidRequest
from ...model import Node
from ...proxmox.api.failures import WrongConnection
from ...proxmox.api.reader import in_parallel
from ...proxmox.api.session import connection_argument_spec
from ...proxmox.options.values import invalid
from ..access import Access
from ..options.metrics import METRICS
from ..options.rules import facts_of, labels_of

Facts = Callable[[Collection[Node]], Mapping[str, Mapping[str, t.Any]]]

CONNECT_WITHIN = 2.0
"""Seconds to wait for the first connection to a host of one of several clusters, as a cluster that is down delays the
others.
"""

OF_ONE_CLUSTER = {
    "snapshot": "clusters[].snapshot",
    "nodes": "clusters[].nodes",
    METRICS: "clusters[].metrics",
    "address_pools": "pools only in tasks about one cluster",
    **dict.fromkeys(("make_room", "plan_file", "apply"), "it only in tasks about one cluster"),
}
"""Options about one cluster, and what to use instead if there are several."""

_PASSWORD, _TOKEN = ("api_password",), ("api_token_id", "api_token_secret")


@dataclass(frozen=True, slots=True)
class Cluster:
    """One of the clusters of a task.

    Attributes:
        labels: its cluster labels; all of its nodes have them, and CLUSTER_KEY.
        params: the options of the task as they are for this cluster.
        facts: returns what the user configured about its nodes.
    """

    name: str
    labels: Mapping[str, str]
    params: Mapping[str, t.Any]
    facts: Facts


def clusters_of(params: Mapping[str, t.Any]) -> list[Cluster]:
    """Return the clusters of a task, in order of name. Raises InvalidRequest for invalid options, and for those that
    cannot be used with several clusters.
    """
    bodies: Sequence[Mapping[str, t.Any]] = params["clusters"]
    if not bodies:
        raise invalid("clusters", bodies, "one cluster or more")
    for option, instead in OF_ONE_CLUSTER.items():
        if params.get(option):
            raise InvalidRequest(f"{option}: cannot be used together with clusters; expected {instead}")
    for number, rule in enumerate(params.get("rules") or ()):
        if rule.get("nodes"):
            raise InvalidRequest(f"rules[{number}].nodes: cannot be used together with clusters: node names may repeat")
    twice = [name for name, count in Counter(body["name"] for body in bodies).items() if count > 1]
    if twice:
        raise InvalidRequest(f"clusters: {twice[0]!r} is the name of several clusters, expected different names")
    if len({body.get("snapshot") is None for body in bodies}) > 1:
        raise InvalidRequest("clusters: some have a snapshot and some have none, expected all of them or none")
    clusters = [_cluster(f"clusters[{number}]", body, params) for number, body in enumerate(bodies)]
    return sorted(clusters, key=lambda cluster: cluster.name)


def connect(clusters: Sequence[Cluster]) -> tuple[dict[str, Access], dict[str, ConnectionFailed]]:
    """Connect to all clusters at the same time. Return those that answer, and the errors of the others, by name.

    Raises InvalidRequest for two names of one cluster, and errors about the options or credentials of a cluster.
    """
    answers = in_parallel(lambda number: _connect(clusters[number]), range(len(clusters)))
    named = {clusters[number].name: answer for number, answer in answers.items()}
    found = {name: answer for name, answer in named.items() if isinstance(answer, Access)}
    silent = {name: answer for name, answer in named.items() if _is_outage(answer)}
    try:
        for answer in answers.values():
            if isinstance(answer, CollectionError) and not _is_outage(answer):
                raise answer
        _check_different(found)
    except CollectionError:
        for access in found.values():
            access.close()
        raise
    return found, silent


def _cluster(where: str, body: Mapping[str, t.Any], params: Mapping[str, t.Any]) -> Cluster:
    """Return one cluster of the task, with the options of the task where it has none. Raises InvalidRequest."""
    name = body["name"]
    if not name:
        raise invalid(f"{where}.name", name, "a name for the cluster, such as 'paris'")
    if not body.get("api_host") and body.get("snapshot") is None:
        raise InvalidRequest(f"{where}.api_host: is missing for cluster {name!r}, expected a node of that cluster")
    labels = labels_of(f"{where}.labels", body.get("labels") or {})
    if CLUSTER_KEY in labels:
        raise invalid(f"{where}.labels.{CLUSTER_KEY}", labels[CLUSTER_KEY], "another key: this one is the name itself")
    own = {key: value for key, value in body.items() if value is not None and key in connection_argument_spec()}
    common = dict(params)
    # Of a cluster with a token of its own, the password of others is none of its credentials.
    for given, unused in ((_PASSWORD, _TOKEN), (_TOKEN, _PASSWORD)):
        if any(key in own for key in given):
            common.update(dict.fromkeys(unused))
    merged = {**common, "snapshot": body.get("snapshot"), METRICS: body.get(METRICS)}
    merged |= {"connect_timeout": CONNECT_WITHIN, **own}
    return Cluster(name, labels, merged, _with_labels(facts_of(body.get("nodes")), {**labels, CLUSTER_KEY: name}))


def _with_labels(facts: Facts, labels: Mapping[str, str]) -> Facts:
    """Return the facts of nodes that have the labels of their cluster as well."""

    def facts_with_labels(nodes: Collection[Node]) -> Mapping[str, Mapping[str, t.Any]]:
        said = facts(nodes)
        own = {node.name: said.get(node.name, {}) for node in nodes}
        return {name: {**each, "labels": {**each.get("labels", {}), **labels}} for name, each in own.items()}

    return facts_with_labels


def _connect(cluster: Cluster) -> Access | CollectionError:
    """Connect to a cluster. Returns the error if that is impossible."""
    access: Access | None = None
    try:
        access = Access.open(cluster.params, cluster.facts)
        if not access.offline:
            access.reader.get("/version")
            access.identity()
    except CollectionError as error:
        if access is not None:
            access.close()
        if not _is_outage(error):
            error.args = (f"cluster {cluster.name!r}: {error.message}", *error.args[1:])
        return error
    return access


def _is_outage(answer: Access | CollectionError) -> t.TypeGuard[ConnectionFailed]:
    """Whether a cluster does not answer, rather than that the connection options are wrong."""
    return isinstance(answer, ConnectionFailed) and not isinstance(answer, WrongConnection)


def _check_different(found: Mapping[str, Access]) -> None:
    """Refuse two names of one cluster, which would count twice."""
    names: dict[str, str] = {}
    for name, access in found.items():
        if access.offline:
            continue
        other = names.setdefault(access.identity(), name)
        if other != name:
            raise InvalidRequest(f"clusters: {other!r} and {name!r} are the same cluster ({access.identity()})")
