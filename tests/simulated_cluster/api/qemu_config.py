# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changing VMs: config by PUT and POST, resizing, unlinking disks, turning into a template."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..cluster import Cluster
from ..errors import ApiError, TaskError, die, parameter_error
from ..model import Guest, is_cloud_init
from ..property_strings import format_size, is_cdrom, is_drive, parse, parse_net, parse_size, render, split_list
from ..routing import Call, route
from ..tasks import Task
from . import drives
from .config_rights import check_devices, check_drive_rights, check_options, check_root_only, check_tags
from .qemu_create import normalised
from .qemu_read import of

_CONTROL = {
    "vmid", "node", "delete", "revert", "digest", "skiplock", "force", "background_delay", "import-working-storage",
}
# What a running VM takes at once, as its cloud-init data; everything else waits for its next start.
_IMMEDIATE = {
    "name", "description", "onboot", "tags", "protection", "hookscript", "startup", "lock", "digest", "shares",
    "migrate_downtime", "migrate_speed", "vmstatestorage", "cpulimit", "cpuunits",
}


def _is_immediate(option: str) -> bool:
    return option in _IMMEDIATE or is_cloud_init(option)


@route("PUT", "/nodes/{node}/qemu/{vmid}/config")
async def put(call: Call) -> None:
    await update(call)


@route("POST", "/nodes/{node}/qemu/{vmid}/config")
async def post(call: Call) -> str:
    guest = of(call)
    check_digest(call, guest)
    shown = " ".join(f"-{key} {value}" for key, value in call.values.items() if key not in ("node", "vmid"))

    async def work(task: Task) -> None:
        task.say(f"update VM {guest.vmid}: {shown}")
        await task.work(call.cluster.clock, 0)
        await update(call)

    return call.task("qmconfig", guest.vmid, work)


async def update(call: Call) -> None:
    """Apply a config change as ``update_vm_api`` does."""
    cluster, vmid = call.cluster, int(call["vmid"])
    check_root_only(call, "skiplock")
    deletes, reverts = split_list(call.get("delete")), split_list(call.get("revert"))
    options = {key: value for key, value in call.values.items() if key not in _CONTROL}
    if not options and not deletes and not reverts:
        raise die("no options specified")
    for option in deletes:
        if option in options:
            raise parameter_error(delete=f"you can't use '-{option}' and -delete {option}' at the same time")
        known = cluster.schema.paths["/nodes/{node}/qemu/{vmid}/config"]["PUT"]["parameters"]["properties"]
        if option not in known and f"{option.rstrip('0123456789')}[n]" not in known and option != "parent":
            raise parameter_error(delete=f"unknown option '{option}'")
    if call.get("hookscript") and cluster.volumes.find(str(call["hookscript"]), call.node) is None:
        raise parameter_error(hookscript=f"script '{call['hookscript']}' does not exist\n")
    check_options(call, vmid, [*options, *deletes])
    drives.check_access(call, options)
    check_drive_rights(call, vmid, options)
    check_devices(call, options, vmid)
    guest = of(call)
    check_digest(call, guest)
    if guest.config_lock and not call.get("skiplock"):
        raise die(f"VM is locked ({guest.config_lock})")
    if "tags" in options or "tags" in deletes:
        check_tags(call, vmid, split_list(guest.tags), split_list(options.get("tags")))
    await cluster.hold(guest, ApiError)
    try:
        await _apply(call, of(call), options, deletes, reverts)
    finally:
        guest.lock.release()


def check_digest(call: Call, guest: Guest, error: Callable[[str], Exception] = die) -> None:
    """Refuse a change of a config that is not the one that the caller has read."""
    if call.get("digest") and call["digest"] != guest.digest():
        raise error("checksum mismatch (file change by other user?)")


async def _apply(
    call: Call, guest: Guest, options: dict[str, Any], deletes: list[str], reverts: list[str]
) -> None:
    cluster = call.cluster
    check_digest(call, guest)
    if not call.get("skiplock") and guest.config_lock:
        raise die(f"VM is locked ({guest.config_lock})")
    cluster.need_writable(guest)
    for option in deletes:
        if is_drive(option) and guest.config.get("protection") and option in guest.config:
            raise die(f"can't remove drive '{option}' - protection mode enabled")
    _check_balloon(guest, options)
    cluster.touch(guest)
    former = dict(guest.config)
    for option in reverts:
        guest.pending.pop(option, None)
    for option in deletes:
        _delete(call, guest, option)
    new = {key: value for key, value in options.items() if is_drive(key) and _needs_allocation(guest, key, value)}
    try:
        made = await drives.create_drives(cluster, guest, new, None)
    except TaskError as error:
        raise die(str(error)) from None
    _check_boot_order(guest, options)
    before = str(guest.config.get("boot", ""))
    for option, value in {**options, **made}.items():
        _set(cluster, guest, option, value)
    _append_media(cluster, guest, before, options)
    if guest.running:
        _update_cloud_init(guest, former)
    cluster.touch(guest)


