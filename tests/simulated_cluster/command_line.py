# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command: start a cluster from a description, say where it listens, run until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from .build import DEFAULT_TOKEN, DEFAULT_USER, build
from .certificates import Certificates
from .cluster import Cluster
from .connection import environment
from .description import DescriptionError, load
from .server import Server

PARENT_CHECK_SECONDS = 1.0


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulated_cluster", description="A simulated Proxmox VE cluster over HTTPS.")
    parser.add_argument("description", type=Path, help="YAML or JSON file that describes the cluster")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--ready", type=Path, help="file to write when listening, with addresses and logins")
    parser.add_argument("--log", type=Path, help="file to append every request to, one JSON object a line")
    parser.add_argument("--time-scale", type=float, default=1.0, help="real seconds per Proxmox second; 0: no waiting")
    parser.add_argument("--pve-version", choices=("9.2", "8.4"), help="overrides the description's version")
    parser.add_argument("--seed", type=int, default=0, help="of MAC addresses, row orders and statistics rounds")
    parser.add_argument("--state-dir", type=Path, help="keep the certificates here between starts")
    parser.add_argument("--exit-with-parent", type=int, metavar="PID", help="stop when this process is gone")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    try:
        cluster = build(
            load(options.description), version=options.pve_version, time_scale=options.time_scale, seed=options.seed,
        )
    except (DescriptionError, ValueError) as error:
        print(f"simulated_cluster: {error}", file=sys.stderr)
        return 2
    # The cluster's objects live as long as the process: exclude them from garbage collection.
    gc.freeze()
    return asyncio.run(_run(options, cluster))


async def _run(options: argparse.Namespace, cluster: Cluster) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    directory = Path(options.state_dir or tempfile.mkdtemp(prefix="simulated-cluster-"))
    directory.mkdir(parents=True, exist_ok=True)
    server = Server(cluster)
    try:
        certificates = Certificates(directory, options.host)
        if options.log is not None:
            cluster.log.open(options.log)
        try:
            port = await server.start(
                options.host, options.port, str(certificates.certificate), str(certificates.key)
            )
        except OSError as error:
            print(f"simulated_cluster: cannot listen on {options.host}:{options.port}: {error}", file=sys.stderr)
            return 1
        ready = _ready(options, cluster, certificates, port)
        if options.ready is not None:
            _write_atomically(options.ready, ready)
        print(f"# simulated_cluster: {cluster.name} ({cluster.version}) on https://{options.host}:{port}")
        for name, value in environment(ready).items():
            print(f"export {name}={shlex.quote(value)}")
        sys.stdout.flush()
        watcher = loop.create_task(_watch_parent(options.exit_with_parent, stop))
        await stop.wait()
        watcher.cancel()
    finally:
        await server.stop()
        if options.ready is not None:
            with contextlib.suppress(FileNotFoundError):
                options.ready.unlink()
        if options.state_dir is None:
            shutil.rmtree(directory, ignore_errors=True)
    return 0


def _ready(
    options: argparse.Namespace, cluster: Cluster, certificates: Certificates, port: int
) -> dict[str, Any]:
    root, automation = cluster.access.users["root@pam"], cluster.access.users[DEFAULT_USER]
    return {
        "host": options.host, "port": port, "ca_path": str(certificates.ca),
        "cert_fingerprint": certificates.fingerprint, "pid": os.getpid(), "user": root.userid,
        "password": root.password, "token_user": DEFAULT_USER, "token_id": DEFAULT_TOKEN,
        "token_secret": automation.tokens[DEFAULT_TOKEN].secret,
        "log": str(options.log) if options.log is not None else None,
    }


def _write_atomically(path: Path, data: dict[str, Any]) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(data, file)
    part.replace(path)


async def _watch_parent(pid: int | None, stop: asyncio.Event) -> None:
    """Stop when the parent process ends, so that no cluster remains when a test run is killed."""
    while pid is not None:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            stop.set()
            return
        except PermissionError:
            pass
        await asyncio.sleep(PARENT_CHECK_SECONDS)
