# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On what ``make real`` does not run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from simulated_cluster.client import CLUSTERS, SimulatedCluster

ANYWHERE = Path(__file__).resolve().parent / "anywhere"


def run(cluster: SimulatedCluster, **environment: str) -> subprocess.CompletedProcess[str]:
    options = ["-q", "-p", "no:cacheprovider", "--real", "-k", "capacity"]
    command = [sys.executable, "-m", "pytest", *options, str(ANYWHERE)]
    own = {**os.environ, **cluster.environment(), **environment}
    return subprocess.run(command, env=own, capture_output=True, text=True, timeout=3000, check=False)


def test_a_cluster_with_guests__is_tested_on_only_when_that_is_allowed() -> None:
    with SimulatedCluster.start(CLUSTERS / "three-nodes.yml", time_scale=0.01) as cluster:
        guests = cluster.state()["guests"]
        refused = run(cluster)
        assert "set REAL_CLUSTER_NOT_EMPTY=1" in refused.stdout + refused.stderr
        assert [request for request in cluster.requests() if request["method"] != "GET"] == []
        allowed = run(cluster, REAL_CLUSTER_NOT_EMPTY="1")
        assert "1 passed" in allowed.stdout, allowed.stdout
        assert cluster.state()["guests"] == guests