def _update_cloud_init(guest: Guest, former: dict[str, Any]) -> None:
    """A running guest's cloud-init data are in its config at once, and on its drive only with ``hotplug`` for them."""
    for option in {*former, *guest.config}:
        guest.note_cloud_init(option, former.get(option), guest.config.get(option))
    if "cloudinit" in str(guest.config.get("hotplug", "")):
        guest.write_cloud_init()


def _check_balloon(guest: Guest, options: dict[str, Any]) -> None:
    if options.get("memory") or "balloon" in options:
        there = {**guest.config, **{key: value for key, value in guest.pending.items() if value}}
        memory = str(options.get("memory") or there.get("memory") or 512).removeprefix("current=")
        if int(options.get("balloon", there.get("balloon")) or 0) > int(memory):
            raise die("balloon value too large (must be smaller than assigned memory)")


def _check_boot_order(guest: Guest, options: dict[str, Any]) -> None:
    """Unlike the creation of a VM, a change refuses an order with a device that the VM does not have."""
    order = str(options.get("boot", ""))
    for device in order.removeprefix("order=").split(";") if order.startswith("order=") else ():
        if device not in {*guest.config, *guest.pending, *options}:
            raise die(f"invalid bootorder: device '{device}' does not exist'")


def _append_media(cluster: Cluster, guest: Guest, before: str, options: dict[str, Any]) -> None:
    """A CD drive that is set and not in the boot order is appended to the former one, whatever order is set with it.

    Proxmox goes through the options in a random order; this is the one that clients go wrong on.
    """
    order = before.removeprefix("order=").split(";")
    asked = {key: parse(str(value)) for key, value in options.items() if is_drive(key)}
    media = [key for key, drive in asked.items() if is_cdrom(drive) and key not in order]
    if before.startswith("order=") and media:
        _set(cluster, guest, "boot", "order=" + ";".join([*order, *media]))


def _needs_allocation(guest: Guest, option: str, value: Any) -> bool:
    """Options of a disk that is already attached are changed in place."""
    current = parse(str(guest.config.get(option, "")))
    return parse(str(value)).get("file") != current.get("file")


def _set(cluster: Cluster, guest: Guest, option: str, value: Any) -> None:
    if option == "tags":
        value = _tags(cluster, str(value))
    elif re.fullmatch(r"net\d+", option):
        parts, old = parse_net(str(value)), parse_net(str(guest.config.get(option, "")))
        if "macaddr" not in parts and "macaddr" in old:
            value = f"{parts['model']}={old['macaddr']}," + ",".join(
                f"{key}={word}" for key, word in parts.items() if key != "model"
            )
        value = normalised(cluster, option, value.rstrip(",") if isinstance(value, str) else value)
    elif is_drive(option) and option in guest.config:
        _replace_drive(guest, option, str(value))
        value = _with_size(guest, option, str(value))
        if not guest.running:
            value = drives.as_applied(option, str(guest.config[option]), value)
    else:
        value = normalised(cluster, option, value)
    guest.pending.pop(option, None)
    unplugged = _is_immediate(option) or not guest.running
    cold = option in ("efidisk0", "tpmstate0")
    hotplug = not cold and (is_drive(option) or re.fullmatch(r"(?:net|unused)\d+", option) is not None)
    if unplugged or hotplug:
        _take_unused(guest, option, str(value))
        if value == "" or value is None:
            guest.config.pop(option, None)
        else:
            guest.config[option] = value
    elif guest.config.get(option) != value:
        guest.pending[option] = value


def _with_size(guest: Guest, option: str, value: str) -> str:
    drive, old = drives.with_limits(parse(value)), parse(str(guest.config[option]))
    if drive.get("file") == old.get("file") and "size" in old:
        drive["size"] = old["size"]
    return render(drive)


def _replace_drive(guest: Guest, option: str, value: str) -> None:
    """A disk that another one takes the place of becomes unused; a CD is just swapped."""
    old = parse(str(guest.config[option]))
    if old.get("file") != parse(value).get("file") and not is_cdrom(old):
        _keep_unused(guest, old["file"])


def _take_unused(guest: Guest, option: str, value: str) -> None:
    if is_drive(option):
        file = parse(value).get("file")
        for key in [key for key in guest.config if key.startswith("unused") and guest.config[key] == file]:
            del guest.config[key]


def _keep_unused(guest: Guest, volid: str) -> None:
    number = next(i for i in range(256) if f"unused{i}" not in guest.config)
    guest.config[f"unused{number}"] = volid


def _delete(call: Call, guest: Guest, option: str) -> None:
    cluster = call.cluster
    value = guest.config.get(option)
    if value is None:
        guest.pending.pop(option, None)
        return
    if option.startswith("unused"):
        _destroy(cluster, guest, str(value))
    elif is_drive(option):
        drive = parse(str(value))
        if drive.get("file", "").endswith(("cloudinit", "cloudinit.qcow2")):
            _destroy(cluster, guest, drive["file"])
        elif not is_cdrom(drive) and call.get("force"):
            call.require(f"/storage/{drive['file'].partition(':')[0]}", "Datastore.AllocateSpace")
            _check_not_in_snapshots(guest, drive["file"])
            _destroy(cluster, guest, drive["file"])
        elif not is_cdrom(drive):
            _keep_unused(guest, drive["file"])
    elif guest.running and not _is_immediate(option) and not option.startswith("net"):
        guest.pending[option] = None
        return
    del guest.config[option]
    boot = str(guest.config.get("boot", ""))
    if boot.startswith("order="):
        rest = [device for device in boot.removeprefix("order=").split(";") if device != option]
        guest.config["boot"] = "order=" + ";".join(rest) if rest else " "


