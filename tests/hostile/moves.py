# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changed input about plans and moves, and changed rows of the ledger."""

from __future__ import annotations

import json
import random
import typing as t
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from support.ledgers import reservation
from support.sample_plan import PLAN, SNAPSHOT

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import CollectionError
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    Constraints,
    Selector,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import Holder, records
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.counting import (
    cluster_state,
    count_reservations,
    with_moves,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.documents import digest_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.agenda import Agenda
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.move_options import (
    Caps,
    MoveOptions,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.plan_document import (
    document_of,
    read_plan,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.premises import (
    Premises,
    changes_since,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.rebalancing import goals_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.staying import exemptions
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.plugin_config import profiles_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.rules import (
    facts_of,
    standing_rules,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.moves import move_line
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.progress import show_appended

from .changes import changed, changed_bytes

RULES = Constraints((AffinityTerm(False, Selector(name="web-.*")),))
NEW = reservation(
    110, "web-2", memory=GIB, cores=2, constraints=RULES, tags=frozenset({"a"}), storage_bytes={("fast", "pve1"): 5},
    devices=(("pve1", "pci/0000:01:00.0"),), addresses=("192.0.2.7",), holder=Holder.new(), expires=60.0,
)  # fmt: skip
MOVE = replace(NEW, vmid=101, name="move:101", node="pve2", source="pve1", phase="binding")


def plan_file(rng: random.Random, folder: Path) -> None:
    """The file that the option C(apply) names, with a seal that fits or not."""
    given = changed({"plan": document_of(PLAN, Premises.of(PLAN, SNAPSHOT))}, rng, rng.randint(1, 3)).get("plan")
    file = folder / "plan.json"
    file.write_bytes(sealed(given, rng))
    with suppress(CollectionError):
        found = read_plan(str(file), "apply")
        changes_since(found.plan, found.premises, ClusterState(SNAPSHOT))
        Agenda(found.plan.moves, Caps()).start()


def sealed(document: t.Any, rng: random.Random) -> bytes:
    """Return a changed document as a file has it, mostly with the digest that it has now."""
    if isinstance(document, dict) and rng.random() < 0.9:
        with suppress(ValueError):
            document["digest"] = digest_of(document)
    content = json.dumps(document).encode()
    return changed_bytes(content, rng) if rng.random() < 0.2 else content


def progress(rng: random.Random, folder: Path) -> None:
    """The file in which a module tells of its moves."""
    good = {"done": 1, "total": 2, "name": "web-1", "vmid": 101, "from": "pve1", "to": "pve2", "outcome": "moved"}
    good |= {"seconds": 4.0, "error": None, "identity": {"name": "web-1", "node": "pve1", "kind": "qemu", "ctime": 1}}
    line = json.dumps(changed({"line": good}, rng, 2).get("line"))
    file, shown = folder / "moves", list[str]()
    with show_appended(file, shown.append, move_line):
        lines = (changed_bytes(line.encode(), rng), line.encode(), json.dumps(good).encode())
        file.write_bytes(b"".join(each + b"\n" for each in lines))
    assert shown[-1] == "moves: 1/2 web-1 (101) moved, pve1 to pve2 (4.0 s)"


def check_options(params: Mapping[str, t.Any]) -> str:
    """What modules that move guests ask of their options before the first request; nothing is told when all is well."""
    MoveOptions.of(params)
    standing_rules(params)
    profiles_of(params)
    facts_of(params.get("nodes"))(SNAPSHOT.nodes)
    if "goals" in params:
        goals_of(params)
    if "stays" in params:
        exemptions(params)
    return ""


def ledger_rows(rng: random.Random, folder: Path) -> None:
    """What stands in the ledger, which every user of it can write."""
    rows = []
    for each in rng.sample([NEW, MOVE], k=rng.randint(1, 2)):
        *plain, resources = records.to_row(each)
        given = changed({"row": plain, "resources": json.loads(resources)}, rng, rng.randint(0, 2))
        row = given.get("row") if isinstance(given.get("row"), list) else plain
        whole = len(row or ()) == len(plain)
        text = json.dumps(given.get("resources"))
        rows.append((*(row if whole else plain), text[: rng.randint(0, len(text))] if rng.random() < 0.1 else text))
    with suppress(CollectionError):
        found = [records.from_row(row) for row in rows if not records.has_expired(row, 0.0)]
        counted = count_reservations(SNAPSHOT, found)
        cluster_state(with_moves(counted.snapshot, counted.under_way), counted.stand_ins)
