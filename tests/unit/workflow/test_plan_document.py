# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan survives its way through a file, and what is no plan, or no longer the same, is refused by the key's name."""

from __future__ import annotations

import copy
import json
import typing as t
from dataclasses import replace
from pathlib import Path

import pytest
from support.sample_plan import GUESTS, PLAN, SNAPSHOT
from support.small_cluster import cluster, guest, node

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Guest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Move, Plan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.documents import SEAL, digest_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves import plan_document
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.plan_document import (
    document_of,
    plan_of,
    read_plan,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.premises import (
    Premises,
    changes_since,
    rest_of,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "plan-document.md"
PREMISES = Premises.of(PLAN, SNAPSHOT)


def document() -> dict[str, t.Any]:
    """A plan as it comes out of a file."""
    found: dict[str, t.Any] = json.loads(json.dumps(document_of(PLAN, PREMISES)))
    return found


def test_plan_document__comes_back_as_it_was() -> None:
    found = plan_of(document(), "apply")

    assert found.plan.restrict_to(found.premises.identities) == PLAN
    assert found.premises == PREMISES
    assert found.digest == document()["digest"]


def test_plan_document__has_the_keys_that_its_page_tells() -> None:
    page = PAGE.read_text(encoding="utf-8")
    schemas = ("PLAN", "MOVE", "STUCK", "NODE", "LOAD", "PREMISES", "GUEST")
    for key in (*SEAL, plan_document.ASSUMES, *(key for name in schemas for key in getattr(plan_document, name))):
        assert f"`{key}`" in page, key


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("version",), 1, "apply.version: 1 is not possible, expected 2; make the plan again"),
        (("format",), "x", "apply: is not a plan for this module: format is 'x'"),
        (("moves", 0, "to"), 5, "apply.moves[0].to: 5 is not possible, expected a text"),
        (("moves", 0, "how"), "fly", "apply.moves[0].how: 'fly' is not possible, expected one of live"),
        (("moves", 0, "speed"), 5, "apply.moves[0].speed: is not a key of this version"),
        (("moves", 1, "id"), 1, "apply.moves: two have the same id"),
        (("moves", 1, "after"), [7], "apply.moves: 2 waits for 7, which is not a move of the plan"),
        (("moves", 0, "after"), [2], "apply.moves: [1, 2] wait for each other"),
        (("moves", 0, "memory"), -1, "apply.moves[0].memory: -1 is not possible"),
        (("nodes", "pve2", "peak"), None, "apply.nodes.pve2.peak: None is not possible, expected a mapping"),
        (("assumes", "guests"), {}, "apply.assumes.guests: lacks 101, which is moved"),
        (("assumes", "guests", "101", "identity"), {}, "apply.assumes.guests.101.identity: {} is not possible"),
        (("assumes", "guests"), {"x": {}}, "apply.assumes.guests: ['x'] is not possible, expected VMIDs"),
        (("feasible",), "yes", "apply.feasible: 'yes' is not possible, expected true or false"),
        (("digest",), "sha256:0", "apply.digest: does not match: the plan"),
        (("moves", 0, "to"), "pve3", "apply.digest: does not match: the plan was changed after it was made"),
    ],
)
def test_plan_document__what_is_wrong_is_named(path: tuple[t.Any, ...], value: t.Any, message: str) -> None:
    broken = document()
    inner = broken
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value

    with pytest.raises(InvalidRequest) as caught:
        plan_of(broken, "apply")

    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("key", ["digest", "assumes", "moves", "nodes"])
def test_plan_document__what_is_missing_is_named(key: str) -> None:
    broken = document()
    del broken[key]

    with pytest.raises(InvalidRequest, match=rf"apply\.{key}: is missing"):
        plan_of(broken, "apply")


def test_digest__is_the_same_whatever_the_order_of_keys() -> None:
    shuffled = dict(reversed(list(document().items())))

    assert digest_of(shuffled) == document()["digest"]


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"format": "x"}'])
def test_a_file_without_a_plan__is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(InvalidRequest, match=r"^apply: "):
        read_plan(str(file), "apply")


def test_plan_as_json_text__is_read() -> None:
    assert read_plan(json.dumps(document()), "apply") == plan_of(document(), "apply")
    with pytest.raises(InvalidRequest, match=r"^apply: cannot read .{99,110}\.\.\.: it is not JSON$"):
        read_plan(str(document()), "apply")


