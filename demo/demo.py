# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demos: a simulated Proxmox cluster on which the shipped playbooks place, create and remove VMs, or empty a node.

Everything runs from this checkout and its .venv, keeps its state in a temporary folder, and ends with this program.

usage: .venv/bin/python demo/demo.py {vms,drain}
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT / "tests"))

from simulated_cluster.client import CLUSTERS, SimulatedCluster  # noqa: E402

CLUSTER = CLUSTERS / "demo.yml"
VMS = CHECKOUT / "demo" / "vms.yml"
BUILD = CHECKOUT / "build"
DRAINED = "pve1"
TIME_SCALE = 0.1
BOLD, DIM, PLAIN = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


class DemoFailed(Exception):
    """A step did not do what the demo shows."""


def main() -> int:
    """Run a demo; the exit status is 0 when every step did what it should."""
    parser = argparse.ArgumentParser(description="Show the collection at work on a simulated Proxmox VE cluster.")
    parser.add_argument("demo", choices=DEMOS, help="create VMs, or empty a node")
    steps = DEMOS[parser.parse_args().demo]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="qemu-scheduler-demo-") as folder:
            show(Path(folder), steps)
    except DemoFailed as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; the simulated cluster is stopped.", file=sys.stderr)
        return 130
    print(f"\nDone in {time.monotonic() - began:.0f} s. Nothing is left running.")
    return 0


def show(folder: Path, steps: Callable[[SimulatedCluster, dict[str, str]], None]) -> None:
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
        BUILD.mkdir(exist_ok=True)
        steps(cluster, environment(folder, cluster.environment()))


def show_vms(cluster: SimulatedCluster, env: dict[str, str]) -> None:
    """Place and create VMs, find them there, and remove them."""
    before, page = set(cluster.state()["guests"]), BUILD / "demo.html"
    given = ["-e", f"@{VMS.relative_to(CHECKOUT)}"]

    title("1. Place and create six VMs", "The table shows the node, VMID and storage of each VM, and why.")
    play("provision", env, given, "-e", f"provision_page={page}")
    created = set(cluster.state()["guests"]) - before

    title("2. Run it again", "The VMs exist, so nothing changes: changed=0.")
    if "changed=0" not in play("provision", env, given):
        raise DemoFailed("the second run changed something")

    title("3. Remove them", "The same file lists the VMs.")
    play("teardown", env, given)
    if set(cluster.state()["guests"]) != before:
        raise DemoFailed("what was created was not what was removed")

    title("What next")
    print(
        f"The page of step 1, with all {len(created)} decisions node by node:\n    {page}\n"
        f"The VMs of this demo:\n    {VMS.relative_to(CHECKOUT)}\n"
        "Empty a node for maintenance:\n    make demo-drain\n"
        "On a cluster of your own, set PROXMOX_HOST, PROXMOX_USER, PROXMOX_TOKEN_ID and PROXMOX_TOKEN_SECRET,\n"
        "and show the plan before you create anything:\n    ansible-playbook qemu_scheduler.proxmox.plan -e @vms.yml"
    )


def show_drain(cluster: SimulatedCluster, env: dict[str, str]) -> None:
    """Plan to empty a node, empty it, and bring its guests back."""
    page = BUILD / "demo-drain.html"
    given = ["-e", f"node_drain_nodes={DRAINED}", "-e", "{node_drain_options: {containers: restart}}"]
    before = guests_on(cluster, DRAINED)

    title(f"1. Plan to empty {DRAINED}", "Nothing is written yet. PEAK counts guests on both nodes while they move.")
    play("drain", env, [*given, "--check"])
    if guests_on(cluster, DRAINED) != before:
        raise DemoFailed("check mode moved guests")

    title("2. Empty it", "Each line of progress is a guest that has arrived.")
    play("drain", env, given, "-e", f"node_drain_page={page}")
    if guests_on(cluster, DRAINED):
        raise DemoFailed("the node is not empty")

    title("3. Bring the guests back", "The node is active again.")
    play("drain", env, [*given, "-e", "node_drain_state=active"])
    if guests_on(cluster, DRAINED) != before:
        raise DemoFailed("not all guests came back")

    title("What next")
    print(
        f"The page of step 2, with all moves and their effect on the nodes:\n    {page}\n"
        "Upgrade or reboot one node after the other, each drained meanwhile:\n"
        "    ansible-doc -t role qemu_scheduler.proxmox.rolling_maintenance"
    )


def guests_on(cluster: SimulatedCluster, node: str) -> set[int]:
    """The VMIDs of a node's guests."""
    return {vmid for vmid, guest in cluster.state()["guests"].items() if guest["node"] == node}


def title(text: str, explanation: str = "") -> None:
    """Print a heading, and a line that says what to look at."""
    print(f"\n{BOLD}{text}{PLAIN}\n{'-' * len(text)}")
    if explanation:
        print(explanation)


def play(name: str, env: Mapping[str, str], shown: Sequence[str], *more: str) -> str:
    """Run a playbook of the collection, show its output while it runs, and return it.

    shown are the arguments that the demo prints, more those that it does not.
    """
    command = ["ansible-playbook", f"qemu_scheduler.proxmox.{name}", *shown]
    print(f"{DIM}$ {shlex.join(command)}{PLAIN}", flush=True)
    command[0] = str(Path(sys.executable).parent / command[0])
    lines = []
    with subprocess.Popen(
        [*command, *more], cwd=CHECKOUT, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
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
    """Wait for the program to end, and end it if it does not: an interrupt may have reached only this program."""
    for interrupt in (None, signal.SIGINT, signal.SIGKILL):
        if interrupt is not None:
            process.send_signal(interrupt)
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            continue
        return


def environment(folder: Path, connection: Mapping[str, str]) -> dict[str, str]:
    """The environment of ansible-playbook: its state in folder, without the user's settings of Ansible and Proxmox."""
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


DEMOS = {"vms": show_vms, "drain": show_drain}

if __name__ == "__main__":
    sys.exit(main())
