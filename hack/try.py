# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a command, or a shell, with a simulated cluster to which the PROXMOX_* variables point.

The variables are printed first, on stderr, for use in a shell in another window.

usage: .venv/bin/python hack/try.py [--cluster FILE] [--pve-version {9.2,8.4}] [--time-scale X] [COMMAND ...]
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
VENV = CHECKOUT / ".venv"
sys.path.insert(0, str(CHECKOUT / "tests"))

from simulated_cluster.client import CLUSTERS, SimulatedCluster  # noqa: E402


def main() -> int:
    """Return the command's exit code."""
    parser = argparse.ArgumentParser(description="Run a command, or a shell, beside a simulated Proxmox VE cluster.")
    parser.add_argument("--cluster", default=str(CLUSTERS / "demo.yml"), help="description of the cluster")
    parser.add_argument("--pve-version", choices=["9.2", "8.4"], help="overrides the description's version")
    parser.add_argument("--time-scale", type=float, default=0.1, help="real seconds per Proxmox second")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="default: your shell")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="qemu-scheduler-try-") as folder,
        SimulatedCluster.start(
            Path(options.cluster), version=options.pve_version, time_scale=options.time_scale
        ) as cluster,
    ):
        environment = {
            **os.environ,
            **cluster.environment(),
            "PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "ANSIBLE_COLLECTIONS_PATH": str(VENV / "collections"),
            "ANSIBLE_LOCALHOST_WARNING": "0",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0",
            # Keep the reservations of this short-lived cluster out of the user's own ledger.
            "XDG_STATE_HOME": folder,
        }
        for name, value in environment.items():
            if os.environ.get(name) != value:
                print(f"export {name}={shlex.quote(value)}", file=sys.stderr, flush=True)
        if not options.command:
            print(f"{cluster.url} is up until you leave this shell.", flush=True)
        command = options.command or [os.environ.get("SHELL", "/bin/sh")]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