def test_a_file_that_is_not_there__is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"apply: cannot read '.*none': No such file"):
        read_plan(str(tmp_path / "none"), "apply")


def changed(**fields: t.Any) -> list[str]:
    now = replace(SNAPSHOT, **fields)
    state = cluster(now.nodes, now.guests, cluster=now.cluster)
    return changes_since(PLAN, PREMISES, state)


def test_premises__hold_in_the_same_cluster_and_beside_guests_that_leave_room() -> None:
    other = guest(110, "pve2", 1, 1)

    assert changed() == []
    assert changed(guests=(*GUESTS, other)) == []


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"cluster": "ca:2"}, "it was made for cluster ca:1, and this is ca:2"),
        ({"nodes": (node("pve1"),)}, "node pve2 is gone"),
        ({"nodes": (node("pve1"), node("pve2", online=False))}, "node pve2 is offline"),
        ({"nodes": (node("pve1"), node("pve2", maintenance=True))}, "node pve2 is in maintenance"),
        ({"guests": GUESTS[:1]}, "guest 102 (db-1) is gone"),
        ({"guests": (replace(GUESTS[0], node="pve2"), GUESTS[1])}, "guest 101 (web-1) is on pve2 instead of pve1"),
        ({"guests": (replace(GUESTS[0], status="stopped"), GUESTS[1])}, "guest 101 (web-1) was stopped"),
        ({"guests": (replace(GUESTS[0], name="w"), GUESTS[1])}, 'guest 101 is called "w" instead of "web-1"'),
        (
            {"guests": (replace(GUESTS[0], memory=GIB), GUESTS[1])},
            "guest 101 (web-1) has 2 vCPUs and 1.0 GiB of memory",
        ),
        (
            {"guests": (*GUESTS, guest(110, "pve2", 1, 60))},
            "node pve2 has 4.0 GiB of memory left, and the plan takes 12.0 GiB of memory",
        ),
    ],
)
def test_premises__what_changed_is_named(fields: dict[str, t.Any], what: str) -> None:
    assert any(each.startswith(what) for each in changed(**copy.copy(fields)))


# --- carried out in part ---


def left_after(guests: t.Sequence[Guest], plan: Plan = PLAN) -> tuple[list[int], list[str]]:
    """The moves that are left of a plan in this cluster, and what is not as they need it."""
    rest = rest_of(plan, Premises.of(plan, SNAPSHOT), cluster(SNAPSHOT.nodes, guests, cluster=SNAPSHOT.cluster))
    return [move.id for move in rest.plan.moves], changes_since(rest.plan, rest.premises, rest.state)


def test_rest__lacks_the_moves_whose_guests_have_arrived() -> None:
    arrived = replace(GUESTS[0], node="pve2")

    assert left_after(GUESTS) == ([1, 2], [])
    assert left_after((arrived, GUESTS[1])) == ([2], [])
    assert left_after([replace(guest, node="pve2") for guest in GUESTS]) == ([], [])


def test_rest__counts_what_others_took_beside_the_guests_that_have_arrived() -> None:
    arrived = replace(GUESTS[0], node="pve2")

    assert left_after((arrived, GUESTS[1], guest(110, "pve2", 1, 52))) == ([2], [])
    assert left_after((arrived, GUESTS[1], guest(110, "pve2", 1, 53))) == (
        [2],
        ["node pve2 has 11.0 GiB of memory left, and the plan takes 12.0 GiB of memory"],
    )


def test_rest__of_a_guest_that_is_parked_is_its_second_move() -> None:
    parked = Move(1, 101, "web-1", "pve1", "pve3", "makes way", identities=PLAN.moves[0].identities)
    plan = replace(PLAN, moves=(parked, replace(parked, id=2, source="pve3", target="pve2", after=(1,))))
    nodes = (*SNAPSHOT.nodes, node("pve3"))

    for where, left in (("pve1", [1, 2]), ("pve3", [2]), ("pve2", [])):
        state = cluster(nodes, (replace(GUESTS[0], node=where), GUESTS[1]))
        assert [move.id for move in rest_of(plan, PREMISES, state).plan.moves] == left


def test_rest__a_guest_elsewhere_has_not_been_moved_by_the_plan() -> None:
    lost = replace(GUESTS[0], node="pve3")

    assert left_after((lost, GUESTS[1])) == ([1, 2], ["guest 101 (web-1) is on pve3 instead of pve1"])
