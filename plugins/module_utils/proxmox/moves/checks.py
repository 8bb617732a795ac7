# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what Proxmox's own check before a move says, C(GET .../migrate). Pure."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping

from ..contract import CHECK, LOCAL_DISK, NOT_ALLOWED, unknown_in
from .mobility_ha import UPDATE, Cause


def unknown_in_check(check: Mapping[str, t.Any], kind: str) -> Cause | None:
    """Return what the check of Proxmox says that this version does not know."""
    unknown = unknown_in(check, CHECK[kind])
    for row in check.get("local_disks") or ():
        unknown = unknown or unknown_in(row, LOCAL_DISK)
    if not unknown:
        return None
    return f"the check of Proxmox VE before a move has {unknown}, which this version does not know", UPDATE


def unexplained_refusal(check: Mapping[str, t.Any], kind: str, target: str) -> str | None:
    """Return what the check of Proxmox may have against a node that this version does not know."""
    why = unknown_in_check(check, kind)
    if why is not None:
        return why[0]
    reasons = refusals_in(check).get(target) or {}
    if unknown := unknown_in(reasons, NOT_ALLOWED):
        return f"Proxmox VE refuses {target} for a reason that this version does not know, {unknown}"
    allowed = allowed_nodes(check)
    if allowed is not None and not reasons and target not in allowed:
        return f"{target} is not among the nodes that Proxmox VE allows"
    return None


def refusals_in(check: Mapping[str, t.Any]) -> Mapping[str, t.Any]:
    """Return the nodes that the check refuses, each with its reasons."""
    return check.get("not_allowed_nodes") or check.get("not-allowed-nodes") or {}


def allowed_nodes(check: Mapping[str, t.Any]) -> Collection[str] | None:
    """Return the nodes that the check allows; None if it does not tell."""
    allowed: Collection[str] | None = check.get("allowed_nodes", check.get("allowed-nodes"))
    return allowed
