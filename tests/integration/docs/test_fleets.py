# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleets of the page run as written: the tasks on one demo cluster, the two ways of one inventory on others."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.page_runs import run_page
from support.pages import CHECKOUT, examples
from support.playbook import run_playbook

PAGE = CHECKOUT / "docs" / "fleets.md"


def test_fleets__run_as_written(tmp_path: Path) -> None:
    run = run_page(PAGE, tmp_path)
    assert run.code == 0, run.output
    assert "requires a TPM" not in run.output
    assert len({vm["node"] for vm in run.of("VMs from a cloud image on a storage")["vms"]}) >= 1


@pytest.mark.parametrize("playbook", ["together.yml", "apart.yml"])
def test_inventory__is_the_list_of_vms(playbook: str, tmp_path: Path) -> None:
    for example in examples(PAGE):
        if example.file is not None:
            path = tmp_path / example.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(example.text, encoding="utf-8")
    arguments = ["--inventory", str(tmp_path / "shop" / "hosts.yml"), "--forks", "50"]
    with SimulatedCluster.start(CLUSTERS / "demo.yml", time_scale=0.02) as cluster:
        run = run_playbook(tmp_path, str(tmp_path / "shop" / playbook), cluster.environment(), *arguments)
        assert run.code == 0, run.output
        made = {g["config"]["name"]: g for g in cluster.state()["guests"].values() if "name" in g["config"]}
        fleet = {name: guest for name, guest in made.items() if name.startswith("fleet-")}
        assert sorted(fleet) == ["fleet-db-1", "fleet-web-1", "fleet-web-2"]
        assert fleet["fleet-db-1"]["config"]["memory"] == "8192"
        assert len({guest["node"] for guest in fleet.values()}) == 3, "they are apart"
        again = run_playbook(tmp_path, str(tmp_path / "shop" / playbook), cluster.environment(), *arguments)
        assert again.code == 0, again.output
        assert "changed=1" not in again.output
