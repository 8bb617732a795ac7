# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running the examples of a page as they are written, in their order, on the demo cluster."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster

from .pages import examples
from .playbook import PlayRun, run_playbook

DECISION = re.compile(r' *"?(\d+\. pve\d|-  pve\d|[\w-]+ +(create|clone)[+ ]| *\d+  [\w-]+ \(\d+\) +pve\d)')
"""Lines of `explain`, `decision_table` and `moves_table`."""


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
    playbook = folder / "page.yml"
    playbook.write_text(yaml.safe_dump(plays, sort_keys=False), encoding="utf-8")
    return run_on_demo_cluster(folder, playbook)


def run_on_demo_cluster(folder: Path, playbook: Path, *arguments: str) -> PlayRun:
    """Run a playbook on a demo cluster of its own."""
    with SimulatedCluster.start(CLUSTERS / "demo.yml", time_scale=0.02) as cluster:
        return run_playbook(folder, str(playbook), cluster.environment(), *arguments)


def missing_in(run: PlayRun, page: Path, headings: set[str]) -> list[str]:
    """The decisions that a page shows below some headings, and that the run did not print."""
    shown = [
        line
        for example in examples(page)
        if example.language in ("text", "console") and example.heading in headings
        for line in example.text.splitlines()
        if DECISION.match(line)
    ]
    printed = {line.strip(' ",') for line in run.output.splitlines()}
    return [line for line in shown if line.strip(' ",') not in printed]


def headings_of(page: Path) -> set[str]:
    """The headings below which a page has examples."""
    return {example.heading for example in examples(page)}
