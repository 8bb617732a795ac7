# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compact forms of a scheduler's outcomes, for assertions: nodes, reasons and scores."""

from __future__ import annotations

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.verdicts import Outcome
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Request


def went_to(where: Scheduler, *requests: Request) -> list[str | None]:
    """Place the requests one after the other; return the node of each, None where there is none."""
    decisions = [where.schedule(request).decision for request in requests]
    return [None if decision is None else decision.node for decision in decisions]


def allowed(outcome: Outcome) -> set[str]:
    return {verdict.node for verdict in outcome.verdicts() if verdict.status is None}


def reasons(outcome: Outcome, plugin: str) -> dict[str, str | None]:
    """The reason of each node that plugin rejected."""
    return {v.node: v.reason for v in outcome.verdicts() if v.rejected_by == plugin}


def normalized(outcome: Outcome, plugin: str) -> dict[str, float]:
    """The normalized score of plugin for each node, 0..100, rounded; empty if it was not called."""
    return {v.node: round(v.scores[plugin].normalized, 3) for v in outcome.verdicts() if plugin in v.scores}
