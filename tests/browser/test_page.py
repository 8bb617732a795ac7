# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages as people see them: content, sorting, filtering, colours, keyboard, print, narrow screens."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PICTURES = CHECKOUT / "build" / "browser"
SCHEMES = ("light", "dark")
PAGES = ("provisioned", "failed", "drained", "moves", "capacity", "fleet", "tour")
LARGE = ("large", "moves")
IMAGES = {"page": ("provisioned", 1180), "moves": ("drained", 1330)}
"""The pictures of the documentation: which page, and how much of it."""

# For each element with text of its own the contrast of the text with what is behind it, as WCAG 2 defines it.
CONTRASTS = """() => {
  const channel = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => .2126 * channel(c[0]) + .7152 * channel(c[1]) + .0722 * channel(c[2]);
  const parse = s => s.match(/[\\d.]+/g).map(Number);
  const behind = e => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } };
  return [...document.querySelectorAll("body *")]
    .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) && e.tagName !== "SCRIPT")
    .map(e => { const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
                return [(a + .05) / (b + .05), e.className + ": " + e.textContent.trim().slice(0, 40)]; });
}"""


def first_cells(page: Any, table: str) -> list[str]:
    """What the first cells of a table's records show that are not filtered out."""
    return page.locator(f"#{table} > tbody:visible > tr:first-child > :first-child").all_inner_texts()


def test_nothing__is_fetched_and_nothing_is_complained_of(visit: Any) -> None:
    for name in (*PAGES, "large"):
        shown = visit(name)
        assert shown.fetched == [shown.page.url]
        assert shown.complaints == []


