# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shutting a node down, and waking it up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ..errors import die
from ..model import Node
from ..routing import Call, route

POWER_OFF_SECONDS, BOOT_SECONDS = 5, 30

_UNDER_WAY: set[asyncio.Task[None]] = set()


@route("POST", "/nodes/{node}/status")
def command(call: Call) -> None:
    """Proxmox VE answers at once, and runs the command two seconds later."""
    node, back = call.cluster.nodes[call.node], str(call["command"]) == "reboot"
    _begin(_switch(call, node, [(POWER_OFF_SECONDS, False), *([(BOOT_SECONDS, True)] if back else [])]))


@route("POST", "/nodes/{node}/wakeonlan")
def wake(call: Call) -> str:
    """The node that answers sends the packet, not the one that the path names."""
    cluster = call.cluster
    node = cluster.nodes.get(call.node)
    if node is cluster.local_node:
        raise die(f"'{call.node}' is local node, cannot wake my self!")
    if node is None:
        raise die(f"no such cluster node '{call.node}'")
    if not node.wakeonlan:
        raise die(f"No wake on LAN MAC address defined for '{node.name}'!")
    _begin(_switch(call, node, [(BOOT_SECONDS, True)]))
    return node.wakeonlan


def _begin(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    _UNDER_WAY.add(task)
    task.add_done_callback(_UNDER_WAY.discard)


async def _switch(call: Call, node: Node, steps: list[tuple[int, bool]]) -> None:
    for seconds, online in steps:
        await call.cluster.clock.sleep(seconds)
        if node.online != online:
            call.cluster.switch_node(node, online)
