# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks run by ansible-runner, as AWX does in its container: what it reads are events, statistics and artefacts."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import ansible_runner
import pytest
from simulated_cluster.client import SimulatedCluster
from support.event_query import counted
from support.pages import CHECKOUT
from support.playbook import environment

PASSWORD = "qwertz-not-to-be-seen"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder as AWX prepares it for a job: the playbooks of the project, and an inventory with localhost."""
    (tmp_path / "inventory").mkdir()
    localhost = "localhost ansible_connection=local ansible_python_interpreter='{{ ansible_playbook_python }}'\n"
    (tmp_path / "inventory" / "hosts").write_text(localhost, encoding="utf-8")
    shutil.copytree(CHECKOUT / "playbooks", tmp_path / "project")
    return tmp_path


def run(folder: Path, cluster: SimulatedCluster, playbook: str, **variables: Any) -> ansible_runner.Runner:
    env = environment(folder, {**cluster.environment(), "PGPASSWORD": PASSWORD})
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    # AWX gets the events from the callback of the runner.
    for name in ("ANSIBLE_CALLBACK_PLUGINS", "ANSIBLE_CALLBACKS_ENABLED"):
        del env[name]
    return ansible_runner.run(
        private_data_dir=str(folder),
        playbook=playbook,
        extravars=variables,
        envvars=env,
        quiet=True,
        ident=playbook,
        # Without a callback, the runner handles the signals of this process from now on, also after the job.
        cancel_callback=lambda: False,
    )


def test_job__has_the_events_statistics_and_artefacts_that_awx_reads(cluster: SimulatedCluster, project: Path) -> None:
    vms = [{"name": "job-1", "memory": 1024, "cipassword": PASSWORD}, {"name": "job-2", "memory": 1024}]
    job = run(project, cluster, "provision.yml", qemu_vms=vms)
    assert (job.status, job.rc) == ("successful", 0), job.stdout.read()
    events = list(job.events)
    assert [event["counter"] for event in events] == sorted(event["counter"] for event in events)
    assert events[-1]["event"] == "playbook_on_stats"
    assert events[-1]["event_data"]["changed"] == {"localhost": 1}
    told = events[-1]["event_data"]["artifact_data"]["qemu_scheduler_vms"]
    assert [vm["name"] for vm in told] == ["job-1", "job-2"]
    (result,) = (
        event["event_data"]["res"]
        for event in events
        if event["event"] == "runner_on_ok" and event["event_data"].get("resolved_action", "").endswith("qemu_schedule")
    )
    assert {vm["status"] for vm in result["vms"]} == {"running"}
    assert [each["name"] for each in counted("qemu_schedule", result)] == ["job-1", "job-2"]
    artefacts = project / "artifacts" / "provision.yml"
    assert (artefacts / "rc").read_text(encoding="utf-8") == "0"
    output = (artefacts / "stdout").read_text(encoding="utf-8")
    assert "qemu_schedule: 1/2 job-" in output
    told_events = "".join(path.read_text(encoding="utf-8") for path in (artefacts / "job_events").iterdir())
    for secret in (PASSWORD, cluster.environment()["PROXMOX_TOKEN_SECRET"]):
        assert secret not in output + told_events

    again = run(project, cluster, "drift.yml", qemu_vms=vms)
    assert again.status == "successful", again.stdout.read()
    assert "qemu_scheduler_drift" in list(again.events)[-1]["event_data"]["artifact_data"]

    # A project has the playbooks alone.
    adopted = run(project, cluster, "adopt.yml", adopt_file=str(project / "all.yml"), adopt_name="job-.*")
    assert adopted.status == "successful", adopted.stdout.read()
    assert "$schema=" not in (project / "all.yml").read_text(encoding="utf-8")


def test_failed_job__says_why_in_its_last_event(cluster: SimulatedCluster, project: Path) -> None:
    job = run(project, cluster, "provision.yml", qemu_vms=[{"name": "huge", "memory": 9_000_000}])
    assert (job.status, job.rc) == ("failed", 2)
    failed = [event for event in job.events if event["event"] == "runner_on_failed"]
    assert "NoNodesAvailable" in failed[-1]["event_data"]["res"]["msg"]
