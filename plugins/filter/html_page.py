# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A filter that makes an HTML page of the result of a module of this collection."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from ansible.errors import AnsibleFilterError

Data = Mapping[str, t.Any]


def html_page(result: Data, *, cluster: str | Sequence[str] = "", job: str = "") -> str:
    """Return the page of a result, which may be that of a failed task. It shows cluster, a name or addresses, and job.

    Raises AnsibleFilterError, with the message of the task if it failed before it had anything to show.
    """
    # Ansible imports this file in each worker that looks for a filter.
    from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.pages.capacity import capacity
    from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.pages.fleet import fleet
    from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.pages.moves import moves
    from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.pages.placement import placement
    from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.pages.render import render
    from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.pages.tour import tour

    if not isinstance(result, Mapping):
        raise AnsibleFilterError("expected the result of a module of this collection")
    time = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    name = cluster if isinstance(cluster, str) else ", ".join(cluster)
    # A plan on its own has not been carried out.
    plan_only = bool(result.get("check_mode", True))
    about = {"cluster": name, "job": job, "plan_only": plan_only, "time": time}
    if {"vms", "summary", "unmanaged"} <= result.keys():
        view = fleet(result)
        about["cluster"] = ", ".join(view["clusters"]) or name
        return render("fleet.html.j2", view, about)
    if "vms" in result:
        view = placement(result)
        room = moves(result, plan_only=plan_only) if "plan" in result else None
        about["cluster"] = ", ".join(view["clusters"]) or name
        return render("placement.html.j2", {**view, "room": room}, about)
    if {"total", "nodes", "limited_by"} <= result.keys():
        return render("capacity.html.j2", capacity(result), about)
    if "tour" in result:
        return render("tour.html.j2", tour(result), about)
    return render("moves.html.j2", moves(result, plan_only=plan_only), about)


class FilterModule:
    """The filter by its name."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        return {"html_page": html_page}
