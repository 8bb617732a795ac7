# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of guests in plans of moves: in results, tables, progress lines and on pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simulated_cluster.client import SimulatedCluster
from support.payloads import controls
from support.playbook import run_playbook

CODE = "qemu_scheduler.proxmox"


def test_names_of_guests__are_data_in_plans(texts: list[str], trace: Path, tmp_path: Path) -> None:
    description = {
        "nodes": [{"name": name, "cores": 64, "memory": 65536} for name in ("pve1", "pve2")],
        "guests": [
            {"vmid": 100 + number, "name": text, "node": "pve1", "memory": 512, "config": {"description": text}}
            for number, text in enumerate(texts)
        ],
    }
    tasks: list[dict[str, Any]] = [
        {f"{CODE}.node_drain": {"name": ["pve1"]}, "register": "r", "check_mode": True, "diff": True},
        {"ansible.builtin.debug": {"msg": "{{ r }}"}},
        {"ansible.builtin.debug": {"msg": "{{ r.plan.moves | map(attribute='name') }}"}},
        {"ansible.builtin.debug": {"msg": "{{ item.name }}"}, "loop": "{{ r.plan.moves }}"},
        {"ansible.builtin.debug": {}, "when": "{{ item.name }}", "loop": "{{ r.plan.moves }}", "ignore_errors": True},
        {"ansible.builtin.debug": {"msg": f"{{{{ r | {CODE}.moves_table }}}}"}},
        {"ansible.builtin.copy": {"content": f"{{{{ r | {CODE}.html_page }}}}", "dest": str(tmp_path / "moves.html")}},
        {f"{CODE}.node_drain": {"name": ["pve1"], "apply": "{{ r.plan }}"}, "register": "r", "failed_when": False},
        {"ansible.builtin.debug": {"msg": "{{ r }}"}},
    ]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
    with SimulatedCluster.start(description, time_scale=0.02) as cluster:
        run = run_playbook(tmp_path / "home", [play], cluster.environment())
        left = [guest for guest in cluster.state()["guests"].values() if guest["node"] == "pve1"]
    assert run.code == 0, run.output[-3000:]
    assert run.last["msg"]["changed"], run.output[-3000:]
    assert left == [], "a plan whose names were escaped can be applied"
    assert not trace.exists()
    assert [line[:500] for line in run.output.splitlines() if controls(line)] == []
    page = (tmp_path / "moves.html").read_text(encoding="utf-8")
    assert controls(page) == set()
    assert "<img" not in page
