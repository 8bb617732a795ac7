# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the bridges, the CPUs with the models and flags that they support, and the pressure of the nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ...errors import ApiError, ConnectionFailed
from ...model import Node, Processor
from ..api.failures import NotRecorded
from ..api.reader import Reader, in_parallel
from .rows import read_rows

_PRESSURES = ("pressurecpusome", "pressureiosome", "pressurememorysome")
_SAMPLES = 5


def with_bridges(reader: Reader, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return nodes with the bridges and VNets that this user may use there: one call per node that is online.

    They stay None for a node that is offline or does not answer. Proxmox VE leaves out those on which the user has no
    right of SDN: where there are none at all, nothing is known.
    """
    bridges = _names(reader, nodes, "network", "iface", type="any_bridge")
    return tuple(replace(node, bridges=bridges.get(node.name) or None) for node in nodes)


def with_cpu_types(reader: Reader, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return nodes with the CPU types that QEMU knows there, custom ones included: one call per node that is online.

    They stay None for a node that is offline or does not answer.
    """
    models = _names(reader, nodes, "capabilities/qemu/cpu", "name")
    return tuple(replace(node, cpu_models=models.get(node.name)) for node in nodes)


def with_cpu_flags(reader: Reader, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return nodes with the CPU flags that each supports, from one call.

    They stay None before Proxmox VE 9.2, which does not report them, and for a user who cannot see them.
    """
    rows = read_rows(reader, "/cluster/qemu/cpu-flags")
    if rows is None:
        return tuple(nodes)
    return tuple(
        replace(node, cpu_flags=frozenset(str(row["name"]) for row in rows if node.name in row.get("supported-on", ())))
        for node in nodes
    )


def read_processor(reader: Reader, node: str) -> Processor | None:
    """Return what the CPUs of a node are; None if it cannot be read. One call.

    Proxmox VE 8 does not report the vendor, which is then known only from the name of the model.
    """
    try:
        status = reader.get(f"/nodes/{node}/status")
    except (ApiError, ConnectionFailed, NotRecorded):
        return None
    cpu = status.get("cpuinfo") or {}
    told = f"{cpu.get('vendor') or ''} {cpu.get('model') or ''}"
    vendor = next((name for name in ("AMD", "Intel") if name.lower() in told.lower()), str(cpu.get("vendor") or ""))
    machine = str((status.get("current-kernel") or {}).get("machine") or "")
    return Processor(vendor, machine, frozenset(str(cpu.get("flags") or "").split()))


def read_newest_machine(reader: Reader, node: str) -> tuple[int, int] | None:
    """Return the newest version of machine types that a node can run; None if it is not known. One call."""
    rows = read_rows(reader, f"/nodes/{node}/capabilities/qemu/machines") or ()
    found = (re.fullmatch(r"(\d{1,3})\.(\d{1,3}).*", str(row.get("version", ""))) for row in rows)
    return max(((int(match[1]), int(match[2])) for match in found if match), default=None)


def with_pressure(reader: Reader, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return nodes with their pressure, the mean of the five latest samples. Takes one call per online node.

    Proxmox VE reports pressure in percent, one sample per minute, of which the last one or two are still empty. It
    stays None before 9.0, which does not report it, for a node that is offline or does not answer, and for a user
    without Sys.Audit on the node.
    """

    def read(node: str) -> float | None:
        rows = read_rows(reader, f"/nodes/{node}/rrddata", timeframe="hour", cf="AVERAGE")
        known = [row for row in rows or () if all(row.get(key) is not None for key in _PRESSURES)]
        last = known[-_SAMPLES:]
        return max(sum(float(row[key]) for row in last) for key in _PRESSURES) / len(last) / 100 if last else None

    pressures = in_parallel(read, [node.name for node in nodes if node.online])
    return tuple(replace(node, pressure=pressures.get(node.name)) for node in nodes)


def _names(
    reader: Reader, nodes: Sequence[Node], path: str, key: str, **params: str
) -> dict[str, frozenset[str] | None]:
    """Return the names in the list at path below each node that is online; None if it cannot be read."""

    def read(node: str) -> frozenset[str] | None:
        rows = read_rows(reader, f"/nodes/{node}/{path}", **params)
        return None if rows is None else frozenset(str(row[key]) for row in rows)

    return in_parallel(read, [node.name for node in nodes if node.online])
