# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading backups: the config within."""

from __future__ import annotations

from typing import Any

from ..errors import die
from ..model import Volume
from ..property_strings import is_cdrom, is_drive, parse, parse_size
from ..routing import Call, route


def find_backup(call: Call, volid: str) -> Volume:
    """The archive that the request names."""
    volume = call.cluster.volumes.find(volid, call.node)
    if volume is None or volume.backup is None:
        raise die(f"volume '{volid}' does not exist")
    return volume


def archived_disks(config: dict[str, Any]) -> dict[str, tuple[str, str, int]]:
    """The disks that a backup holds: drive to storage, format and size."""
    found = {}
    for key, value in config.items():
        if is_drive(key) and not is_cdrom(parse(str(value))):
            drive = parse(str(value))
            storage, _, name = drive["file"].partition(":")
            extension = name.rpartition(".")[2]
            form = extension if extension in ("qcow2", "vmdk") else "raw"
            found[key] = (storage, form, parse_size(drive["size"]))
    return found


@route("GET", "/nodes/{node}/vzdump/extractconfig")
def extract_config(call: Call) -> str:
    volid = str(call["volume"])
    call.require(f"/storage/{volid.partition(':')[0]}", "Datastore.AllocateSpace")
    config = find_backup(call, volid).backup or {}
    lines = [f"{key}: {config[key]}" for key in sorted(config)]
    for key, (storage, form, _size) in archived_disks(config).items():
        lines.append(f"#qmdump#map:{key}:drive-{key}:{storage}:{form}:")
    return "\n".join(lines) + "\n"
