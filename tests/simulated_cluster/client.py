# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts a simulated cluster from a test, calls its control plane, and reads the requests that it received."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Protocol

import requests

from .connection import environment

START_SECONDS = 300.0
PACKAGE = Path(__file__).resolve().parent
CLUSTERS = PACKAGE / "clusters"


class StartError(RuntimeError):
    """The cluster did not start; the text is its output."""


class Process(Protocol):
    """The methods that are used of a cluster's process; see subprocess.Popen."""

    def poll(self) -> int | None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


def run_command(arguments: list[str], output: Path) -> Process:
    """Run the command with ``arguments``; what it prints goes to ``output``."""
    with output.open("w", encoding="utf-8") as stream:
        return subprocess.Popen([sys.executable, str(PACKAGE), *arguments], stdout=stream, stderr=subprocess.STDOUT)


class SimulatedCluster:
    """A running cluster. Make one with ``start`` (a context manager)."""

    launcher: ClassVar[Callable[[list[str], Path], Process]] = staticmethod(run_command)
    """How the process is started."""

    def __init__(self, process: Process, ready: dict[str, Any], folder: Path) -> None:
        self._process = process
        self._ready = ready
        self._folder = folder
        self._session = requests.Session()
        self._session.verify = ready["ca_path"]
        # Ignore proxies in the environment: the cluster is on the loopback.
        self._session.trust_env = False

    @classmethod
    @contextlib.contextmanager
    def start(
        cls,
        description: Path | str | dict[str, Any],
        *,
        version: str | None = None,
        time_scale: float = 0.01,
        seed: int = 0,
        state_dir: Path | None = None,
        log: Path | None = None,
        port: int = 0,
    ) -> Iterator[SimulatedCluster]:
        """Run a cluster from a file or data for as long as the context lasts; ``version`` is "9.2" or "8.4"."""
        with tempfile.TemporaryDirectory(prefix="simulated-cluster-client-") as name:
            cluster = cls._launch(Path(name), description, version, time_scale, seed, state_dir, log, port)
            try:
                yield cluster
            finally:
                cluster.stop()

    @classmethod
    def _launch(
        cls, folder: Path, description: Path | str | dict[str, Any], version: str | None, time_scale: float,
        seed: int, state_dir: Path | None, log: Path | None, port: int,
    ) -> SimulatedCluster:
        if isinstance(description, dict):
            source = folder / "description.json"
            source.write_text(json.dumps(description), encoding="utf-8")
        else:
            source = Path(description)
        ready_file = folder / "ready.json"
        arguments = [
            str(source), "--ready", str(ready_file), "--seed", str(seed),
            "--time-scale", str(time_scale), "--port", str(port), "--exit-with-parent", str(os.getpid()),
        ]
        for option, value in (("--pve-version", version), ("--state-dir", state_dir), ("--log", log)):
            if value is not None:
                arguments += [option, str(value)]
        output = folder / "output"
        process = cls.launcher(arguments, output)
        deadline = time.monotonic() + START_SECONDS
        while not ready_file.exists():
            if process.poll() is not None:
                raise StartError(output.read_text(encoding="utf-8").strip())
            if time.monotonic() > deadline:
                process.kill()
                raise StartError(f"not ready after {START_SECONDS:.0f} s: {output.read_text(encoding='utf-8')}")
            time.sleep(0.02)
        return cls(process, json.loads(ready_file.read_text(encoding="utf-8")), folder)

    def stop(self) -> None:
        """End the cluster and wait until its process has ended."""
        self._session.close()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def exit_code(self) -> int | None:
        """The exit code: 0 after a request to end, -9 if the process had to be killed; None while it runs."""
        return self._process.poll()

    @property
    def host(self) -> str:
        return str(self._ready["host"])

    @property
    def port(self) -> int:
        return int(self._ready["port"])

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"

    @property
    def ca_path(self) -> str:
        return str(self._ready["ca_path"])

    @property
    def fingerprint(self) -> str:
        return str(self._ready["cert_fingerprint"])

    @property
    def user(self) -> str:
        """root@pam, for logins with ``password``."""
        return str(self._ready["user"])

    @property
    def password(self) -> str:
        return str(self._ready["password"])

    @property
    def token_user(self) -> str:
        return str(self._ready["token_user"])

    @property
    def token_id(self) -> str:
        """The token's name without its user."""
        return str(self._ready["token_id"])

    @property
    def token_secret(self) -> str:
        return str(self._ready["token_secret"])

    @property
    def pid(self) -> int:
        return int(self._ready["pid"])

    def environment(self) -> dict[str, str]:
        """The variables that the collection reads its connection from."""
        return environment(self._ready)

    def options(self) -> dict[str, Any]:
        """The same as options of the collection's modules."""
        names = {"PROXMOX_CA_PATH": "ca_path"}
        given = {names.get(key, key.lower().replace("proxmox", "api")): v for key, v in self.environment().items()}
        return {**given, "api_port": self.port}

    def _control(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        response = self._session.request(method, f"{self.url}/sim{path}", json=body, timeout=START_SECONDS)
        answer = response.json()
        if response.status_code != 200:
            raise ValueError(answer.get("error", response.text))
        return answer["data"]

    def requests(self, reset: bool = False) -> list[dict[str, Any]]:
        """Every API request so far: method, path, params (secrets redacted), user, status, ms, at."""
        return list(self._control("GET", "/requests?reset=1" if reset else "/requests"))

    def count_requests(self, method: str, *ends: str) -> int:
        """How many API requests so far have this method, and a path that ends with one of these."""
        return sum(request["method"] == method and request["path"].endswith(ends) for request in self.requests())

    def reset_requests(self) -> None:
        self._control("DELETE", "/requests")

    def state(self) -> dict[str, Any]:
        """The actual state of the cluster; guests are keyed by their VMID as int."""
        state = self._control("GET", "/state")
        state["guests"] = {int(vmid): guest for vmid, guest in state["guests"].items()}
        return dict(state)

    def fault(self, **spec: Any) -> None:
        """Make requests fail; see the README for the options. ``storage_full`` and ``node_offline`` take a name."""
        if "storage_full" in spec:
            self.set_storage(spec.pop("storage_full"), full=True)
        if "node_offline" in spec:
            self.set_node(spec.pop("node_offline"), online=False)
        if spec:
            self._control("POST", "/faults", spec)

    def clear_faults(self) -> None:
        """Forget every fault; storages are no longer full."""
        self._control("DELETE", "/faults")

    def release(self) -> None:
        """Let the requests and tasks go on that faults hold. All faults stay in force."""
        self._control("PUT", "/released")

    def set_node(self, name: str, **state: Any) -> None:
        """``online``, ``maintenance``, ``cpu_use``, ``memory_use``, ``load``, ``dead_services``, ``clock_offset``,
        ``updates``, ``kernel``, ``kernels``, ``bridges``.

        With ``known=False``, the other nodes notice it later by themselves.
        """
        self._control("PUT", f"/nodes/{name}", state)

    def set_storage(self, name: str, **state: Any) -> None:
        """``full`` or ``enabled``."""
        self._control("PUT", f"/storages/{name}", state)

    def set_quorum(self, quorate: bool) -> None:
        self._control("PUT", "/quorum", {"quorate": quorate})

    def add_guest(self, **guest: Any) -> None:
        """A guest in the words of the description, made behind the API's back."""
        self._control("POST", "/guests", guest)

    def set_guest(self, vmid: int, **state: Any) -> None:
        """``config`` (None removes an option), ``pending``, ``status``, ``agent``, ``acpi``, ``load``."""
        self._control("PUT", f"/guests/{vmid}", state)

    def remove_guest(self, vmid: int) -> None:
        self._control("DELETE", f"/guests/{vmid}")

    def advance(self, seconds: float) -> None:
        """Let Proxmox seconds pass at once for statistics and timestamps; running tasks keep their time."""
        self._control("POST", "/advance", {"seconds": seconds})

    def revoke_tickets(self) -> None:
        self._control("DELETE", "/tickets")
