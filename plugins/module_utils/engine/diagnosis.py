# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outcome of a request: as data, and as a message in the style of Kubernetes."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import CollectionError, NoNodesAvailable, NoStorageAvailable, PluginFailed
from ..model import Decision, Request
from .framework.status import Category, Code, Status
from .texts import first
from .verdicts import NodeVerdict, Verdicts

_DETAILED = frozenset({Category.STORAGE, Category.DEVICE, Category.PLACEMENT})
"""Messages include the details of rejections of these categories."""

NODES_NAMED = 5
"""How many nodes a message names for each reason."""

DETAILS_TOLD = 5
"""How many different details a message names; the verdicts contain all."""


class RunnerUp(t.NamedTuple):
    """The second-best node, and how much lower its score is than that of the chosen node."""

    node: str
    distance: float


@dataclass(slots=True)
class Outcome:
    """The outcome of one request.

    Attributes:
        decision: set if the request was placed.
        error: set if it was not placed.
        looked: the verdicts on the nodes; None when the request failed before.
        findings: those of the PostFilter plugins, by plugin.
        rejected_by: the plugins that rejected nodes; an event of one of them may make the request fit.
        resolvable: whether a change in the cluster can help.
        turn: the number of this decision among those of the batch, by the time when they were made; None for a VM
            that has no decision of its own.
        exhausted: whether a search for places of all requests together ended at its limit.
        until: the time at which it fits without any change, on the clock of Request.created; None if there is none.
    """

    request: Request
    decision: Decision | None = None
    error: CollectionError | None = None
    looked: Verdicts | None = None
    findings: Mapping[str, t.Any] = field(default_factory=dict)
    rejected_by: frozenset[str] = frozenset()
    resolvable: bool = False
    turn: int | None = None
    exhausted: bool = False
    until: float | None = None

    def verdicts(self) -> tuple[NodeVerdict, ...]:
        """One verdict per node, in order of name; empty when the request failed before any node was looked at."""
        return self.looked.all() if self.looked is not None else ()

    @property
    def runner_up(self) -> RunnerUp | None:
        """The best of the other nodes that passed; None when none did, or the request was not placed."""
        decision = self.decision
        if decision is None:
            return None
        best = self.looked.best(2) if self.looked is not None else []
        second = next((verdict for verdict in best if verdict.node != decision.node), None)
        return None if second is None else RunnerUp(second.node, decision.score - (second.score or 0.0))

    @property
    def message(self) -> str:
        """One sentence: where the VM goes and how far that node leads, or why it is not placed."""
        if self.error is not None:
            return self.error.message
        decision = self.decision
        if decision is None:
            return f'VM "{self.request.name}" was not decided'
        text = f'VM "{self.request.name}" goes to {decision.node} as {decision.vmid} with score {decision.score:.1f}'
        second = self.runner_up
        if second is None:
            return f"{text}: no other node passed"
        if second.distance < 0:
            return f"{text}, {-second.distance:.1f} behind {second.node}, so that all VMs fit"
        lead = f"{second.distance:.1f} ahead of" if second.distance > 0 else "level with"
        return f"{text}, {lead} {second.node}"


def unplaceable(
    request: Request,
    rejections: Mapping[str, Status],
    looked: Verdicts,
    findings: Mapping[str, t.Any],
    *,
    resolvable: bool,
    unknown: Sequence[str],
) -> Outcome:
    """The outcome of a request that does not fit on any node; rejections has one entry per node, by name.

    unknown has a text for each name in the request that the cluster does not have. The error message ends with these
    texts or, without any, with each C(summary) of the findings.
    """
    told = [str(found["summary"]) for found in findings.values() if found.get("summary")]
    return Outcome(
        request,
        error=_error(request, rejections, unknown or told),
        looked=looked,
        findings=findings,
        rejected_by=frozenset(rejection.plugin for rejection in rejections.values()),
        resolvable=resolvable,
        until=min((r.until for r in rejections.values() if r.until is not None), default=None),
    )


def not_reserved(request: Request, node: str, rejection: Status, looked: Verdicts) -> Outcome:
    """The outcome of a request for which a Reserve plugin refused the chosen node."""
    return Outcome(
        request,
        error=NoNodesAvailable(
            f'VM "{request.name}" could not be reserved on {node}: {rejection.plugin}: {rejection.text}'
        ),
        looked=looked,
        rejected_by=frozenset({rejection.plugin}),
        resolvable=rejection.code is Code.UNSCHEDULABLE,
    )


def not_permitted(outcome: Outcome, rejection: Status) -> Outcome:
    """The outcome of a request that was placed and then rejected by a Permit plugin."""
    request = outcome.request
    if rejection.code is Code.ERROR:
        error: CollectionError = PluginFailed(rejection.reason, plugin=rejection.plugin)
    else:
        why = rejection.text or "it waited for other VMs of the run, which were not placed"
        error = NoNodesAvailable(f'VM "{request.name}" was not placed: {rejection.plugin}: {why}')
    return Outcome(
        request,
        error=error,
        looked=outcome.looked,
        rejected_by=frozenset({rejection.plugin}),
        resolvable=rejection.code in (Code.UNSCHEDULABLE, Code.WAIT),
    )


def _error(request: Request, rejections: Mapping[str, Status], advice: Sequence[str]) -> CollectionError:
    nodes: dict[str, list[str]] = {}
    for node, rejection in sorted(rejections.items()):
        nodes.setdefault(rejection.reason, []).append(node)
    reasons = [
        f"{len(names)} node(s) {reason} ({', '.join(first(names, NODES_NAMED))})"
        for reason, names in sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    message = (
        f'0/{len(rejections)} nodes are available for VM "{request.name}": '
        f"{', '.join(reasons) or 'the cluster shows no node'}"
    )
    details = sorted({r.detail for r in rejections.values() if r.category in _DETAILED and r.detail})
    if details:
        more = f"; {len(details) - DETAILS_TOLD} more" if len(details) > DETAILS_TOLD else ""
        message = f"{message}; {'; '.join(details[:DETAILS_TOLD])}{more}"
    message = "; ".join([message, *advice])
    categories = {rejection.category for rejection in rejections.values()} - {Category.PLACEMENT}
    return NoStorageAvailable(message) if categories == {Category.STORAGE} else NoNodesAvailable(message)