def test_each_vm__has_its_node_and_on_demand_all_nodes_in_order(visit: Any) -> None:
    page = visit().page
    assert first_cells(page, "vm-table") == [
        "shop-web-7", "shop-web-8", "shop-db-4", "ci-runner", "analytics", "render-2",
    ]  # fmt: skip
    record = page.locator("#vm-table > tbody", has_text="shop-db-4")
    assert record.locator(".nested").is_hidden()
    record.locator("summary").click()
    rows = record.locator(".nested tbody tr")
    scores = [float(text) for text in rows.locator(".score").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    assert "chosen" in rows.nth(0).inner_text()
    assert "memory would exceed the memory overcommit ratio" in rows.nth(3).inner_text()


def test_each_node__has_bars_guests_and_the_vms_that_it_got(visit: Any) -> None:
    page = visit().page
    assert [text.split()[0] for text in first_cells(page, "node-table")] == ["pve1", "pve2", "pve3", "pve4", "pve5"]
    nodes = page.locator("#node-table > tbody")
    assert "offline" in nodes.nth(4).inner_text()
    assert nodes.nth(4).locator(".track").count() == 0
    assert "analytics" in nodes.nth(3).locator(".chips").inner_text()
    nodes.nth(3).locator("summary").click()
    assert "gitlab" in nodes.nth(3).locator(".nested").inner_text()
    assert "ceph-vm" in page.locator(".shared").inner_text()


def test_bars__are_as_long_as_the_figures_beside_them_say(visit: Any) -> None:
    bar = visit().page.locator("#node-table > tbody", has_text="analytics").locator("td[data-label=Memory]")
    used, new, limit = (bar.locator(f".track .{part}").bounding_box() for part in ("used", "new", "limit"))
    track = bar.locator(".track").bounding_box()
    assert bar.locator(".amount").inner_text() == "100 → 372 of 512"
    assert used["width"] / track["width"] == pytest.approx(100 / 512, abs=0.01)
    assert new["width"] / track["width"] == pytest.approx(272 / 512, abs=0.01)
    assert limit["x"] - track["x"] == pytest.approx(track["width"], abs=3)


def test_vm_that_could_not_be_placed__says_what_would_help_without_a_click(visit: Any) -> None:
    page = visit("failed").page
    shown = page.locator("#vm-table > tbody").nth(0).inner_text()
    assert shown.startswith("huge")
    assert "Without MemoryOvercommit, pve1, pve2, pve3 and pve4 would fit; the closest is pve4" in shown
    gitlab = page.locator("#vm-table > tbody", has_text="gitlab")
    gitlab.locator("summary").click()
    assert gitlab.locator(".nested tbody tr").inner_text().split() == ["cores", "8", "64"]


def test_500_vms__are_sorted_and_filtered(visit: Any) -> None:
    page = visit("large").page
    assert first_cells(page, "vm-table")[:4] == ["huge-497", "huge-498", "huge-499", "web-0"]
    heading = page.locator("#vm-table thead th", has_text="VMID")
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert first_cells(page, "vm-table")[:2] == ["web-0", "web-1"]
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert first_cells(page, "vm-table")[0] == "web-496"
    assert first_cells(page, "vm-table")[-1].startswith("huge")

    search = page.locator(".tools[data-for=vm-table] input")
    search.fill("WEB pve7")
    rows = page.locator("#vm-table > tbody:visible")
    assert rows.count() == page.locator("#vm-table > tbody:visible", has_text="pve7").count() == 31
    assert page.locator(".tools[data-for=vm-table] output").inner_text() == "31 of 500"
    search.fill("")
    page.locator(".tools[data-for=vm-table] select").select_option("failed")
    assert rows.count() == 3


def test_link_to_a_vm__shows_it_although_it_is_filtered_out(visit: Any) -> None:
    page = visit().page
    page.locator(".tools[data-for=vm-table] input").fill("shop")
    page.locator(".chips a", has_text="render-2").click()
    assert page.locator("#vm-table > tbody", has_text="render-2").locator(".nested").is_visible()


def test_200_moves__are_told_as_a_table_a_matrix_and_bars(visit: Any) -> None:
    page = visit("moves").page
    assert page.locator("#move-table > tbody").count() == 201
    assert "no space left on device" in page.locator("#move-table > tbody", has_text="failed").inner_text()
    assert page.locator(".matrix tbody tr").count() == 4
    assert page.locator(".matrix tr.sum td").all_inner_texts()[-1] == "200"
    assert page.locator(".matrix").bounding_box()["width"] < 700
    widths = page.locator("#course-table > tbody").nth(5).locator(".track i").evaluate_all(
        "bars => bars.slice(0, 3).map(bar => bar.offsetWidth)"
    )
    assert widths[0] < widths[2] < widths[1]


def test_guests_that_stay__come_first_with_the_reason(visit: Any) -> None:
    page = visit("drained").page
    assert page.locator("h1").inner_text() == "Drain pve3"
    assert "render-1" in page.locator("#stuck-table").inner_text()
    assert "it runs with mapped devices" in page.locator("#stuck-table").inner_text()
    assert page.locator("#stuck-table").bounding_box()["y"] < page.locator("#move-table").bounding_box()["y"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PAGES)
def test_all_text__can_be_read_in_light_and_dark(visit: Any, name: str, scheme: str) -> None:
    contrasts = visit(name, color_scheme=scheme).page.evaluate(CONTRASTS)
    assert len(contrasts) > 20
    assert [found for found in contrasts if found[0] < 4.5] == []


def test_everything__can_be_reached_and_folded_by_keyboard(visit: Any) -> None:
    page = visit().page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    summary = page.locator("#vm-table summary").nth(0)
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("#vm-table details").nth(0).get_attribute("open") is not None
    heading = page.locator("#vm-table thead button").nth(2)
    heading.focus()
    page.keyboard.press("Space")
    assert page.locator("#vm-table thead th").nth(2).get_attribute("aria-sort") == "ascending"


@pytest.mark.parametrize("name", PAGES)
def test_headings_and_tables__make_sense_without_sight(visit: Any, name: str) -> None:
    page = visit(name).page
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.locator("tbody > tr:not(.more):not(:has(> th[scope=row]))").count() == 0
    assert page.locator("input:not([aria-label]), select:not([aria-label])").count() == 0
    labels = page.locator("[role=img]").evaluate_all("bars => bars.map(bar => bar.getAttribute('aria-label'))")
    assert all("before" in label and "after" in label for label in labels)


def test_print__shows_what_was_folded_away(visit: Any) -> None:
    page = visit().page
    nested = page.locator("#vm-table .nested").nth(0)
    assert nested.is_hidden()
    page.emulate_media(media="print")
    assert nested.bounding_box()["height"] > 50
    assert page.locator(".tools").nth(0).is_hidden()


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_no_width__needs_scrolling_sideways(visit: Any, width: int) -> None:
    for name in (*PAGES, "large"):
        page = visit(name, viewport={"width": width, "height": 800}).page
        page.locator("details").evaluate_all("all => all.slice(0, 20).forEach(each => each.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("picture", IMAGES)
def test_picture__is_taken(visit: Any, picture: str, scheme: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    name, height = IMAGES[picture]
    file = PICTURES / f"{picture}-{scheme}.png"
    visit(name, color_scheme=scheme, viewport={"width": 1200, "height": height}).page.screenshot(path=file)
    assert file.stat().st_size > 30_000
    if os.environ.get("UPDATE_IMAGES") and scheme == "light":
        shutil.copy(file, CHECKOUT / "docs" / "images" / file.name)
