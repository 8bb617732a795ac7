# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters that format the decisions of qemu_schedule as lines of plain text, or reduce them to a few facts.

They return lists of lines, as the debug task of a playbook shows each element of a list on its own line.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.findings import WHAT_IF, sentence
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.texts import of_one
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.limits import limit_of
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.tables import (
    EMPTY,
    counts_text,
    list_changes,
    table,
    width_for,
    wrap,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.vm_hosts import vm_hosts

VM = Mapping[str, t.Any]

MANY = 20
"""The number of VMs of one kind from which on the table groups them by node, or only lists their names."""
FAILED = "failed"
NOT_DONE = "not done"
CHANGED = "changed"
UNCHANGED = "unchanged"
KINDS = (FAILED, NOT_DONE, CHANGED, UNCHANGED)
FACTS = ("name", "vmid", "node", "status", "changed", "action", "tags", "storages")
GROUP_HEADINGS = ("CLUSTER", "NODE", "ACTION", "VMS")
HEADINGS = ("VM", "ACTION", "CLUSTER", "NODE", "VMID", "ADDRESS", "STORAGE", "SCORE", "WHY")


def decision_table(vms: Sequence[VM], width: int | None = None) -> list[str]:
    """Return the totals and one row per VM: its actions, its place and the reason. Failures come first, unchanged VMs
    last.

    Many new VMs are grouped in one row per node, and of many VMs that were not changed only the names are listed.

    vms are those of qemu_schedule's result. Lines are at most width characters long if possible; by default they fit
    the terminal.
    """
    _check(vms)
    if not vms:
        return ["no VMs"]
    size = width_for(width)
    of_kind = {kind: [vm for vm in vms if kind_of(vm) == kind] for kind in KINDS}
    new = [vm for vm in of_kind[CHANGED] if vm.get("decision")]
    grouped = new if len(new) >= MANY else []
    named = {kind: of_kind[kind] for kind in (NOT_DONE, UNCHANGED) if len(of_kind[kind]) >= MANY}
    named[FAILED] = of_kind[FAILED][MANY:]
    elsewhere = {id(vm) for part in (grouped, *named.values()) for vm in part}
    rows = [_row(vm) for kind in KINDS for vm in of_kind[kind] if id(vm) not in elsewhere]
    lines = wrap(_totals(vms), size) if len(vms) > 1 else []
    lines += table([HEADINGS, *rows], size) if rows else []
    lines += table([GROUP_HEADINGS, *_group_rows(grouped)], size) if grouped else []
    for kind in KINDS:
        names = ", ".join(_name(vm) for vm in named.get(kind, ()))
        lines += wrap(f"{kind}: {names}", size) if names else []
    return lines


def explain(vms: Sequence[VM], width: int | None = None) -> list[str]:
    """Return for each VM a line with its decision, and one per node with its scores or the reason for its rejection.

    The best node is first. The arguments are those of decision_table.
    """
    _check(vms)
    size = width_for(width)
    lines: list[str] = []
    for vm in vms:
        if lines:
            lines.append("")
        lines.extend(wrap(f"{_name(vm)}: {_headline(vm)}", size))
        for text in clusters_of(vm):
            lines.extend(wrap(text, size, " " * 8, "   -  "))
        nodes = rank_nodes(vm)
        longest = max((len(node["node"]) for node in nodes), default=0)
        for place, node in enumerate(nodes, 1):
            start = f"{place:>4}. " if node["feasible"] else "   -  "
            lines.extend(wrap(_verdict(node), size, " " * (longest + 8), f"{start}{node['node']:<{longest}}  "))
        for text in _rejections_of_others(vm):
            lines.extend(wrap(text, size, " " * 8, "   -  "))
        for text in findings_of(vm):
            lines.extend(wrap(text, size, " " * 6, " " * 6))
    return lines


def vm_facts(vms: Sequence[VM], addresses: Sequence[VM] = ()) -> list[dict[str, t.Any]]:
    """Return the facts about each VM that exists, or in check mode would exist, for use by other tasks.

    addresses are the vms of vm_address_info's result.
    """
    _check(vms)
    known = {row["vmid"]: row for row in addresses}
    facts = []
    for vm in vms:
        if vm.get("error") or vm.get("status") == "absent":
            continue
        found = known.get(vm["vmid"], {})
        address = {"address": found.get("address"), "addresses": found.get("addresses", [])}
        host = vm.get("host") or {"name": None, "groups": [], "vars": {}}
        cluster = {"cluster": vm["cluster"]} if vm.get("cluster") else {}
        facts.append({**cluster, **{key: vm.get(key) for key in FACTS}, **address, "host": host})
    return facts


def rank_nodes(vm: VM) -> list[Mapping[str, t.Any]]:
    """Return the nodes of a decision: the chosen one, other feasible ones by descending score, the others by name."""
    decision = vm.get("decision") or {}
    return sorted(
        decision.get("nodes") or [],
        key=lambda n: (not n["feasible"], n["node"] != decision.get("node"), -(n["score"] or 0.0), n["node"]),
    )


def findings_of(vm: VM) -> list[str]:
    """Return the findings of plugins about a VM that could not be placed, a sentence each."""
    findings = (vm.get("decision") or {}).get("findings") or {}
    texts = (sentence(found) if plugin == WHAT_IF else f"{plugin}: {found}" for plugin, found in findings.items())
    return sorted(text for text in texts if text)


def clusters_of(vm: VM) -> list[str]:
    """Return the score of, or the reason against, each cluster, for a task with several clusters."""
    return [
        f"cluster {each['cluster']}  "
        + (each["reason"] or f"{each['score']:.1f} on {each['node']}")
        + (f", preference {each['preference']:.1f}" if each["preference"] else "")
        for each in (vm.get("decision") or {}).get("clusters") or []
    ]


def _rejections_of_others(vm: VM) -> list[str]:
    """Return why nodes were rejected that the decision does not list."""
    decision = vm.get("decision") or {}
    reported = {node["node"] for node in decision.get("nodes") or [] if not node["feasible"]}
    texts = []
    for rejection in decision.get("rejections") or []:
        if not reported.issuperset(rejection["nodes"]):
            more = ", ..." if rejection["count"] > len(rejection["nodes"]) else ""
            names = f"{', '.join(rejection['nodes'])}{more}"
            by = f"rejected by {limit_of(rejection['rejected_by'])}: {of_one(rejection['reason'])}"
            texts.append(f"{rejection['count']} node(s) ({names})  {by}")
    return texts


def is_held_back(vm: VM) -> bool:
    """Whether nothing was done with the VM because another VM failed."""
    return bool(vm.get("not_done")) and not vm.get("error")


def place_of(vm: VM) -> Mapping[str, t.Any]:
    """Return the mapping with the VM's C(node), C(vmid) and C(storages): for a held back VM its decision."""
    return t.cast("Mapping[str, t.Any]", vm["decision"] if is_held_back(vm) and vm.get("decision") else vm)


def kind_of(vm: VM) -> str:
    """Return the kind of the VM, by which the totals count it and the rows are ordered."""
    if vm.get("error"):
        return "failed"
    if is_held_back(vm):
        return "not done"
    return CHANGED if vm.get("actions") else UNCHANGED


def why_of(vm: VM) -> str:
    """Return why the VM was placed on its node, what differs, or what failed."""
    error = vm.get("error")
    if error:
        return f"{error['code']}: {error['message']}"
    if is_held_back(vm):
        return "not done, because another VM failed"
    if vm.get("decision"):
        return _lead(vm)
    if vm.get("status") == "absent":
        return "removed with its disks" if vm.get("actions") else "does not exist"
    return _existing_vm_text(vm)


# --- the table's cells ---


def _totals(vms: Sequence[VM]) -> str:
    kinds = Counter(kind_of(vm) for vm in vms)
    actions = Counter(_action(vm) for vm in vms if kind_of(vm) == CHANGED)
    counts = [(kinds[kind], kind) for kind in KINDS[:2]]
    counts += [(count, action) for action, count in sorted(actions.items())]
    return f"{len(vms)} VMs: {counts_text([*counts, (kinds[UNCHANGED], UNCHANGED)])}"


def _group_rows(vms: Sequence[VM]) -> list[tuple[str, ...]]:
    """Return one row per node and action, with the names and VMIDs of the VMs."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for vm in vms:
        key = (vm.get("cluster") or EMPTY, vm["node"], _action(vm))
        groups.setdefault(key, []).append(f"{_name(vm)} ({vm['vmid']})")
    return [(*key, ", ".join(names)) for key, names in sorted(groups.items())]


def _row(vm: VM) -> tuple[str, ...]:
    """Return the cells of a VM in decision_table."""
    score = (vm.get("decision") or {}).get("score")
    place = place_of(vm)
    return (
        _name(vm),
        _action(vm),
        vm.get("cluster") or EMPTY,
        place.get("node") or EMPTY,
        str(place.get("vmid") or EMPTY),
        str(((vm.get("host") or {}).get("vars") or {}).get("ansible_host") or EMPTY),
        _storages(place.get("storages") or {}),
        EMPTY if score is None else f"{score:.1f}",
        why_of(vm),
    )


def _name(vm: VM) -> str:
    return str(vm.get("name") or vm.get("vmid") or EMPTY)


def _action(vm: VM) -> str:
    if vm.get("error"):
        return "failed"
    return "+".join(vm.get("actions") or vm.get("not_done") or ["none"])


def _storages(storages: Mapping[str, str]) -> str:
    """Return the storage if all drives are on the same one, else that of each drive."""
    if len(set(storages.values())) == 1:
        return next(iter(storages.values()))
    return ",".join(f"{slot}={storage}" for slot, storage in sorted(storages.items())) or EMPTY


def _lead(vm: VM) -> str:
    """Return how far the chosen node is ahead of the next one, or why there was no choice."""
    if vm.get("why"):
        # The decision of a run that applies a plan could only be that of the plan.
        return f"as planned: {str(vm['why']).partition(', ')[2] or vm['why']}"
    nodes = rank_nodes(vm)
    passed = [node for node in nodes if node["feasible"]]
    if len(passed) < 2:
        reasons = _reasons(nodes)
        return f"the only node: {reasons}" if reasons else "the only node"
    lead = (passed[0]["score"] or 0.0) - (passed[1]["score"] or 0.0)
    if lead < 0:
        return f"{-lead:.1f} behind {passed[1]['node']}, so that all VMs fit"
    ahead = f"{lead:.1f} ahead of" if lead > 0 else "level with"
    return f"{ahead} {passed[1]['node']}, {len(passed)} of {len(nodes)} nodes fit"


def _reasons(nodes: Sequence[Mapping[str, t.Any]]) -> str:
    """Return the number of rejected nodes for each reason, without the figures of single nodes."""
    counts = Counter(str(node["reason"]).partition(" (")[0] for node in nodes if not node["feasible"])
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {of_one(reason) if count == 1 else reason}" for reason, count in ordered)


def _existing_vm_text(vm: VM) -> str:
    """Return what is done with an existing VM, and which of its changes are pending."""
    actions = vm.get("actions") or []
    changes = list_changes(vm.get("drift") or {})
    pending = list_changes(vm.get("pending") or {})
    if "finish" in actions:
        text = f"was begun and not finished: {changes}" if changes else "was begun and not finished"
    elif not changes:
        text = "exists, nothing differs"
    else:
        text = changes if "update" in actions else f"exists, not changed without update: {changes}"
    return f"{text}; pending until it is stopped and started: {pending}" if pending else text


# --- the explanation's lines ---


def _headline(vm: VM) -> str:
    """Return what happens to a VM, where, and why."""
    if vm.get("error") or not vm.get("decision"):
        return why_of(vm)
    place = place_of(vm)
    storages = _storages(place.get("storages") or {})
    on = "" if storages == EMPTY else f", disks on {storages}"
    where = f"cluster {vm['cluster']}, {place.get('node')}" if vm.get("cluster") else place.get("node")
    return f"{_action(vm)} on {where} as {place.get('vmid')}{on}: {why_of(vm)}"


def _verdict(node: Mapping[str, t.Any]) -> str:
    """Return the scores of a node, or the rule that rejected it with the reason."""
    if not node["feasible"]:
        return f"rejected by {limit_of(node['rejected_by'])}: {of_one(node['reason'])}"
    parts = ", ".join(
        f"{plugin} {score['normalized']:.1f}" + ("" if score["weight"] == 1 else f" x {score['weight']:g}")
        for plugin, score in sorted(node["scores"].items())
    )
    return f"{node['score']:.1f}" + (f" = {parts}" if len(node["scores"]) == 1 else f" from {parts}" if parts else "")


def _check(vms: t.Any) -> None:
    if not isinstance(vms, Sequence) or isinstance(vms, str) or not all(isinstance(vm, Mapping) for vm in vms):
        raise AnsibleFilterError("expected the list of VMs that qemu_schedule returns as vms")


class FilterModule:
    """The filters by their names."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        return {
            "decision_table": decision_table,
            "explain": explain,
            "vm_facts": vm_facts,
            "vm_hosts": vm_hosts,
        }
