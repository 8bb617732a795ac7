# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages, some of them written by real runs, and a real browser to look at them with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.page_results import capacity_result, fleet_result, moves_result, placement_result, tour_result
from support.playbook import run_playbook

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.html_page import html_page

CHECKOUT = Path(__file__).resolve().parents[2]
FAILING: dict[str, Any] = {"name": "huge", "memory": 9999999}


@dataclass
class Visit:
    """A page in the browser, with what it fetched and what the browser complained of."""

    page: Page
    fetched: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages of real runs (the demo's VMs, a VM that cannot be placed, a drain), and of large results."""
    folder = tmp_path_factory.mktemp("pages")
    pages = {name: folder / f"{name}.html" for name in ("provisioned", "failed", "drained")}
    for name, result in {
        "large": placement_result(500, 16, failures=3, guests=30),
        "moves": moves_result(200, 16),
        "capacity": capacity_result(),
        "fleet": fleet_result(),
        "tour": tour_result(2),
    }.items():
        pages[name] = folder / f"{name}.html"
        pages[name].write_text(html_page(result, cluster="pve.example.com", job="Nightly (job 7)"), encoding="utf-8")
    demo = f"@{CHECKOUT / 'demo' / 'vms.yml'}"
    with SimulatedCluster.start(CLUSTERS / "demo.yml", time_scale=0.02) as cluster:
        env = cluster.environment()
        named = ["-e", "html_page_cluster=pve.example.com"]
        arguments = [*named, "-e", demo, "-e", f"provision_page={pages['provisioned']}"]
        assert run_playbook(folder, "qemu_scheduler.proxmox.provision", env, *arguments).code == 0
        vms = {"qemu_vms": [FAILING, {"name": "gitlab", "cores": 64}], "provision_page": str(pages["failed"])}
        variables = folder / "variables.json"
        variables.write_text(json.dumps(vms), encoding="utf-8")
        run_playbook(folder, "qemu_scheduler.proxmox.plan", env, "-e", f"@{variables}")
        arguments = [*named, "-e", "node_drain_nodes=pve3", "-e", f"node_drain_page={pages['drained']}"]
        run_playbook(folder, "qemu_scheduler.proxmox.drain", env, *arguments)
    return pages


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        yield playwright.chromium.launch(executable_path=os.environ["CHROMIUM"], args=arguments)


@pytest.fixture
def visit(browser: Browser, written: dict[str, Path]) -> Iterator[Any]:
    """Open one of the pages: ``visit("provisioned", color_scheme="dark")``."""
    contexts = []

    def go(name: str = "provisioned", **options: Any) -> Visit:
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        contexts.append(context)
        visit = Visit(context.new_page())
        visit.page.on("request", lambda request: visit.fetched.append(request.url))
        visit.page.on("console", lambda message: visit.complaints.append(message.text))
        visit.page.on("pageerror", lambda error: visit.complaints.append(str(error)))
        visit.page.goto(written[name].as_uri())
        return visit

    yield go
    for context in contexts:
        context.close()
