# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Events about guests, in the playbooks that ansible-rulebook starts: it passes them as extra variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from simulated_cluster.client import SimulatedCluster
from support.payloads import controls
from support.playbook import run_playbook

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.watching import Watch


def test_events__are_data_in_the_playbooks_of_rulebooks(
    texts: list[str], trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guests = [
        {"vmid": 100 + number, "name": f"vm-{number}", "node": "pve1", "memory": 512, "config": {"description": text}}
        for number, text in enumerate(texts)
    ]
    description = {"nodes": [{"name": "pve1", "cores": 64, "memory": 65536}], "guests": guests}
    with SimulatedCluster.start(description, time_scale=0.02) as cluster:
        for name, value in cluster.environment().items():
            monkeypatch.setenv(name, value)
        cluster.fault(method="GET", path="/qemu/100/config", status=500, message=texts[0] + texts[-1])
        watch = Watch({"vms": [{"name": f"vm-{number}", "description": "x"} for number in range(len(texts))]})
        events = [event for event in watch.look(0.0) if event["type"] == "drift"]
        watch.close()
    assert [event["name"] for event in events] == [f"vm-{number}" for number in range(len(texts))]
    assert events[0]["error"]["code"] == "ApiError"
    extra = tmp_path / "extravars"
    # As ansible-rulebook writes them.
    extra.write_text(yaml.dump({"ansible_eda": {"event": {"drift": events}}}), encoding="utf-8")
    texts_of = "ansible_eda.event.drift | map(attribute='drift.description.old', default='x')"
    tasks: list[dict[str, Any]] = [
        {"ansible.builtin.debug": {"msg": "{{ ansible_eda.event.drift }}"}},
        {"ansible.builtin.debug": {"var": "ansible_eda.event"}},
        {"ansible.builtin.debug": {"msg": "{{ item }}"}, "loop": f"{{{{ {texts_of} }}}}"},
        *(
            task
            for number in range(len(texts))
            for value in [f"ansible_eda.event.drift[{number}].drift.description.old | default('x')"]
            for task in (
                {"ansible.builtin.debug": {"var": f"{{{{ {value} }}}}"}, "ignore_errors": True},
                {"ansible.builtin.debug": {}, "when": f"{{{{ {value} }}}}", "ignore_errors": True},
            )
        ),
    ]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
    run = run_playbook(tmp_path / "home", [play], {}, "--extra-vars", f"@{extra}")
    assert run.code == 0, run.output[-3000:]
    assert not trace.exists()
    assert controls(run.output) == set()