def _check_not_in_snapshots(guest: Guest, volid: str) -> None:
    if volid in str(guest.snapshots):
        raise die(f"unable to delete '{volid}' - volume is still in use (snapshot?)")


def _destroy(cluster: Cluster, guest: Guest, volid: str) -> None:
    volume = cluster.volumes.find(volid, guest.node)
    if volume is not None and volume.vmid == guest.vmid:
        cluster.volumes.remove(volume)


def _tags(cluster: Cluster, text: str) -> str:
    """Tags as PUT stores them: lower case, sorted, once each."""
    style = cluster.options.get("tag-style") or {}
    tags = split_list(text)
    if str(style.get("case-sensitive", "0")) != "1":
        tags = [tag.lower() for tag in tags]
    unique = dict.fromkeys(tags)
    return ";".join(unique if style.get("ordering") == "config" else sorted(unique))


@route("PUT", "/nodes/{node}/qemu/{vmid}/unlink")
async def unlink(call: Call) -> None:
    call.values["delete"] = ",".join(split_list(call["idlist"]))
    await update(call)


@route("PUT", "/nodes/{node}/qemu/{vmid}/cloudinit")
async def regenerate(call: Call) -> None:
    """Write the cloud-init data to the drive that the guest reads."""
    call.require(f"/vms/{call['vmid']}", "VM.Config.Cloudinit")
    guest = of(call)
    if guest.config_lock:
        raise die(f"VM is locked ({guest.config_lock})")
    guest.write_cloud_init()


@route("PUT", "/nodes/{node}/qemu/{vmid}/resize")
async def resize(call: Call) -> str:
    cluster, vmid = call.cluster, int(call["vmid"])
    disk, text = str(call["disk"]), str(call["size"])
    # Whether the VM is on this node is only found out with its lock in hand.
    guest = cluster.guests.get(vmid) or Guest(vmid, "")

    async def work(task: Task) -> None:
        await cluster.hold(guest, task=task)
        try:
            changed = cluster.guest("qemu", call.node, vmid)
            check_digest(call, changed, TaskError)
            await task.work(cluster.clock, cluster.timing.resize_seconds)
            if changed.config_lock:
                raise TaskError(f"VM is locked ({changed.config_lock})")
            if disk not in changed.config:
                raise TaskError(f"disk '{disk}' does not exist")
            drive = parse(str(changed.config[disk]))
            volume = cluster.volumes.find(drive["file"], changed.node)
            if volume is None:
                raise TaskError(f"volume '{drive['file']}' does not exist")
            size = volume.size + parse_size(text[1:]) if text.startswith("+") else parse_size(text)
            if size < volume.size:
                raise TaskError("shrinking disks is not supported")
            storage = cluster.storages[volume.storage]
            if "base-" in volume.volid.rpartition("/")[2]:
                path = f"{storage.path}/images/{volume.volid.partition(':')[2]}"
                extra = "'--preallocation=metadata' " if cluster.modern and volume.format == "qcow2" else ""
                command = f"/usr/bin/qemu-img resize {extra}-f {volume.format} {path} {size}"
                raise TaskError(f"command '{command}' failed: exit code 1")
            cluster.volumes.check_space(storage, changed.node, size - volume.size)
            cluster.touch(changed)
            cluster.volumes.grow(volume, size)
            cluster.need_writable(changed, TaskError)
            changed.config[disk] = render({**drive, "size": format_size(size)})
            if not storage.block:
                task.say("Image resized.")
        finally:
            guest.lock.release()

    return call.task("resize", vmid, work)


@route("POST", "/nodes/{node}/qemu/{vmid}/template")
async def template(call: Call) -> str:
    cluster, guest = call.cluster, of(call)
    if guest.template:
        raise die("you can't convert a template to a template")
    if guest.running:
        raise die("you can't convert a VM to template if VM is running")

    async def work(task: Task) -> None:
        await cluster.hold(guest)
        try:
            cluster.need_writable(guest, TaskError)
            await task.work(cluster.clock, cluster.timing.template_seconds)
            cluster.touch(guest)
            for key, drive in guest.drives().items():
                volume = cluster.volumes.find(drive.get("file", ""), guest.node)
                if volume is None or is_cdrom(drive) or volume.vmid != guest.vmid:
                    continue
                cluster.volumes.remove(volume)
                volume.volid = volume.volid.replace(f"vm-{guest.vmid}-disk", f"base-{guest.vmid}-disk")
                cluster.volumes.add(volume)
                guest.config[key] = render({**drive, "file": volume.volid})
            guest.config["template"] = 1
        finally:
            guest.lock.release()

    return call.task("qmtemplate", guest.vmid, work)

