# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drives in requests: what Proxmox checks before the worker starts, and what the worker then allocates."""

from __future__ import annotations

import re
from typing import Any

from ..cluster import Cluster
from ..errors import ApiError, TaskError, die, parameter_error
from ..model import Guest, Storage, Volume
from ..property_strings import (
    DRIVE_ORDER,
    GIB,
    format_size,
    human_size,
    is_cdrom,
    is_drive,
    parse,
    render,
)
from ..routing import Call
from ..tasks import Killed, Task

NEW_DISK = re.compile(r"(?:([^/:\s]+):)?(\d+(?:\.\d+)?)")
_DIR_NAME = re.compile(r"(?:\d+/[^/]+|\d+/[^/]+/\d+/[^/]+|iso/[^/]+|import/.+|snippets/.+|backup/.+|vztmpl/.+)")
_BLOCK_NAME = re.compile(r"(?:(?:base-\d+-\S+/)?(?:vm|base)-\d+-\S+)")
_KINDS = {"lvm": "lvm", "lvmthin": "lvm", "zfspool": "zfs", "rbd": "rbd"}
EFI_SIZE, TPM_SIZE = 540672, 4 * 1024**2


def new_size(file: str) -> tuple[str | None, float] | None:
    """Storage and GiB of ``storage:32``; None for anything else."""
    match = NEW_DISK.fullmatch(file)
    return (match[1], float(match[2])) if match else None


def check_access(call: Call, values: dict[str, object]) -> None:
    """What Proxmox refuses at once: unknown storages, wrong content, missing rights, names it cannot parse."""
    for option, value in values.items():
        if not is_drive(option):
            continue
        drive = parse(str(value))
        file = drive.get("file", "")
        if file in ("none", "cdrom") or file.startswith("/"):
            if file.startswith("/") and not call.who.is_root:
                raise ApiError(403, "Only root can pass arbitrary filesystem paths.")
            continue
        new = new_size(file)
        if new is not None or file.endswith(":cloudinit") or file == "cloudinit":
            name = (new[0] if new else file.rpartition(":")[0]) or str(call.get("storage", "local"))
            _check_new(call, name)
            source = drive.get("import-from", "")
            if ":" in source:
                _check_existing(call, source)
        else:
            _check_existing(call, file)


def _check_new(call: Call, name: str) -> Storage:
    call.require(f"/storage/{name}", "Datastore.AllocateSpace")
    storage = find_storage(call.cluster, name)
    if "images" not in storage.content:
        raise parameter_error(storage=f"storage '{name}' does not support vm images")
    return storage


def find_storage(cluster: Cluster, name: str) -> Storage:
    storage = cluster.storages.get(name)
    if storage is None:
        raise die(f"storage '{name}' does not exist")
    return storage


def _check_existing(call: Call, volid: str) -> None:
    name, _, rest = volid.partition(":")
    storage = find_storage(call.cluster, name)
    if storage.block:
        if not _BLOCK_NAME.fullmatch(rest):
            raise die(f"unable to parse {_KINDS.get(storage.type, storage.type)} volume name '{rest}'")
    elif not _DIR_NAME.fullmatch(rest):
        raise die(f"unable to parse directory volume name '{rest}'")
    if not call.who.is_root and not call.allowed(
        f"/storage/{name}", "Datastore.AllocateSpace", "Datastore.Audit", any_of=True
    ):
        call.require(f"/storage/{name}", "Datastore.Audit")


async def create_drives(cluster: Cluster, guest: Guest, values: dict[str, object], task: Task | None,
                        default_storage: str = "local") -> dict[str, str]:
    """Allocate what drive options ask for; option to final string. What was made is undone on failure."""
    made: list[Volume] = []
    result: dict[str, str] = {}
    try:
        for option in sorted((key for key in values if is_drive(key)), key=_allocation_order):
            drive = parse(str(values[option]))
            if _is_cloudinit(drive):
                _check_only_one(option, {**guest.config, **{k: v for k, v in guest.pending.items() if v}, **result})
            result[option] = await _create_drive(cluster, guest, option, drive, task, default_storage, made)
    except Killed:
        raise
    except BaseException:
        for volume in made:
            cluster.volumes.remove(volume)
        raise
    return result


def _is_cloudinit(drive: dict[str, str]) -> bool:
    return drive.get("file", "").endswith(("cloudinit", "cloudinit.qcow2"))


def _check_only_one(option: str, there: dict[str, object]) -> None:
    for key, value in sorted(there.items()):
        if key != option and is_drive(key) and _is_cloudinit(parse(str(value))):
            raise TaskError(f"{option} - cloud-init drive is already attached at '{key}'")


def _allocation_order(option: str) -> tuple[int, str]:
    return (DRIVE_ORDER.index(option) if option in DRIVE_ORDER else len(DRIVE_ORDER), option)


