# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples about several clusters run as written, but for the hosts. One of the clusters is down."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml
from simulated_cluster.client import SimulatedCluster
from support.pages import CHECKOUT, examples
from support.playbook import run_tasks

PAGE = CHECKOUT / "docs" / "clusters.md"
TWO_NODES: dict[str, Any] = {
    "nodes": [{"name": f"pve{n}", "cores": 8, "memory": 16384} for n in (1, 2)],
    "storages": [{"name": "shared", "type": "rbd", "shared": True, "size": 1000}],
}
NAMES = ("berlin", "paris", "boston")


def test_clusters_page__runs_as_written(tmp_path: Path) -> None:
    text = "\n".join(example.text for example in examples(PAGE) if example.language == "yaml")
    with ExitStack() as stack:
        for name in NAMES:
            cluster = stack.enter_context(SimulatedCluster.start(TWO_NODES, time_scale=0.02))
            there = cluster.environment()
            text = text.replace(f"{name}.example.com", f"{there['PROXMOX_HOST']}:{there['PROXMOX_PORT']}")
            text = text.replace(f"{{{{ {name}_secret }}}}", there["PROXMOX_TOKEN_SECRET"])
        text = text.replace("rome.example.com", "127.0.0.1:1").replace("{{ rome_secret }}", "5ecret-of-rome")
        user = {"api_user": there["PROXMOX_USER"], "api_token_id": there["PROXMOX_TOKEN_ID"]}
        tasks = yaml.safe_load(text)
        for task in tasks:
            for module, options in task.items():
                if module.startswith("qemu_scheduler.proxmox."):
                    options.update(user)
        run = run_tasks(tmp_path, tasks, {"PROXMOX_VALIDATE_CERTS": "false"}, "-vvv")
    assert run.code == 0, run.output
    assert there["PROXMOX_TOKEN_SECRET"] not in run.output
    placed = {vm["name"]: vm["cluster"] for vm in run.of(tasks[0]["name"])["vms"]}
    assert sorted(placed[f"web-{n}"] for n in (1, 2, 3, 4)) == ["berlin", "boston", "boston", "paris"]
    assert {placed["db-1"], placed["db-2"]} == {"berlin", "paris"}
    assert any("VM" in line and "CLUSTER  NODE" in line for line in run.of(tasks[1]["name"])["msg"])
    assert run.of("New VMs, although a cluster may be down")["vms"][0]["cluster"] == "berlin"
    fleet = run.of("What differs, on any cluster")
    assert {vm["name"]: vm["cluster"] for vm in fleet["vms"]} == {n: c for n, c in placed.items() if n != "db-2"}
    assert {vm["state"] for vm in fleet["vms"]} == {"ok"}
    unmanaged = {(vm["name"], vm["cluster"]) for vm in fleet["unmanaged"]}
    assert unmanaged == {("db-2", placed["db-2"]), ("batch-7", "berlin")}
    counts = [result["total"] for result in run.of("How many more VMs of this size fit on each cluster")["results"]]
    assert min(counts) > 0
    assert run.last["results"][1]["msg"].startswith(f"{counts[1]} more on paris, then ")
