# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples of each page run as they are written, in their order, on the demo cluster."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.pages import CHECKOUT, examples
from support.playbook import PlayRun, run_playbook

DOCS = CHECKOUT / "docs"
PAGES = [
    CHECKOUT / "README.md",
    *(DOCS / f"{name}.md" for name in ("how-to", "storage", "devices", "concurrency", "writing-a-plugin")),
]


def run_page(page: Path, folder: Path) -> PlayRun:
    """Write the files that a page names, and run its plays and tasks as one playbook."""
    plays = []
    for example in examples(page):
        if example.file is not None:
            path = folder / example.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(example.text, encoding="utf-8")
        elif not example.skipped:
            plays += example.plays
    folder.mkdir(parents=True, exist_ok=True)
    playbook = folder / "page.yml"
    playbook.write_text(yaml.safe_dump(plays, sort_keys=False), encoding="utf-8")
    with SimulatedCluster.start(CLUSTERS / "demo.yml", time_scale=0.02) as cluster:
        return run_playbook(folder, str(playbook), cluster.environment())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_run_as_written(page: Path, tmp_path: Path) -> None:
    run = run_page(page, tmp_path)
    assert run.code == 0, run.output
    assert run.tasks


def test_a_plugin_of_ones_own_holds_its_vm_back(tmp_path: Path) -> None:
    run = run_page(DOCS / "writing-a-plugin.md", tmp_path)
    held_back = run.of("Held back, then placed")["vms"][0]
    assert held_back["action"] == "create"
    assert held_back["waited_for"] == ["HoldBack"]
    assert held_back["attempts"] == 2


def test_a_score_of_ones_own_decides(tmp_path: Path) -> None:
    run = run_page(DOCS / "writing-a-plugin.md", tmp_path)
    decision = run.of("The nodes' cost counts five times as much as what is free")["vms"][0]["decision"]
    assert decision["node"] == "pve1"
    chosen = next(node for node in decision["nodes"] if node["node"] == "pve1")
    assert chosen["scores"]["Cheapest"] == {"raw": 0.2, "normalized": 100.0, "weight": 5.0}


def test_the_engine_runs_in_a_notebook() -> None:
    code, expected = (
        next(e.text for e in examples(DOCS / "developing.md") if e.language == language and needle in e.text)
        for language, needle in (("python", "schedule_all"), ("text", 'VM "x"'))
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs/developing.md", "exec"), {})
    assert printed.getvalue() == expected
