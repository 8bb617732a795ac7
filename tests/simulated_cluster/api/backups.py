# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading backups: the config within."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from ..errors import die
from ..model import Volume
from ..property_strings import is_cdrom, is_drive, parse, parse_size
from ..routing import Call, route


def may_restore(call: Call, volume: Volume) -> bool:
    """Whether the user has access to the archive."""
    path = f"/storage/{volume.storage}"
    return call.allowed(path, "Datastore.Allocate") or (
        call.allowed(path, "Datastore.AllocateSpace") and call.allowed(f"/vms/{volume.vmid}", "VM.Backup")
    )


def find_backup(call: Call, volid: str) -> Volume:
    """The archive that the request names, if the user has access to it."""
    storage = volid.partition(":")[0]
    named = re.search(r"vzdump-qemu-(\d+)-|/vm/(\d+)/", volid)
    if named is None:
        call.require(f"/storage/{storage}", "Datastore.Allocate")
    elif not call.allowed(f"/storage/{storage}", "Datastore.Allocate"):
        owner = int(named.expand(r"\1\2"))
        if owner != int(call.get("vmid") or 0):
            call.require(f"/storage/{storage}", "Datastore.AllocateSpace")
            call.require(f"/vms/{owner}", "VM.Backup")
    volume = call.cluster.volumes.find(volid, call.node)
    if volume is None or volume.backup is None:
        raise die(f"volume '{volid}' does not exist")
    return volume


def archived_disks(config: dict[str, Any]) -> dict[str, tuple[str, str, int]]:
    """The disks that a backup holds: drive to storage, format and size."""
    found = {}
    for key, value in config.items():
        drive = parse(str(value)) if is_drive(key) else {}
        if drive and not is_cdrom(drive) and drive.get("backup") != "0":
            storage, _, name = drive["file"].partition(":")
            extension = name.rpartition(".")[2]
            form = extension if extension in ("qcow2", "vmdk") else "raw"
            found[key] = (storage, form, parse_size(drive["size"]))
    return found


@route("GET", "/nodes/{node}/vzdump/extractconfig")
def extract_config(call: Call) -> str:
    volume = find_backup(call, str(call["volume"]))
    call.require(f"/vms/{volume.vmid}", "VM.Backup")
    config = dict(volume.backup or {})
    lines = [f"#{quote(line, safe=' ')}" for line in str(config.pop("description", "")).splitlines()]
    lines += [f"{key}: {config[key]}" for key in sorted(config)]
    for key, (storage, form, _size) in archived_disks(config).items():
        lines.append(f"#qmdump#map:{key}:drive-{key}:{storage}:{form}:")
    return "\n".join(lines) + "\n"
