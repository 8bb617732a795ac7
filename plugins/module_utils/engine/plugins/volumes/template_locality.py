# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TemplateLocality: clones are made only where Proxmox can make them."""

from __future__ import annotations

from collections.abc import Hashable

from ....model import Request
from ...cache import NodeInfo
from ...framework.cycle_state import CycleState
from ...framework.interface import Event, FilterPlugin
from ...framework.status import Status, unresolvable
from ...volumes import reachable_template

REASON = "couldn't be cloned to from '{}'"


class TemplateLocality(FilterPlugin):
    """Rejects a node that has no copy of the template of its own and cannot reach one whose volumes all lie on shared
    storage.
    """

    name = "TemplateLocality"
    events = frozenset({Event.NODE, Event.STORAGE})

    def signature(self, request: Request) -> Hashable:
        return request.clone

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        if request.clone is None or reachable_template(request, node) is not None:
            return None
        template = request.clone.templates[0]
        return unresolvable(REASON.format(template.name), f"it lies on local storage of {template.node}")
