# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest that moves is the request that its config is."""

from __future__ import annotations

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.planner.items import IMMOVABLE, guest_part
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import (
    BUILTIN,
    builtin_registry,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import build_profiles
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    AffinityTerm,
    Constraints,
    Demands,
    DeviceClaim,
    Expression,
    GangRef,
    Guest,
    HAIntent,
    Request,
    Selector,
    SpreadConstraint,
    Toleration,
)

NOT_OF_GUESTS = {
    "clone": "of new VMs",
    "context": "of new VMs",
    "disks": "depend on the target, see Part.request_on",
    "node": "a rule of one request, which Proxmox does not store",
    "node_regex": "a rule of one request, which Proxmox does not store",
    "scheduling_gates": "of new VMs",
    "vmid_range": "of new VMs",
    "vmid_regex": "of new VMs",
}
"""What plugins ask about a request and guests do not have, each with the reason."""

SELECTOR = Selector(name="db")
GUEST = Guest(
    100,
    "db",
    "pve1",
    status="running",
    constraints=Constraints(
        affinity=(AffinityTerm(together=False, selector=SELECTOR),),
        topology_spread=(SpreadConstraint("rack", SELECTOR),),
        node_required=(Expression("rack", "Exists"),),
        node_preferred=(Expression("rack", "Exists"),),
        tolerations=(Toleration("gpu"),),
        ha=HAIntent(rule="x"),
        gang=GangRef("g"),
    ),
    demands=Demands(
        cpu_type="host",
        cpu_flags=frozenset({"aes"}),
        bridges=frozenset({"vmbr1"}),
        devices=(DeviceClaim("gpu", "pci", mapping="gpu"),),
        named=frozenset({("snippet", "local:snippets/x")}),
    ),
)


def test_guest_part__has_all_that_plugins_ask_about_a_request() -> None:
    policy = build_profiles(builtin_registry())["balanced"].policy
    request, plain = guest_part(GUEST, IMMOVABLE, policy, ()).request, Request("")
    asked = {field for plugin in BUILTIN for field in plugin.about} - NOT_OF_GUESTS.keys()
    assert len(asked) > 8
    assert [field for field in sorted(asked) if getattr(request, field) == getattr(plain, field)] == []
