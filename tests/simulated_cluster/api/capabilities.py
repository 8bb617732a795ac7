# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What QEMU can do: CPU models and flags per node and in the cluster, custom CPU models, machine types."""

from __future__ import annotations

from typing import Any

from ..cpu_models import ARM, CPU_FLAGS, VM_FLAGS, models
from ..errors import die, forbidden
from ..property_strings import split_list
from ..routing import Call, route

_CUSTOM = "/cluster/qemu/custom-cpu-models"


def node_models(call: Call, name: str) -> dict[str, str]:
    """The CPU models that a node offers, restricted where its description says so."""
    known = models(call.cluster.version)
    offered = call.cluster.nodes[name].cpu.get("models")
    return known if offered is None else {model: known[model] for model in known if model in offered}


def node_flags(call: Call, name: str) -> list[str]:
    return list(call.cluster.nodes[name].cpu.get("flags", CPU_FLAGS))


@route("GET", "/nodes/{node}/capabilities/qemu")
def index(call: Call) -> list[dict[str, str]]:
    names = ["cpu", "cpu-flags", "machines", "migration"] if call.cluster.modern else ["cpu", "machines"]
    return [{"name": name} for name in names]


@route("GET", "/nodes/{node}/capabilities/qemu/cpu")
def cpu(call: Call) -> list[dict[str, Any]]:
    if call.get("arch") == "aarch64":
        return [{"name": name, "vendor": "ARM", "custom": 0} for name in ARM]
    rows: list[dict[str, Any]] = [
        {"name": name, "vendor": vendor, "custom": 0} for name, vendor in node_models(call, call.node).items()
    ]
    if call.cluster.modern:
        for row in rows:
            if row["name"].startswith("x86-64-"):
                row["abstract"] = 1
    for name, entry in call.cluster.custom_cpus.items():
        vendor = models(call.cluster.version).get(entry.get("reported-model", ""), "default")
        rows.append({"name": f"custom-{name}", "vendor": vendor, "custom": 1})
    return call.cluster.shuffled(rows)


@route("GET", "/nodes/{node}/capabilities/qemu/cpu-flags")
def cpu_flags(call: Call) -> list[dict[str, Any]]:
    flags = node_flags(call, call.node)
    return [_described(name, [call.node] if name in flags else []) for name in VM_FLAGS]


def _described(name: str, nodes: list[str]) -> dict[str, Any]:
    """Only flags that a VM may set have a description."""
    row: dict[str, Any] = {"name": name, "supported-on": nodes}
    return row | {"description": f"The CPU flag {name}."} if name in VM_FLAGS else row


@route("GET", "/nodes/{node}/capabilities/qemu/machines")
def machines(call: Call) -> list[dict[str, Any]]:
    usual = ("10.1", "10.0", "9.2") if call.cluster.modern else ("9.2", "9.0", "8.1")
    versions = call.cluster.nodes[call.node].cpu.get("machines", usual)
    return [
        {"id": f"pc-{kind}-{version}", "type": short, "version": version}
        for version in versions for kind, short in (("i440fx", "i440fx"), ("q35", "q35"))
    ]


@route("GET", "/nodes/{node}/capabilities/qemu/migration")
def migration(call: Call) -> dict[str, Any]:
    return {"has-dbus-vmstate": call.cluster.nodes[call.node].dbus_vmstate}


@route("GET", "/cluster/qemu")
def cluster_index(call: Call) -> list[dict[str, str]]:
    return [{"name": "cpu-flags"}, {"name": "custom-cpu-models"}]


@route("GET", "/cluster/qemu/cpu-flags")
def cluster_flags(call: Call) -> list[dict[str, Any]]:
    if call.get("arch") == "aarch64":
        return []
    online = [node.name for node in call.cluster.nodes.values() if node.online]
    names = {*VM_FLAGS, *CPU_FLAGS, *(flag for name in online for flag in node_flags(call, name))}
    # What is no flag of a CPU, but of the hypervisor, is in the list of a node only.
    names = {flag for flag in names if not flag.startswith("hv-")}
    by_node = {name: set(node_flags(call, name)) for name in online}
    return [_described(flag, [name for name in online if flag in by_node[name]]) for flag in sorted(names)]


def _custom_row(call: Call, name: str) -> dict[str, Any]:
    cpus = call.cluster.custom_cpus
    return {**cpus[name], "cputype": f"custom-{name}", "digest": call.cluster.ha.digest(cpus)}


@route("GET", _CUSTOM)
def custom_cpus(call: Call) -> list[dict[str, Any]]:
    return [
        _custom_row(call, name) for name in call.cluster.custom_cpus
        if call.allowed(f"/mapping/cpu/{name}", "Mapping.Audit", "Mapping.Use", "Mapping.Modify", any_of=True)
    ]


@route("GET", _CUSTOM + "/{cputype}")
def custom_cpu(call: Call) -> dict[str, Any]:
    name = str(call["cputype"]).removeprefix("custom-")
    if not call.allowed(f"/mapping/cpu/{name}", "Mapping.Audit", "Mapping.Use", "Mapping.Modify", any_of=True):
        raise forbidden()
    if name not in call.cluster.custom_cpus:
        raise die(f"Custom cputype '{name}' not found")
    return _custom_row(call, name)


@route("POST", _CUSTOM)
def create_custom_cpu(call: Call) -> None:
    name = str(call["cputype"]).removeprefix("custom-")
    if name in call.cluster.custom_cpus:
        raise die(f"custom CPU model '{name}' already exists")
    call.cluster.custom_cpus[name] = {
        key: value for key, value in call.values.items() if key not in ("cputype", "digest")
    }


@route("PUT", _CUSTOM + "/{cputype}")
def change_custom_cpu(call: Call) -> None:
    name = str(call["cputype"]).removeprefix("custom-")
    if name not in call.cluster.custom_cpus:
        raise die(f"custom CPU model '{name}' does not exist")
    call.cluster.custom_cpus[name] |= {
        key: value for key, value in call.values.items() if key not in ("cputype", "digest", "delete")
    }
    for option in split_list(call.get("delete")):
        call.cluster.custom_cpus[name].pop(option, None)


@route("DELETE", _CUSTOM + "/{cputype}")
def delete_custom_cpu(call: Call) -> None:
    name = str(call["cputype"]).removeprefix("custom-")
    if call.cluster.custom_cpus.pop(name, None) is None:
        raise die(f"custom CPU model '{name}' does not exist")
