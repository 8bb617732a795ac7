# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules that last: which tag states which rule, and which rules no tag can state."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.standing_rules import pins_of, terms_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import ONE_VM_OPTIONS
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import (
    Entry,
    build_entries,
)


def entry(**params: Any) -> Entry:
    given = {"name": "web-1", "tags": ["Front"], "pool": "shop", **params}
    (found,) = build_entries(given, list(ONE_VM_OPTIONS), 0.0)
    return found


@pytest.mark.parametrize(
    ("rule", "tag"),
    [
        ({"type": "anti-affinity", "name": "web-.*"}, "plb_anti_affinity_web"),
        ({"type": "affinity", "tags": ["front"]}, "plb_affinity_front"),
        ({"type": "apart", "pool": "shop", "name": "WEB-[0-9]+|web-1"}, "plb_anti_affinity_web-0-9-web-1_shop"),
    ],
)
def test_lasting_rule__becomes_a_tag_that_states_it(rule: dict[str, Any], tag: str) -> None:
    found = entry(affinity=[{**rule, "lasting": True}])
    assert (found.lasting, found.request.tags) == ({tag}, {"front", tag})
    assert found.request.options["tags"] == f"front;{tag}"
    (term,) = terms_of([tag])
    assert term.together is found.request.affinity[0].together
    assert entry(affinity=[rule]).request.options["tags"] == "front"


def test_lasting_requirement__becomes_pins() -> None:
    nodes = {"key": "node", "operator": "In", "values": ["PVE1", "pve2"], "lasting": True}
    found = entry(node_affinity={"required": [nodes]}, tags=None)
    assert pins_of(found.request.tags) == ("pve1", "pve2")


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            {"affinity": [{"type": "affinity", "name": "db-.*"}]},
            r"affinity\[0\].lasting: the rule does not select the VM",
        ),
        ({"affinity": [{"type": "affinity", "name": "web-1", "required": False}]}, "a rule that is required"),
        ({"affinity": [{"type": "affinity", "name": "web-1", "topology_key": "rack"}]}, "topology_key node"),
        ({"affinity": [{"type": "affinity", "name": ".*"}]}, "the rule cannot be written as a tag"),
        ({"node_affinity": {"required": [{"key": "rack", "operator": "Exists"}]}}, r"\[0\].lasting: .*key node"),
    ],
)
def test_rule_that_no_tag_can_state__is_refused(rules: dict[str, Any], message: str) -> None:
    for rule in (*rules.get("affinity", ()), *rules.get("node_affinity", {}).get("required", ())):
        rule["lasting"] = True
    with pytest.raises(InvalidRequest, match=message):
        entry(**rules)
