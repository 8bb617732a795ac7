# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTML pages about results: what they contain, and that nothing in a result becomes part of their markup."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from support.page_results import capacity_result, fleet_result, moves_result, placement_result, tour_result

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.html_page import html_page
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.pages.moves import moves, natural
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.pages.render import amount

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7*7 }}{% raw %}&lt;"
FIXED = {"outcome", "how", "via", "state"}
"""Keys whose values are the module's own words."""
BY_NAME = {"drift", "pending", "storages", "nodes", "scores"}
"""Keys whose values may have names as keys."""
EMPTY_ELEMENTS = {"meta", "link", "input"}
RESULTS: dict[str, Callable[[], dict[str, Any]]] = {
    "placement": lambda: placement_result(4, 3, failures=1, guests=2),
    "moves": lambda: moves_result(12, 6),
    "capacity": capacity_result,
    "fleet": fleet_result,
    "tour": lambda: tour_result(2),
}


class Outline(HTMLParser):
    """The elements of a page, each closed in its order, and the text of the tables' cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.ids: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name) for name, _value in attrs]
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in EMPTY_ELEMENTS:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def poisoned(data: Any, *, keys: bool = False) -> Any:
    """The same result in which every text that a user or a cluster chose has markup in it."""
    if isinstance(data, dict):
        return {
            key + HOSTILE * keys: value if key in FIXED else poisoned(value, keys=key in BY_NAME)
            for key, value in data.items()
        }
    if isinstance(data, list):
        return [poisoned(value) for value in data]
    return data + HOSTILE if isinstance(data, str) else data


@pytest.mark.parametrize("kind", RESULTS)
def test_page__is_whole_and_names_cluster_and_job(kind: str) -> None:
    page = html_page(RESULTS[kind](), cluster=["pve1", "pve2"], job="Nightly (job 7)")
    outline = Outline(page)
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert "<dd>pve1, pve2</dd>" in page
    assert "<dd>Nightly (job 7)</dd>" in page
    assert outline.tags.count("h1") == 1
    assert outline.tags.count("caption") == outline.tags.count("table") > 0


@pytest.mark.parametrize("kind", RESULTS)
def test_text_of_a_result__never_becomes_markup(kind: str) -> None:
    result = RESULTS[kind]()
    page = html_page(poisoned(result), cluster=HOSTILE, job=HOSTILE)
    clean, outline = Outline(html_page(result, cluster="a", job="b")), Outline(page)
    assert set(outline.tags) == set(clean.tags)
    assert set(outline.attributes) == set(clean.attributes)
    assert outline.tags.count("script") == 1
    assert page.count("&lt;script&gt;alert(1)") >= 10
    assert "{{ 7*7 }}" in page


def test_page_of_a_tour__says_how_far_it_is() -> None:
    page = html_page(tour_result())
    assert "<b>1</b> of 3 nodes done" in page
    assert [page.count(f">{state}</td>") for state in ("done", "under way", "planned")] == [1, 1, 1]
    assert "gpu (104) is shut down; old (105) stays" in page
    assert "Refused, for <b>2</b> reasons" in html_page(tour_result(2))


def test_policy__allows_the_script_of_the_page_alone() -> None:
    page = html_page(capacity_result())
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert f"script-src &#39;sha256-{digest}&#39;" in policy.replace("'", "&#39;")
    assert policy.startswith("default-src 'none'")
    assert "http" not in page.replace("http-equiv", "")


def test_sections__are_closed_apart_from_failures() -> None:
    page = html_page({**placement_result(5, 3, failures=2, guests=2), "check_mode": True})
    assert page.count("<details open>") == 2
    assert page.count("<details>") == 3 + 3
    assert page.index("huge-3") < page.index("web-0")
    assert "Plan: nothing was written" in page
    assert "2 guests" in page


def test_guests_of_the_nodes__are_shown_where_the_result_has_them() -> None:
    result = placement_result(1, 2, guests=1)
    assert "old-1-0" in html_page(result)
    for node in result["nodes"]:
        del node["guests"]
    assert "old-1-0" not in html_page(result)


def test_moves_that_make_room__are_part_of_the_page() -> None:
    result = placement_result(4, 5)
    moved = moves_result(3, 5, stuck=0)
    outline = Outline(page := html_page({**result, "plan": moved["plan"], "moves": moved["moves"]}))
    assert len(outline.ids) == len(set(outline.ids))
    assert {"vm-table", "move-table", "course-table", "node-table"} <= set(outline.ids)
    assert "4</b> moves to make room" in page


def test_vms_of_several_clusters__are_told_apart() -> None:
    result = placement_result(4, 2)
    for number, vm in enumerate(result["vms"]):
        vm.update(cluster=f"c{number % 2}", vmid=100)
    result["nodes"] = [{**result["nodes"][0], "cluster": name, "node": "pve1"} for name in ("c0", "c1")]
    page = html_page(result, cluster="192.0.2.1")
    assert "<dd>c0, c1</dd>" in page
    assert page.count("c0/pve1") > 1
    outline = Outline(page)
    assert len(outline.ids) == len(set(outline.ids))


def test_list_against_several_clusters__names_the_cluster_of_each_vm() -> None:
    result = fleet_result()
    result["vms"][0]["cluster"], result["unmanaged"][0]["cluster"] = "paris", "berlin"
    page = html_page(result, cluster="192.0.2.1")
    assert "<dd>berlin, paris</dd>" in page
    assert "paris/pve2" in page
    assert "berlin/pve5" in page


def test_moves__tell_what_became_of_each() -> None:
    planned = moves(moves_result(12, 6, done=False), plan_only=True)
    assert {row["state"] for row in planned["moves"]} == {"planned"}
    done = moves(moves_result(12, 6), plan_only=False)
    assert done["states"] == {"moved": 12, "failed": 1}
    again = done["moves"][-1]
    assert (again["vmid"], again["state"], again["id"]) == (112, "moved", 13)
    unbegun = moves_result(12, 6)
    unbegun["moves"] = unbegun["moves"][:3]
    assert moves(unbegun, plan_only=False)["states"] == {"moved": 3, "not begun": 9}


def test_matrix__counts_the_moves_that_were_not_in_vain() -> None:
    view = moves(moves_result(12, 6), plan_only=False)["matrix"]
    assert [row["source"] for row in view["rows"]] == ["pve1", "pve2", "pve3"]
    assert sum(row["sum"] for row in view["rows"]) == sum(view["sums"]) == view["sum"] == 12
    assert all((cell["count"] > 0) == (cell["degree"] > 0) for row in view["rows"] for cell in row["cells"])


def test_plan_alone__has_a_page_and_tells_of_guests_that_stay() -> None:
    page = html_page(moves_result(3, 5, done=False)["plan"])
    assert "<h1>Drain pve1, pve2, pve3</h1>" in page
    assert "stop it, then it can be moved offline" in page
    assert "Plan: nothing was written" in page


def test_guests_that_may_stay__are_listed() -> None:
    stays = [{"vmid": 130, "name": "archive", "node": "pve1"}, {"vmid": 131, "name": "<b>", "node": "pve1"}]
    page = html_page({**moves_result(3, 5), "stays": stays})
    assert "archive (130) on pve1, &lt;b&gt; (131) on pve1." in page


def test_result_without_moves__has_a_page() -> None:
    result = moves_result(1, 5, done=False, stuck=0)
    result["plan"].update(moves=[])
    result["loads"] = {}
    assert "<table" not in html_page(result)


def test_use_of_nodes__is_drawn_hottest_first() -> None:
    result = moves_result(12, 6)
    quiet = {"cpu": {"before": 0.1, "peak": 0.6, "after": 0.5, "curve": [0.1, None, 0.2]}}
    hot = {"cpu": {"before": 0.9, "peak": 0.9, "after": 0.6, "curve": [0.5, 1.0, 2.0]}}
    result["usage"] = {"by": "used", "percentile": 95.0, "window": 86400.0, "nodes": {"pve1": quiet, "pve2": hot}}

    page = html_page(result)

    assert page.index("pve2, cpu") < page.index("pve1, cpu")
    assert re.findall(r'<polyline points="(.*?)"', page) == [
        "0.0,24.0 80.0,0.0 160.0,0.0", "0.0,43.2", "160.0,38.4",
    ]  # fmt: skip
    assert "10 &middot; 60 &middot; <b>50 %</b>" in page


def test_names__are_in_natural_order() -> None:
    assert sorted(["pve10", "pve2", "a"], key=natural) == ["a", "pve2", "pve10"]


@pytest.mark.parametrize(("number", "text"), [(12, "12"), (12.0, "12"), (12.25, "12.2"), (125.4, "125"), (0, "0")])
def test_amount__has_a_decimal_where_it_tells_something(number: float, text: str) -> None:
    assert amount(number) == text


@pytest.mark.parametrize("wrong", [None, [], "text", {"nodes": []}])
def test_other_data__is_refused(wrong: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="expected"):
        html_page(wrong)


def test_failure_without_a_result__is_told_with_its_message() -> None:
    with pytest.raises(AnsibleFilterError, match=r"nothing to show, because the module failed: vms: .* nmae"):
        html_page({"failed": True, "changed": False, "msg": "vms: unknown option nmae", "error_code": "InvalidRequest"})
