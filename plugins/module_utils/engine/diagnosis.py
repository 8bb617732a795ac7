# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a request was not placed: its outcome, with a message in the style of Kubernetes."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ..errors import CollectionError, NoNodesAvailable, NoStorageAvailable, PluginFailed
from ..model import Request
from .framework.status import Category, Code, Status
from .texts import first
from .verdicts import Outcome, Verdicts

_DETAILED = frozenset({Category.STORAGE, Category.DEVICE, Category.PLACEMENT})
"""Messages include the details of rejections of these categories."""

NODES_NAMED = 5
"""How many nodes a message names for each reason."""

DETAILS_TOLD = 5
"""How many different details a message names; the verdicts contain all."""


def unplaceable_outcome(
    request: Request,
    rejections: Mapping[str, Status],
    looked: Verdicts,
    findings: Mapping[str, t.Any],
    *,
    resolvable: bool,
    unknown: Sequence[str],
) -> Outcome:
    """Return the outcome of a request that does not fit on any node; rejections has one entry per node, by name.

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


def not_reserved_outcome(request: Request, node: str, rejection: Status, looked: Verdicts) -> Outcome:
    """Return the outcome of a request for which a Reserve plugin refused the chosen node."""
    return Outcome(
        request,
        error=NoNodesAvailable(
            f'VM "{request.name}" could not be reserved on {node}: {rejection.plugin}: {rejection.text}'
        ),
        looked=looked,
        rejected_by=frozenset({rejection.plugin}),
        resolvable=rejection.code is Code.UNSCHEDULABLE,
    )


def not_permitted_outcome(outcome: Outcome, rejection: Status) -> Outcome:
    """Return the outcome of a request that was placed and then rejected by a Permit plugin."""
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
    """Return the error for a request that no node takes: its reasons with their nodes, the most frequent first."""
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
