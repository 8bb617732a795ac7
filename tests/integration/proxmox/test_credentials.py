# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials of a task, and others in the environment: what the task gives belongs together."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated_cluster.client import SimulatedCluster
from support.playbook import run_tasks

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.watching import Watch

CLUSTER = {"nodes": [{"name": "pve1", "cores": 4, "memory": 8192}]}


@pytest.fixture
def cluster():
    with SimulatedCluster.start(CLUSTER, time_scale=0.02) as running:
        yield running


def token(cluster: SimulatedCluster) -> dict[str, str]:
    return {
        "api_user": cluster.token_user, "api_token_id": cluster.token_id, "api_token_secret": cluster.token_secret,
    }  # fmt: skip


def password(cluster: SimulatedCluster) -> dict[str, str]:
    return {"api_user": cluster.user, "api_password": cluster.password}


@pytest.mark.parametrize("execution", ["direct", "module"])
@pytest.mark.parametrize(
    ("task", "wrong"),
    [
        (token, {"PROXMOX_PASSWORD": "of another cluster"}),
        (password, {"PROXMOX_TOKEN_ID": "other", "PROXMOX_TOKEN_SECRET": "of-another-cluster"}),
    ],
    ids=["token", "password"],
)
def test_credentials__of_the_environment_are_not_used_beside_those_of_the_task(
    execution: str, task, wrong: dict[str, str], cluster: SimulatedCluster, tmp_path: Path
) -> None:
    env = {**cluster.environment(), "PROXMOX_TOKEN_ID": "", "PROXMOX_TOKEN_SECRET": "", **wrong}
    env["QEMU_SCHEDULER_EXECUTION"] = execution
    run = run_tasks(tmp_path, [{"qemu_scheduler.proxmox.vmid_pick": task(cluster)}], env)
    assert run.code == 0, run.output
    logins = [entry for entry in cluster.requests() if entry["path"] == "/access/ticket"]
    assert len(logins) == (task is password), "the password of another cluster was sent to this one"


def test_credentials__of_the_event_source_belong_together(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**cluster.environment(), "PROXMOX_PASSWORD": "of another cluster"}.items():
        monkeypatch.setenv(name, value)
    watch = Watch(token(cluster))
    assert [event["type"] for event in watch.look(0.0)] == []
    watch.close()
    assert not any(entry["path"] == "/access/ticket" for entry in cluster.requests())


@pytest.mark.parametrize("given", [{"api_port": "a\n'Zq9-secret"}, {"validate_certs": "Zq9-secret"}])
def test_secret__in_the_wrong_option_of_the_event_source_is_not_quoted(given: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Watch({"api_host": ["pve1"], **given})
    assert next(iter(given)) in refused.value.message
    assert "Zq9-secret" not in refused.value.message
