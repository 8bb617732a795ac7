# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of the role provision as people see it: content, colours, keyboard, print, narrow screens."""

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

# For each element with text of its own the contrast of the text with what is behind it, as WCAG 2 defines it.
CONTRASTS = """() => {
  const channel = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => .2126 * channel(c[0]) + .7152 * channel(c[1]) + .0722 * channel(c[2]);
  const parse = s => s.match(/[\\d.]+/g).map(Number);
  const behind = e => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } };
  return [...document.querySelectorAll("body *")]
    .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) && !e.closest(".off"))
    .map(e => { const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
                return [(a + .05) / (b + .05), e.className + ": " + e.textContent.trim().slice(0, 40)]; });
}"""


def test_nothing__is_fetched_and_nothing_is_complained_of(visit: Any) -> None:
    for name in ("provisioned", "failed"):
        shown = visit(name)
        assert shown.fetched == [shown.page.url]
        assert shown.complaints == []


def test_each_node__has_bars_and_the_vms_that_it_got(visit: Any) -> None:
    page = visit().page
    nodes = page.locator("article.node")
    assert nodes.locator("h3").all_inner_texts()[:4] == ["pve1", "pve2", "pve3", "pve4"]
    assert "offline" in nodes.nth(4).inner_text()
    assert nodes.nth(4).locator(".bar").count() == 0
    assert nodes.nth(3).locator(".bar .label").all_inner_texts() == ["CPU", "Memory", "local-zfs"]
    assert "analytics" in nodes.nth(3).locator(".chips").inner_text()
    assert nodes.nth(5).locator(".bar .label").all_inner_texts() == ["ceph-vm"]


def test_bars__are_as_long_as_the_figures_beside_them_say(visit: Any) -> None:
    page = visit().page
    bar = page.locator("article.node", has_text="pve4").locator(".bar", has_text="Memory")
    used, new, limit = (bar.locator(f".track .{part}").bounding_box() for part in ("used", "new", "limit"))
    track = bar.locator(".track").bounding_box()
    assert bar.locator(".amount").inner_text() == "100 → 380 of 512 GiB"
    assert used["width"] / track["width"] == pytest.approx(100 / 512, abs=0.01)
    assert new["width"] / track["width"] == pytest.approx(280 / 512, abs=0.01)
    assert limit["x"] - track["x"] == pytest.approx(track["width"], abs=3)


def test_each_vm__has_its_nodes_in_order_with_scores_and_reasons(visit: Any) -> None:
    page = visit().page
    assert page.locator("details.vm .name").all_inner_texts()[0] == "shop-web-7"
    assert page.locator("details.vm").count() == 6
    rows = page.locator("details.vm", has_text="shop-db-4").locator("tbody tr")
    scores = [float(text) for text in rows.locator(".score").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    assert "chosen" in rows.nth(0).inner_text()
    assert "MemoryOvercommit would exceed the memory overcommit ratio" in rows.nth(3).inner_text()


def test_vm_that_could_not_be_placed__says_what_would_help(visit: Any) -> None:
    shown = visit("failed").page.locator("details.vm", has_text="huge").inner_text()
    assert "failed" in shown
    assert "Without MemoryOvercommit, pve1, pve2, pve3 and pve4 would fit; the closest is pve4" in shown
    drift = visit("failed").page.locator("details.vm", has_text="gitlab").locator("tbody tr").inner_text()
    assert drift.split() == ["cores", "8", "64"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["provisioned", "failed"])
def test_all_text__can_be_read_in_light_and_dark(visit: Any, name: str, scheme: str) -> None:
    contrasts = visit(name, color_scheme=scheme).page.evaluate(CONTRASTS)
    assert len(contrasts) > 40
    assert [found for found in contrasts if found[0] < 4.5] == []


def test_system__decides_between_light_and_dark(visit: Any) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light, dark = (visit(color_scheme=scheme).page.evaluate(background) for scheme in SCHEMES)
    assert light != dark


def test_everything__can_be_reached_and_folded_by_keyboard(visit: Any) -> None:
    page = visit().page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.chips') !== null")
    page.keyboard.press("Enter")
    assert "#vm-" in page.url
    first = page.locator("details.vm").nth(0)
    first.locator("summary").focus()
    page.keyboard.press("Enter")
    assert first.get_attribute("open") is None
    page.keyboard.press("Space")
    assert first.get_attribute("open") is not None


def test_headings_and_tables__make_sense_without_sight(visit: Any) -> None:
    page = visit().page
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert page.locator("table:not(:has(caption)):not(:has(th[scope=row]))").count() == 0
    labels = page.locator(".track").evaluate_all("bars => bars.map(bar => bar.getAttribute('aria-label'))")
    assert all("before" in label and "after" in label for label in labels)


def test_print__shows_what_was_folded_away(visit: Any) -> None:
    page = visit().page
    first = page.locator("details.vm").nth(0)
    first.locator("summary").click()
    assert first.locator("table").is_hidden()
    page.emulate_media(media="print")
    assert first.locator("table").bounding_box()["height"] > 50


@pytest.mark.parametrize("width", [360, 768])
def test_narrow_screens__need_no_scrolling_sideways(visit: Any, width: int) -> None:
    page = visit(viewport={"width": width, "height": 800}).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", SCHEMES)
def test_picture__is_taken(visit: Any, scheme: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    picture = PICTURES / f"page-{scheme}.png"
    visit(color_scheme=scheme, viewport={"width": 1200, "height": 1240}).page.screenshot(path=picture)
    assert picture.stat().st_size > 50_000
    if os.environ.get("UPDATE_IMAGES"):
        shutil.copy(picture, CHECKOUT / "docs" / "images" / picture.name)
