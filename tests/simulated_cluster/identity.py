# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Proxmox writes into a VM's config to tell it from others, and when it does so anew.

Containers get nothing of the kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .property_strings import parse, render

if TYPE_CHECKING:
    from .cluster import Cluster

CREATION_QEMU = {True: "10.0.13", False: "9.2.0"}
"""The version of QEMU, by whether the release is a modern one."""


def created(cluster: Cluster, config: dict[str, Any]) -> dict[str, Any]:
    """The config of a new VM. An ``smbios1`` that the user gives gets no UUID, and a ``vmgenid`` of 0 stays 0."""
    generated = {"smbios1": f"uuid={cluster.random_uuid()}"} if not config.get("smbios1") else {}
    if str(config.get("vmgenid", "1")) == "1":
        generated["vmgenid"] = cluster.random_uuid()
    return {**config, **generated, "meta": meta(cluster)}


def meta(cluster: Cluster) -> str:
    """The ``meta`` of a VM that is made now."""
    return f"creation-qemu={CREATION_QEMU[cluster.modern]},ctime={int(cluster.clock.now())}"


def cloned(cluster: Cluster, config: dict[str, Any]) -> dict[str, Any]:
    """The config of a clone: ``meta`` stays that of the source, and there is a new ``vmgenid`` only if that has one."""
    return _next_generation(cluster, {**config, "smbios1": _with_new_uuid(cluster, config)})


def restored(cluster: Cluster, config: dict[str, Any], *, unique: bool) -> dict[str, Any]:
    """The config of an archive: ``meta`` is that of the guest in it, and so is ``smbios1`` unless it is ``unique``."""
    if unique and "smbios1" in config:
        config = {**config, "smbios1": _with_new_uuid(cluster, config)}
    return _next_generation(cluster, config)


def rolled_back(cluster: Cluster, config: dict[str, Any]) -> dict[str, Any]:
    """The config of a snapshot that is in effect again."""
    return _next_generation(cluster, config)


def _next_generation(cluster: Cluster, config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "vmgenid": cluster.random_uuid()} if str(config.get("vmgenid", "0")) != "0" else config


def _with_new_uuid(cluster: Cluster, config: dict[str, Any]) -> str:
    return render({**parse(str(config.get("smbios1", "")), "base64"), "uuid": cluster.random_uuid()}, "base64")
