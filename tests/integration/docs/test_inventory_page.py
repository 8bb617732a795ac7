# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sources of the page about inventories are read as written, and the commands print what the page says."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.pages import CHECKOUT, examples
from support.playbook import environment

PAGE = CHECKOUT / "docs" / "inventory.md"
PARIS: dict[str, Any] = {
    "nodes": [{"name": "pve1", "cores": 8, "memory": 16384}],
    "storages": [{"name": "shared", "type": "rbd", "shared": True, "size": 1000}],
    "guests": [
        {"vmid": vmid, "name": name, "node": "pve1", "memory": 512}
        for vmid, name in ((100, "mail-1"), (101, "mail-2"), (102, "shop-web-1"))
    ],
}


def test_inventory_page__shows_what_its_commands_print(tmp_path: Path) -> None:
    found = examples(PAGE)
    shown = [example.text.splitlines() for example in found if example.language == "console"]
    assert len(shown) == 3
    with (
        SimulatedCluster.start(CLUSTERS / "demo.yml", time_scale=0.02) as berlin,
        SimulatedCluster.start(PARIS, time_scale=0.02) as paris,
    ):
        clusters = {"berlin.example.com": berlin, "paris.example.com": paris}
        for example in found:
            if example.file is not None:
                path = tmp_path / example.file
                path.parent.mkdir(parents=True, exist_ok=True)
                text = example.text
                for name, cluster in clusters.items():
                    text = text.replace(name, f"{cluster.host}:{cluster.port}")
                path.write_text(text, encoding="utf-8")
        both = environment(tmp_path, berlin.environment())
        both.update(BERLIN_SECRET=berlin.token_secret, PARIS_SECRET=paris.token_secret)
        del both["PROXMOX_CA_PATH"]
        both["PROXMOX_VALIDATE_CERTS"] = "false"
        for command, *expected in shown:
            _prompt, program, *arguments = shlex.split(command)
            done = subprocess.run(
                [str(Path(sys.executable).parent / program), *arguments],
                cwd=tmp_path,
                env=both,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.stdout.splitlines() == expected, done.stderr
            assert ("get their VMID as a suffix" in done.stderr) is ("all" in arguments)
