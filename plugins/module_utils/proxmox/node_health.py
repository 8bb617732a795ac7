# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks whether nodes are healthy: quorum, services, storages, clock, HA and Ceph."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..engine.texts import known_names
from ..errors import ApiError, ConnectionFailed, InvalidRequest, PermissionDenied
from .api.reader import Reader, in_parallel
from .ceph import lacks_ceph
from .inventory.rows import Row

SERVICES = ("corosync", "pve-cluster", "pvedaemon", "pveproxy", "pvestatd", "pve-ha-crm", "pve-ha-lrm")
"""The services without which a node cannot run, move and start guests."""

CLOCK_TOLERANCE = 5.0
"""Seconds by which a node's clock may differ from that of the node that answers."""

CLOCK_READINGS = 3
"""How often a clock that differs is read: a busy node may send an answer some seconds after it got it from another."""

_CEPH_FLAGS = "OSDMAP_FLAGS"
"""The check of Ceph that reports flags such as noout, which maintenance sets on purpose."""


class Problem(t.NamedTuple):
    """What is wrong, as a sentence part, with a name that stays the same as long as it lasts."""

    name: str
    text: str


@dataclass(slots=True)
class NodeHealth:
    """The health of one node.

    Attributes:
        problems: what is wrong; a healthy node has none.
        accepted: what is wrong, and was accepted.
        unchecked: what could not be read, and why.
        uptime: seconds since it booted; None when that could not be read.
        version: its release of pve-manager, for example C(9.2.1).
    """

    name: str
    problems: list[Problem] = field(default_factory=list)
    accepted: list[Problem] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    uptime: int | None = None
    version: str | None = None

    @property
    def healthy(self) -> bool:
        return not self.problems

    def accept(self, names: Collection[str]) -> None:
        """Accept the problems with these names, or with names that begin with one of them and a colon."""
        accepted = [each for each in self.problems if {each.name, each.name.partition(":")[0]} & set(names)]
        self.problems = [each for each in self.problems if each not in accepted]
        self.accepted += accepted


def read_health(reader: Reader, names: Collection[str], accept: Collection[str] = ()) -> list[NodeHealth]:
    """Return the health of the named nodes, in their order: three calls, and four more for each node that is online.

    accept are the names of problems that do not make a node unhealthy.

    Raises InvalidRequest for a name that no node has, and what reading the list of nodes raises.
    """
    members: list[Row] = reader.get("/cluster/status")
    online = {str(row["name"]): bool(row.get("online")) for row in members if row.get("type") == "node"}
    require_members(names, online)
    shared = NodeHealth("")
    if any(row.get("type") == "cluster" and row.get("quorate") == 0 for row in members):
        shared.problems.append(Problem("quorum", "the cluster has no quorum"))
    managers: dict[str, str] = {}
    with _record_failure(shared, "HA"):
        managers = _ha_managers(reader)
    with _record_failure(shared, "Ceph"):
        shared.problems.extend(ceph_problems(reader))

    def check(name: str) -> NodeHealth:
        found = NodeHealth(name, list(shared.problems), unchecked=list(shared.unchecked))
        if not online[name]:
            found.problems.append(Problem("offline", "it is offline"))
            found.accept(accept)
            return found
        if "dead" in managers.get(name, ""):
            found.problems.append(Problem("ha", "its HA manager does not answer"))
        with _record_failure(found, "status"):
            _read_status(reader, found)
        for subject, problems in _CHECKS.items():
            with _record_failure(found, subject):
                found.problems.extend(problems(reader, name))
        found.accept(accept)
        return found

    results = in_parallel(check, names)
    return [results[name] for name in names]


def require_members(names: Iterable[str], members: Collection[str], option: str = "name") -> None:
    """Raise InvalidRequest for a name in this option that no node of the cluster has."""
    for number, name in enumerate(names):
        if name not in members:
            raise InvalidRequest(
                f"{option}[{number}]: {name!r} is not a node of the cluster; its nodes: {known_names(members, name)}"
            )


@contextmanager
def _record_failure(found: NodeHealth, subject: str) -> Iterator[None]:
    """Record why a check could not be made."""
    try:
        yield
    except (ApiError, PermissionDenied) as error:
        found.unchecked.append(f"{subject}: {error.message}")
    except ConnectionFailed as error:
        found.problems.append(Problem("connection", f"{subject}: {error.message}"))


def _read_status(reader: Reader, found: NodeHealth) -> None:
    status: Mapping[str, t.Any] = reader.get(f"/nodes/{found.name}/status")
    found.uptime = status.get("uptime")
    # pve-manager/9.2.1/7a3b2c1d
    parts = str(status.get("pveversion", "")).split("/")
    found.version = parts[1] if len(parts) > 1 else None


def _services(reader: Reader, node: str) -> Iterator[Problem]:
    """Yield services that should run and do not; those that are not installed or not enabled are left out."""
    rows: list[Row] = reader.get(f"/nodes/{node}/services")
    for row in rows:
        expected = row.get("service") in SERVICES and row.get("unit-state", "enabled") in ("enabled", "unknown")
        if expected and row.get("state") != "running":
            yield Problem(f"service:{row['service']}", f"service {row['service']} is {row.get('state')}")


def _storages(reader: Reader, node: str) -> Iterator[Problem]:
    """Yield storages that are enabled on the node but not active."""
    rows: list[Row] = reader.get(f"/nodes/{node}/storage", enabled=1)
    for row in rows:
        if not row.get("active"):
            yield Problem(f"storage:{row['storage']}", f"storage {row['storage']} is not active")


def _clock(reader: Reader, node: str) -> Iterator[Problem]:
    smallest = math.inf
    for _reading in range(CLOCK_READINGS):
        answer: Mapping[str, t.Any] = reader.get(f"/nodes/{node}/time")
        # The node that we talk to stamps all answers with its own time as it sends them, also those of other nodes.
        sent = reader.answer_time()
        if sent is None:
            return
        smallest = min(smallest, abs(answer["time"] - sent))
        if smallest <= CLOCK_TOLERANCE:
            return
    yield Problem("clock", f"its clock differs by {smallest:.0f} s")


_CHECKS: Mapping[str, Callable[[t.Any, str], Iterable[Problem]]] = {
    "services": _services,
    "storages": _storages,
    "time": _clock,
}


def _ha_managers(reader: Reader) -> dict[str, str]:
    """Return the state of the local resource manager of each node as HA reports it; empty if HA is not in use."""
    rows: list[Row] = reader.get("/cluster/ha/status/current")
    return {str(row["node"]): str(row.get("status", "")) for row in rows if row.get("type") == "lrm" and "node" in row}


def ceph_problems(reader: Reader) -> Iterator[Problem]:
    """Yield the warnings of Ceph, apart from flags. A cluster without Ceph answers with an error."""
    try:
        answer: Mapping[str, t.Any] = reader.get("/cluster/ceph/status")
    except ApiError as error:
        if lacks_ceph(error):
            return
        raise
    health: Mapping[str, t.Any] = answer.get("health") or {}
    checks: Mapping[str, t.Any] = health.get("checks") or {}
    for name in sorted(set(checks) - {_CEPH_FLAGS}):
        summary = (checks[name].get("summary") or {}).get("message", "")
        yield Problem(f"ceph:{name}", f"Ceph reports {name}: {summary}")
    if not checks and health.get("status") not in (None, "HEALTH_OK"):
        yield Problem(f"ceph:{health['status']}", f"Ceph reports {health['status']}")
