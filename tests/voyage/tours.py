# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tour as the role rolling_maintenance makes it: the same modules in the same order, in one process."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.maintenance.carried_out import carry_out
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.maintenance.tour_planning import (
    plan_maintenance,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.draining import drain_nodes

from .wishes import parameters

Warn = Callable[[str], None]

ACTIVE = "active"
"""The state of a task that takes back what tours have left."""

MAINTAINED = "maintained"


def tour(params: dict[str, t.Any], warn: Warn) -> dict[str, t.Any]:
    """Maintain nodes one after the other, or with the state active take everything back. Raises what the modules raise.

    The result has the nodes that were maintained, in their order.
    """
    steps = _Steps(params, warn)
    if params["state"] == ACTIVE:
        for node in steps.do("recorded")["record"]["begun"]:
            steps.bring_back(node)
        return {**steps.do("ended"), MAINTAINED: []}
    maintained: list[str] = []
    plan = steps.plan()
    for node in plan["unfinished"]:
        steps.bring_back(node)
    while plan["tour"]["steps"]:
        step = plan["tour"]["steps"][0]
        node = step["node"]
        steps.do("begun", node)
        steps.drain(node, "drained", prefer=step["prefer"], stays=[{"vmid": step["stay"]}] if step["stay"] else [])
        steps.do("prepared", node, may_run=step["stay"], apply=plan["tour"])
        maintained.append(node)
        steps.bring_back(node)
        plan = steps.plan()
    return {**steps.do("ended"), "changed": True, MAINTAINED: maintained}


class _Steps:
    """The modules, each with the options of the tour."""

    def __init__(self, params: dict[str, t.Any], warn: Warn) -> None:
        self._params = {**params, "state": "planned"}
        self._drain = {**parameters("node_drain"), "api_token_secret": params["api_token_secret"]}
        self._warn = warn

    def plan(self) -> dict[str, t.Any]:
        return plan_maintenance(dict(self._params), check_mode=False, warn=self._warn)

    def do(self, state: str, node: str = "", **options: t.Any) -> dict[str, t.Any]:
        params = {**self._params, "state": state, "name": [node] if node else [], **options}
        return carry_out(params, check_mode=False, warn=self._warn)

    def drain(self, node: str, state: str, **options: t.Any) -> None:
        params = {**self._drain, "name": [node], "state": state, **options}
        drain_nodes(params, check_mode=False, warn=self._warn)

    def bring_back(self, node: str) -> None:
        self.drain(node, ACTIVE, bring_back=False)
        self.do("finished", node)
