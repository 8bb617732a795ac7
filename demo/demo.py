# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo: a simulated Proxmox cluster, VMs placed and created on it by the shipped playbooks, and removed again.

Everything runs from this checkout and its .venv, keeps its state in a temporary folder, and ends with this program.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT / "tests"))

from simulated_cluster.client import CLUSTERS, SimulatedCluster  # noqa: E402

CLUSTER = CLUSTERS / "demo.yml"
VMS = CHECKOUT / "demo" / "vms.yml"
PAGE = CHECKOUT / "build" / "demo.html"
TIME_SCALE = 0.1
BOLD, DIM, PLAIN = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


class DemoFailed(Exception):
    """A step did not do what the demo shows."""


def main() -> int:
    """Run the demo; the exit status is 0 when every step did what it should."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="qemu-scheduler-demo-") as folder:
            show(Path(folder))
    except DemoFailed as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; the simulated cluster is stopped.", file=sys.stderr)
        return 130
    print(f"\nDone in {time.monotonic() - began:.0f} s. Nothing is left running.")
    return 0


def show(folder: Path) -> None:
    """Start the cluster and go through the steps."""
    title("A Proxmox VE cluster, simulated on this machine")
    with SimulatedCluster.start(CLUSTER, time_scale=TIME_SCALE) as cluster:
        state = cluster.state()
        offline = [name for name, node in state["nodes"].items() if not node["online"]]
        print(
            f"{len(state['nodes'])} nodes ({', '.join(offline)} is offline) with {len(state['guests'])} guests, "
            f"at {cluster.url}.\n"
            f"It behaves as recordings of Proxmox VE 9.2 do, {1 / TIME_SCALE:.0f} times faster."
        )
        env = environment(folder, cluster.environment())
        PAGE.parent.mkdir(exist_ok=True)

        title("1. Place and create six VMs", "Which node, VMID and storage each gets, and why, is in the table.")
        play("provision", env, "-e", f"provision_page={PAGE}")
        created = set(cluster.state()["guests"]) - set(state["guests"])

        title("2. The same again", "The VMs are there, so nothing is to be done: changed=0.")
        output = play("provision", env)
        if "changed=0" not in output:
            raise DemoFailed("the second run changed something")

        title("3. Remove them", "The same file of VMs says which.")
        play("teardown", env)
        if set(cluster.state()["guests"]) != set(state["guests"]):
            raise DemoFailed("what was created was not what was removed")

    title("What next")
    print(
        f"The page of step 1, with all {len(created)} decisions node by node:\n    {PAGE}\n"
        f"The VMs of this demo:\n    {VMS.relative_to(CHECKOUT)}\n"
        "On a cluster of your own, set PROXMOX_HOST, PROXMOX_USER, PROXMOX_TOKEN_ID and PROXMOX_TOKEN_SECRET,\n"
        "and look before you create:\n    ansible-playbook qemu_scheduler.proxmox.plan -e @vms.yml"
    )


def title(text: str, explanation: str = "") -> None:
    """Print a heading, and a line of what to look at."""
    print(f"\n{BOLD}{text}{PLAIN}\n{'-' * len(text)}")
    if explanation:
        print(explanation)


def play(name: str, env: Mapping[str, str], *arguments: str) -> str:
    """Run a playbook of the collection, show what it says as it says it, and return that."""
    command = ["ansible-playbook", f"qemu_scheduler.proxmox.{name}", "-e", f"@{VMS.relative_to(CHECKOUT)}"]
    print(f"{DIM}$ {' '.join(command)}{PLAIN}", flush=True)
    command[0] = str(Path(sys.executable).parent / command[0])
    lines = []
    with subprocess.Popen(
        [*command, *arguments], cwd=CHECKOUT, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            for line in process.stdout or ():
                lines.append(line)
                print(line, end="", flush=True)
        finally:
            end(process)
    if process.returncode != 0:
        raise DemoFailed(f"ansible-playbook ended with {process.returncode}")
    return "".join(lines)


def end(process: subprocess.Popen[str]) -> None:
    """Wait for the program to end: an interrupt on the terminal reached it too, one of this program alone did not."""
    for interrupt in (None, signal.SIGINT, signal.SIGKILL):
        if interrupt is not None:
            process.send_signal(interrupt)
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            continue
        return


def environment(folder: Path, connection: Mapping[str, str]) -> dict[str, str]:
    """The environment of ansible-playbook: its state in folder, nothing of the user's own Ansible and Proxmox."""
    config = folder / "ansible.cfg"
    config.touch()
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "PROXMOX_"))}
    return {
        **inherited,
        **connection,
        "ANSIBLE_CONFIG": str(config),
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / ".venv" / "collections"),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_REMOTE_TEMP": str(folder / "tmp"),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
        "ANSIBLE_FORCE_COLOR": "true" if sys.stdout.isatty() else "false",
        "PYTHONUNBUFFERED": "1",
        "XDG_STATE_HOME": str(folder / "state"),
    }


if __name__ == "__main__":
    sys.exit(main())
