# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives from a guest's config what it asks of a node: the same as for a new VM with that config. Pure."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterator, Mapping

from ...engine.devices.hardware import PCI, USB
from ...engine.texts import first, join_words
from ...model import Demands, DeviceClaim, Guest
from ..inventory.named import SNIPPET
from ..options.kinds import OF_DRIVER
from ..options.request import names_in, traits_of
from .mobility_ha import Surroundings

_DEVICE = re.compile(r"(hostpci|usb)\d+")
_BRIDGE = re.compile(r"(?:^|,)bridge=([^,]+)")
_VERSION = re.compile(r"(?:^|[,=])(?:pc-q35|pc-i440fx|virt)-(\d{1,3})\.(\d{1,3})")
_CPU_IN_ARGS = re.compile(r"(?:^|\s)--?cpu[\s=]+['\"]?([A-Za-z][\w.-]*)")
OF_ITS_NODE = frozenset({"host", "max"})
"""CPU types with which a VM sees the CPU of its node."""
_FLAGS_TOLD = 8


def demands_of(config: Mapping[str, t.Any], kind: str, *, live: bool = False) -> Demands:
    """Return what a guest with this config asks of a node to which it moves. live: whether it moves while it runs."""
    named = _snippets(config, live=live)
    if kind != "qemu":
        return Demands(bridges=_bridges(config), named=named)
    traits = traits_of(config)
    # Proxmox puts args last, and QEMU takes the last CPU that it is given.
    given = _CPU_IN_ARGS.findall(str(config.get("args", "")))
    cpu_type = given[-1] if given and given[-1] in OF_ITS_NODE else traits["cpu_type"]
    version = _VERSION.search(str(config.get("machine", "")))
    machine = (int(version[1]), int(version[2])) if version else None
    return Demands(cpu_type, traits["cpu_flags"], _bridges(config), tuple(_claims(config)), machine, named)


def _snippets(config: Mapping[str, t.Any], *, live: bool) -> frozenset[tuple[str, str]]:
    """Return the snippets without which the guest does not start. A VM that moves live keeps its cloud-init drive as it
    is, but its hook script is called on the target.
    """
    needed = ("hookscript",) if live else ("hookscript", "cicustom")
    options = {key: config[key] for key in needed if config.get(key)}
    return frozenset(each for each in names_in(options) if each[0] == SNIPPET)


def _bridges(config: Mapping[str, t.Any]) -> frozenset[str]:
    cards = (str(value) for key, value in config.items() if re.fullmatch(r"net\d+", key))
    return frozenset(match[1] for card in cards if (match := _BRIDGE.search(card)))


def _claims(config: Mapping[str, t.Any]) -> Iterator[DeviceClaim]:
    """Yield a claim for each device of a mapping."""
    for option in sorted(filter(_DEVICE.fullmatch, config)):
        driver = PCI if option.startswith("hostpci") else USB
        properties = OF_DRIVER[driver].read(str(config[option]))
        if mapping := properties.get("mapping"):
            yield DeviceClaim(f"{option} ({mapping})", driver, mapping=mapping, mdev=properties.get("mdev"))


def without_bridges(demands: Demands, guest: Guest, around: Surroundings) -> Iterator[tuple[str, str]]:
    """Yield the nodes without the guest's bridges. Proxmox itself notices that only when the guest starts there.

    A bridge is visible only with SDN.Audit on it. One that does not even show on the guest's own node is not checked.
    """
    wanted, shown = demands.bridges, around.nodes.get(guest.node)
    if shown is not None:
        wanted &= shown
    for node, bridges in around.nodes.items():
        if bridges is not None and node != guest.node and wanted - bridges:
            yield node, f"lacked the bridge {join_words(sorted(wanted - bridges))}"


def of_another_machine(guest: Guest, around: Surroundings) -> Iterator[tuple[str, str]]:
    """Yield the nodes of another architecture than the guest's node."""
    here = around.processors.get(guest.node)
    for node, other in around.processors.items():
        if here and here.machine and other.machine and here.machine != other.machine:
            yield node, f"had the architecture {other.machine} instead of {here.machine}"


def with_lesser_processors(demands: Demands, guest: Guest, around: Surroundings) -> Iterator[tuple[str, str]]:
    """Yield the nodes to which a running VM that sees the CPU of its node cannot move live.

    Proxmox compares neither vendors nor flags: such a VM crashes when it uses what is no longer there.
    """
    if demands.cpu_type not in OF_ITS_NODE:
        return
    here = around.processors.get(guest.node)
    seen = f"the CPU of {guest.node}, which the VM sees (cpu: {demands.cpu_type})"
    for node in around.nodes.keys() - around.offline - {guest.node}:
        other = around.processors.get(node)
        if here is None or other is None:
            yield node, f"could not be compared with {seen}, as this user lacks Sys.Audit on the nodes"
        elif here.vendor and other.vendor and here.vendor != other.vendor:
            yield node, f"had a CPU of {other.vendor} instead of {seen}, of {here.vendor}"
        elif here.flags - other.flags:
            flags = first(sorted(here.flags - other.flags), _FLAGS_TOLD)
            yield node, f"lacked flags of {seen}: {', '.join(flags)}"
