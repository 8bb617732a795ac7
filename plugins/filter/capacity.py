# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A filter that formats the result of capacity_info as lines of plain text."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

from ansible.errors import AnsibleFilterError

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.texts import join_words, of_one
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.limits import limit_of
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.tables import EMPTY, table, width_for, wrap


def capacity_table(capacity: Mapping[str, t.Any], width: int | None = None) -> list[str]:
    """Return a sentence and a row per node about how many more VMs fit. capacity is the result of capacity_info."""
    if not isinstance(capacity, Mapping) or "total" not in capacity:
        raise AnsibleFilterError("expected the result of capacity_info")
    shapes = capacity.get("shapes") or []
    of_each = ", ".join(f"{shape['fit']} {shape['name']}" for shape in shapes) if len(shapes) > 1 else ""
    # When one shape no longer fits, others may: a list with three VMs that keep apart says little about its other VMs.
    first = f"{capacity['total']} more fit" + (f" if placed in turn until one does not ({of_each})" if of_each else "")
    if capacity.get("limited_by"):
        first += f", limited by {limit_of(capacity['limited_by'])}"
    if capacity.get("n_plus_one_counts"):
        first += f"; the loss of a node was checked for {capacity['n_plus_one_counts']}"
    rest = [_more(shape) for shape in shapes if shape.get("more")] if len(shapes) > 1 else []
    rows = [("NODE", "FIT", "LIMITED BY", "WHY NO MORE")] + [
        (node["node"], str(node["fit"]), limit_of(node.get("limited_by") or EMPTY), of_one(node.get("reason") or EMPTY))
        for node in capacity["nodes"]
    ]
    size = width_for(width)
    after = wrap(f"After these, {join_words(rest)} fit", size) if rest else []
    return [*wrap(first, size), *after, *table(rows, size)]


def _more(shape: Mapping[str, t.Any]) -> str:
    limit = f" (limited by {limit_of(shape['limited_by'])})" if shape.get("limited_by") else ""
    return f"{shape['more']} more {shape['name']}{limit}"


class FilterModule:
    """The filter by its name."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        return {"capacity_table": capacity_table}
