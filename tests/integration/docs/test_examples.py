# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples of each page run as written, in their order, on the demo cluster, and print what the page says."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.page_runs import headings_of, missing_in, run_on_demo_cluster, run_page
from support.pages import CHECKOUT, examples
from support.playbook import PlayRun

DOCS = CHECKOUT / "docs"
README = CHECKOUT / "README.md"
PLUGINS = DOCS / "writing-a-plugin.md"
PAGES = [README, *(DOCS / f"{name}.md" for name in ("how-it-decides", "storage", "devices", "concurrency"))]

DEMO, DRAIN = "Try it without a cluster", "Empty a node"
"""The parts of the README that show other playbooks than its own."""


@pytest.fixture(scope="module")
def plugin_page(tmp_path_factory: pytest.TempPathFactory) -> PlayRun:
    return run_page(PLUGINS, tmp_path_factory.mktemp("plugins"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples__run_as_written(page: Path, tmp_path: Path) -> None:
    run = run_page(page, tmp_path)
    assert run.code == 0, run.output
    assert run.tasks
    assert missing_in(run, page, headings_of(page) - {DEMO, DRAIN}) == []


def test_readme__shows_what_the_demo_prints(tmp_path: Path) -> None:
    run = run_on_demo_cluster(
        tmp_path, CHECKOUT / "playbooks" / "provision.yml", "-e", f"@{CHECKOUT / 'demo' / 'vms.yml'}"
    )
    assert run.code == 0, run.output
    assert missing_in(run, README, {DEMO}) == []


def test_readme__shows_the_plan_of_a_drain(tmp_path: Path) -> None:
    options = ["-e", "node_drain_nodes=pve1", "-e", "{node_drain_options: {containers: restart}}"]
    run = run_on_demo_cluster(tmp_path, CHECKOUT / "playbooks" / "drain.yml", *options, "--check")
    assert run.code == 0, run.output
    assert missing_in(run, README, {DRAIN}) == []


def test_custom_plugin__holds_its_vm_back(plugin_page: PlayRun) -> None:
    held_back = plugin_page.of("Held back, then placed")["vms"][0]
    assert held_back["action"] == "create"
    assert held_back["waited_for"] == ["HoldBack"]
    assert held_back["attempts"] == 2


def test_score_of_ones_own__decides(plugin_page: PlayRun) -> None:
    decision = plugin_page.of("The nodes' cost counts five times as much as what is free")["vms"][0]["decision"]
    assert decision["node"] == "pve1"
    chosen = next(node for node in decision["nodes"] if node["node"] == "pve1")
    assert chosen["scores"]["Cheapest"] == {"raw": -0.2, "normalized": 100.0, "weight": 5.0}


def test_tests_of_the_page_about_plugins__pass(tmp_path: Path) -> None:
    for example in examples(PLUGINS):
        if example.file is not None:
            path = tmp_path / example.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(example.text, encoding="utf-8")
    found = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    run = subprocess.run(command, cwd=tmp_path, env=found, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    assert "2 passed" in run.stdout


def test_page_about_plugins__shows_what_its_examples_print(plugin_page: PlayRun) -> None:
    assert plugin_page.code == 0, plugin_page.output
    assert missing_in(plugin_page, PLUGINS, headings_of(PLUGINS)) == []


def test_engine__runs_in_a_notebook() -> None:
    code, expected = (
        next(e.text for e in examples(DOCS / "developing.md") if e.language == language and needle in e.text)
        for language, needle in (("python", "schedule_all"), ("text", 'VM "x"'))
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs/developing.md", "exec"), {})
    assert printed.getvalue() == expected
