# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sources of the page about inventories are read as written, and the commands print what the page says."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.pages import CHECKOUT, examples
from support.playbook import environment

PAGE = CHECKOUT / "docs" / "inventory.md"


def test_inventory_page__shows_what_its_commands_print(tmp_path: Path) -> None:
    found = examples(PAGE)
    for example in found:
        if example.file is not None:
            path = tmp_path / example.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(example.text, encoding="utf-8")
    shown = [example.text.splitlines() for example in found if example.language == "console"]
    assert len(shown) == 2
    with SimulatedCluster.start(CLUSTERS / "demo.yml", time_scale=0.02) as cluster:
        for command, *expected in shown:
            _prompt, program, *arguments = shlex.split(command)
            done = subprocess.run(
                [str(Path(sys.executable).parent / program), *arguments],
                cwd=tmp_path,
                env=environment(tmp_path, cluster.environment()),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.stdout.splitlines() == expected, done.stderr
