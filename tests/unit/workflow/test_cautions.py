# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules that select nobody are told."""

from __future__ import annotations

import pytest
from support.small_cluster import guest, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    AffinityTerm,
    Selector,
    SpreadConstraint,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.cautions import IdleSelectors
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.rules import parse_rules

GUESTS = [guest(100, "pve1", name="db-1", tags=frozenset({"db"}))]


def cautions(selector: Selector) -> list[str]:
    request = vm(name="g-1", affinity=(AffinityTerm(False, selector),))
    return list(IdleSelectors(GUESTS, [request]).cautions(request))


@pytest.mark.parametrize(
    ("selector", "told"),
    [
        (Selector(name="g-*"), "name 'g-*'; name is a regular expression, in which .* matches any text: g-"),
        (Selector(name="g-?"), "name 'g-?'; name is a regular expression, in which .* matches any text: g-."),
        (Selector(name="webb-.*"), "affinity selects no VM: name 'webb-.*'"),
        (Selector(tags=frozenset({"dbs"})), "affinity selects no VM: tags 'dbs'"),
        (Selector(name="db-.*", pool="shop"), "affinity selects no VM: name 'db-.*', pool 'shop'"),
    ],
)  # fmt: skip
def test_selector_that_selects_nobody__is_told(selector: Selector, told: str) -> None:
    (caution,) = cautions(selector)
    assert told in caution


@pytest.mark.parametrize(
    "selector", [Selector(name="g-.*"), Selector(name="db-[0-9]*"), Selector(tags=frozenset({"db"}))]
)
def test_selector_that_selects_the_vm_itself_or_another__is_not(selector: Selector) -> None:
    assert cautions(selector) == []


def test_spread__is_looked_at_as_well() -> None:
    request = vm(name="g-1", topology_spread=(SpreadConstraint("node", Selector(name="h-*")),))
    (caution,) = IdleSelectors(GUESTS, [request]).cautions(request)
    assert caution.startswith("topology_spread selects no VM: name 'h-*'")


@pytest.mark.parametrize("value", ["['a', 'b']", "[]", '["a"]'])
def test_list_that_ansible_made_a_text_of__is_refused(value: str) -> None:
    with pytest.raises(InvalidRequest, match="expected a text, not a list"):
        parse_rules({"affinity": [{"type": "anti-affinity", "name": value}]})
