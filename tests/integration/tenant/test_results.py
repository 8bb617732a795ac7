# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Notes, names and errors in the results of modules: used as templates, in tables, on pages, and with --diff."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.payloads import controls
from support.playbook import run_playbook

CODE = "qemu_scheduler.proxmox"


def number_of(texts: list[str], start: str) -> int:
    return 100 + next(number for number, text in enumerate(texts) if text.startswith(start))


@pytest.fixture
def cluster(texts: list[str]) -> Iterator[SimulatedCluster]:
    guests = [
        {
            "vmid": 100 + number, "name": f"vm-{number}", "node": "pve1", "memory": 512,
            "tags": [text.replace(";", "")], "config": {"description": text, "ciuser": text},
        }
        for number, text in enumerate(texts)
    ]  # fmt: skip
    # The name of a VM that a task names by its VMID.
    guests += [{"vmid": 900 + number, "name": text, "node": "pve1", "memory": 512} for number, text in enumerate(texts)]
    description = {"nodes": [{"name": "pve1", "cores": 64, "memory": 65536}], "guests": guests}
    with SimulatedCluster.start(description, time_scale=0.02) as running:
        yield running


@pytest.mark.parametrize("execution", ["direct", "module"])
def test_text_of_guests__is_data_in_results(
    execution: str, cluster: SimulatedCluster, texts: list[str], trace: Path, tmp_path: Path
) -> None:
    vms = [{"name": f"vm-{number}", "description": "as it should be"} for number in range(len(texts))]
    vms += [{"vmid": 900 + number, "cores": 2} for number in range(len(texts))]
    refused = number_of(texts, "x\n")
    cluster.fault(method="GET", path=f"/qemu/{refused}/config", status=500, message="\x1b[2J {{ 1 }} \u202e\x9b")
    old = "(r.vms | selectattr('drift.description', 'defined') | map(attribute='drift.description.old'))"
    tasks: list[dict[str, Any]] = [
        {f"{CODE}.fleet_info": {"vms": vms}, "register": "r"},
        {"ansible.builtin.debug": {"msg": "{{ r.vms | map(attribute='drift') }} {{ r.vms | map(attribute='name') }}"}},
        {"ansible.builtin.debug": {"msg": f"{{{{ r | {CODE}.fleet_table }}}}"}},
        {"ansible.builtin.set_fact": {"kept": f"{{{{ {old} }}}}"}},
        {"ansible.builtin.debug": {"msg": "{{ item }} {{ kept }}"}, "loop": f"{{{{ {old} }}}}"},
        {"ansible.builtin.debug": {"var": "{{ item }}"}, "loop": "{{ kept }}", "ignore_errors": True},
        {"ansible.builtin.debug": {}, "when": "{{ item }}", "loop": "{{ kept }}", "ignore_errors": True},
        {"ansible.builtin.debug": {"msg": "{{ hostvars.localhost.r.vms }} {{ vars.kept | default }}"}},
        {"ansible.builtin.copy": {"content": f"{{{{ r | {CODE}.html_page }}}}", "dest": str(tmp_path / "fleet.html")}},
        {
            f"{CODE}.qemu_schedule": {"vms": vms, "update": True, "all_or_nothing": False},
            "register": "r", "failed_when": False, "check_mode": True, "diff": True,
        },
        {"ansible.builtin.debug": {"msg": f"{{{{ r.vms | {CODE}.decision_table + r.vms | {CODE}.explain }}}}"}},
        {"ansible.builtin.debug": {"msg": "{{ r.vms | map(attribute='error', default='') }} {{ r.diff }} {{ r.msg }}"}},
        {"ansible.builtin.copy": {"content": f"{{{{ r | {CODE}.html_page }}}}", "dest": str(tmp_path / "vms.html")}},
    ]  # fmt: skip
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
    run = run_playbook(tmp_path / "home", [play], {**cluster.environment(), "QEMU_SCHEDULER_EXECUTION": execution})
    assert run.code == 0, run.output[-3000:]
    assert not trace.exists()
    assert controls(run.output) == set()
    for page in ("fleet.html", "vms.html"):
        shown = (tmp_path / page).read_text(encoding="utf-8")
        assert controls(shown) == set()
        assert "<script>touch" not in shown
        assert "<img" not in shown
    assert "-description: $(touch" in run.output, "a value of a diff is on one line"