async def _create_drive(
    cluster: Cluster, guest: Guest, option: str, drive: dict[str, str], task: Task | None, default_storage: str,
    made: list[Volume],
) -> str:
    drive = with_limits(drive)
    file, node = drive.get("file", ""), guest.node
    if file in ("none", "cdrom") or (file.startswith("/") and "import-from" not in drive):
        return render(drive)
    new = new_size(file)
    if file == "cloudinit" or file.endswith(":cloudinit"):
        storage = find_storage(cluster, file.rpartition(":")[0] or default_storage)
        volume = cluster.volumes.allocate_cloudinit(storage, node, guest.vmid)
        made.append(volume)
        _say(task, cluster.volumes.formatting_line(volume, storage))
        return render({**_without(drive, "format"), "file": volume.volid, "media": "cdrom"})
    if new is None:
        return _existing(cluster, guest, drive)
    storage = find_storage(cluster, new[0] or default_storage)
    source = drive.pop("import-from", None)
    if source is not None:
        volume = await _import(cluster, guest, option, source, storage, drive.get("format"), task)
    else:
        size = EFI_SIZE if option == "efidisk0" else TPM_SIZE if option == "tpmstate0" else int(new[1] * GIB)
        volume = cluster.volumes.allocate(storage, node, guest.vmid, _rounded(storage, size), drive.get("format"))
        _say(task, cluster.volumes.formatting_line(volume, storage))
    made.append(volume)
    drive = {**_without(drive, "format"), "file": volume.volid, "size": format_size(volume.size)}
    if option == "tpmstate0":
        drive.setdefault("version", "v1.2")
    if source is None:
        _say(task, f"{option}: successfully created disk '{render(drive)}'")
    return render(drive)


def with_limits(drive: dict[str, str]) -> dict[str, str]:
    """The drive as it is stored: Proxmox means to convert limits in bytes to MiB, and makes each of them 0."""
    in_bytes = {key for key in drive if re.fullmatch(r"bps(_rd|_wr)?", key)}
    return {**_without(drive, *in_bytes), **{f"m{key}": "0.000" for key in in_bytes}}


def as_applied(option: str, old: str, new: Any) -> Any:
    """A changed parameter as the config has it afterwards: certificates of 2023 are enrolled into an EFI disk with keys
    and noted as 2023k, else the note is dropped (OVMF.pm, drive_change).
    """
    if option != "efidisk0":
        return new
    before, drive = parse(old), parse(str(new))
    cert = drive.get("ms-cert", "")
    if before.get("file") == drive.get("file") and cert.startswith("2023") and before.get("ms-cert") != cert:
        enrolled = {"ms-cert": "2023k"} if drive.get("pre-enrolled-keys") == "1" else {}
        return render({**_without(drive, "ms-cert"), **enrolled})
    return new


def _rounded(storage: Storage, size: int) -> int:
    """Block storages allocate whole extents."""
    extent = {"lvm": 4 * 1024**2, "lvmthin": 4 * 1024**2, "zfspool": 1024**2}.get(storage.type, 1)
    return -(-size // extent) * extent


def _existing(cluster: Cluster, guest: Guest, drive: dict[str, str]) -> str:
    file = drive["file"]
    storage = cluster.volumes.storage(file)
    cluster.volumes.check_usable(storage, guest.node)
    volume = cluster.volumes.find(file, guest.node)
    if volume is None:
        raise TaskError(f"volume '{file}' does not exist")
    return render({**drive, "size": format_size(volume.size)})


async def _import(
    cluster: Cluster, guest: Guest, option: str, source: str, storage: Storage, image_format: str | None,
    task: Task | None,
) -> Volume:
    if source.startswith("/"):
        raise TaskError(f"can't find file '{source}'")
    origin = cluster.volumes.find(source, guest.node)
    if origin is None:
        owner = cluster.volumes.storage(source)
        cluster.volumes.check_usable(owner, guest.node)
        if source.partition(":")[2].startswith("import/"):
            raise TaskError(f"failed to stat '{owner.path}/{source.partition(':')[2]}'")
        raise TaskError(f"volume '{source}' does not exist")
    _say(task, f"create full clone of drive {option} ({source})")
    volume = cluster.volumes.allocate(storage, guest.node, guest.vmid, origin.size, image_format)
    try:
        _say(task, cluster.volumes.formatting_line(volume, storage))
        await copy(cluster, origin.size, task, cluster.timing.import_seconds_per_gib)
    except Killed:
        raise
    except BaseException:
        cluster.volumes.remove(volume)
        raise
    return volume


async def copy(cluster: Cluster, size: int, task: Task | None, seconds_per_gib: float) -> None:
    """Spend the time that copying takes, and log as qemu-img does."""
    _say(task, f"transferred 0.0 B of {human_size(size)} (0.00%)")
    await cluster.clock.sleep(seconds_per_gib * size / GIB)
    _say(task, f"transferred {human_size(size)} of {human_size(size)} (100.00%)")


def _say(task: Task | None, line: str | None) -> None:
    if task is not None and line is not None:
        task.say(line)


def _without(drive: dict[str, str], *keys: str) -> dict[str, str]:
    return {key: value for key, value in drive.items() if key not in keys}


def default_boot_order(config: dict[str, object]) -> str:
    """First disk, first CD drive, first network card: what Proxmox makes of a VM that names no order."""
    first: dict[str, str] = {}
    for key in DRIVE_ORDER:
        if key in config:
            first.setdefault("cdrom" if is_cdrom(parse(str(config[key]))) else "disk", key)
    nets = sorted((key for key in config if re.fullmatch(r"net\d+", key)), key=lambda key: int(key[3:]))
    order = [first[kind] for kind in ("disk", "cdrom") if kind in first] + nets[:1]
    return "order=" + ";".join(order) if order else " "
