# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which rights a VM option needs, and who may set what only root may set."""

from __future__ import annotations

import re

from ..errors import die, forbidden, parameter_error
from ..model import is_cloud_init
from ..property_strings import is_cdrom, is_drive, parse, split_list
from ..routing import Call

_CPU = {"cores", "cpu", "cpulimit", "cpuunits", "numa", "smp", "sockets", "vcpus"}
_MEMORY = {"memory", "balloon", "shares", "allow-ksm"}
_HARDWARE = {
    "acpi", "hotplug", "kvm", "machine", "scsihw", "smbios1", "tablet", "vga", "watchdog", "audio0", "rng0",
}
_GENERAL = {
    "agent", "autostart", "bios", "description", "freeze", "keyboard", "localtime", "migrate_downtime",
    "migrate_speed", "name", "onboot", "ostype", "protection", "reboot", "startdate",
    "startup", "tdf", "template",
}
_DISK = {"boot", "bootdisk", "vmstatestorage"}
_ELSEWHERE = {
    "vmid", "node", "pool", "start", "storage", "digest", "delete", "revert", "unique", "force", "archive", "bwlimit",
    "live-restore", "import-working-storage", "tags", "ha-managed", "background_delay", "skiplock",
}
VNET_ZONE = "zone1"
_NUMBERED = re.compile(r"([a-z]+)(\d+)")


def privilege(option: str) -> str | None:
    """The privilege that an option needs, or several of which any will do; "" for none, None for what only root may
    set.
    """
    match = _NUMBERED.fullmatch(option)
    kind = match[1] if match else option
    if option in _ELSEWHERE or is_drive(option) or kind in ("unused", "usb", "hostpci", "virtiofs", "serial"):
        return ""
    if option in _CPU or (match and kind == "numa"):
        return "VM.Config.CPU"
    if option in _MEMORY:
        return "VM.Config.Memory"
    if option in _HARDWARE:
        return "VM.Config.HWType"
    if option in _GENERAL:
        return "VM.Config.Options"
    if option in _DISK:
        return "VM.Config.Disk"
    if is_cloud_init(option):
        return "VM.Config.Cloudinit|VM.Config.Network"
    if match and kind == "net":
        return "VM.Config.Network"
    return None


def check_options(call: Call, vmid: int, options: list[str], pool: str | None = None) -> None:
    """403 or 500 unless the caller may set every option; a pool's rights count while a VM is being made."""
    if call.who.is_root:
        return
    for option in options:
        needed = privilege(option)
        if needed is None:
            raise die(f"only root can set '{option}' config")
        if needed:
            _require(call, vmid, needed, pool)


def _require(call: Call, vmid: int, needed: str, pool: str | None) -> None:
    any_of = needed.split("|")
    if not (pool and call.allowed(f"/pool/{pool}", *any_of, any_of=True)):
        call.require(f"/vms/{vmid}", *any_of, any_of=True)


def check_devices(call: Call, values: dict[str, object], vmid: int, pool: str | None = None) -> None:
    """Rights on bridges, mapped devices, directories and custom CPU models."""
    for option, value in values.items():
        match = _NUMBERED.fullmatch(option)
        kind = match[1] if match else option
        parts = parse(str(value), "host")
        if match and kind == "net" and "bridge" in parts:
            vnet = any(parts["bridge"] in node.vnets for node in call.cluster.nodes.values())
            call.require(f"/sdn/zones/{VNET_ZONE if vnet else 'localnetwork'}/{parts['bridge']}", "SDN.Use")
        elif kind in ("hostpci", "usb") and match and not call.who.is_root:
            if "mapping" in parts and "host" not in parts:
                call.require(f"/mapping/{'pci' if kind == 'hostpci' else 'usb'}/{parts['mapping']}", "Mapping.Use")
            elif kind == "hostpci" or parts.get("host") != "spice":
                what = "non-mapped devices" if kind == "hostpci" else "real devices"
                raise die(f"only root can set '{option}' config for {what}")
        elif kind == "serial" and match and not call.who.is_root:
            if value != "socket":
                raise die(f"only root can set '{option}' config for real devices")
            _require(call, vmid, "VM.Config.HWType", pool)
        elif kind == "virtiofs" and match and not call.who.is_root:
            call.require(f"/mapping/dir/{parts.get('dirid', parts.get('host'))}", "Mapping.Use")
        elif option == "cpu" and call.cluster.modern:
            model = parts.get("cputype", parts.get("host", ""))
            if model.startswith("custom-"):
                call.require(f"/mapping/cpu/{model.removeprefix('custom-')}", "Mapping.Use")


def check_root_only(call: Call, *options: str) -> None:
    """Options that take root's own login, token or not."""
    for option in options:
        if call.get(option) and not call.who.is_root:
            raise parameter_error(**{option: "Only root may use this option."})


def check_tags(call: Call, vmid: int, old: list[str], new: list[str], created: bool = False) -> None:
    """The datacenter's rules for tags: rights on the VM, registered tags, and what users may invent."""
    if call.who.is_root:
        return
    cluster = call.cluster
    call.require(f"/vms/{vmid}", "VM.Config.Options")
    if call.allowed("/", "Sys.Modify"):
        return
    registered = set(cluster.options.get("registered-tags", []))
    mode, listed = user_tag_access(call)
    for tag in sorted(set(old) ^ set(new)):
        if tag in registered:
            raise forbidden(f"/, Sys.Modify for modifying tag '{tag}'")
        if mode == "free":
            continue
        if mode == "existing":
            listed = listed | {word for guest in cluster.guests.values() for word in split_list(guest.tags)}
        if tag not in listed and not (created and mode == "none"):
            raise forbidden(f"/, Sys.Modify for modifying tag '{tag}'")
        if created:
            # Release 9.2 compares with an empty hash instead of no tags here, and reports that.
            raise forbidden("/, Sys.Modify for modifying tag 'HASH(0x5583de501d08)'")


def user_tag_access(call: Call) -> tuple[str, set[str]]:
    """How free users are to set tags, and the tags that are listed for them."""
    setting = call.cluster.options.get("user-tag-access") or {}
    listed = {tag for tag in split_list(setting.get("user-allow-list")) if tag}
    return str(setting.get("user-allow", "free")), listed


def check_drive_rights(call: Call, vmid: int, values: dict[str, object]) -> None:
    """Rights to add, change or swap drives of an existing VM."""
    for option, value in values.items():
        if is_drive(option):
            drive = parse(str(value))
            needed = ["VM.Config.CDROM"] if is_cdrom(drive) else ["VM.Config.Disk"]
            if "cloudinit" in drive.get("file", ""):
                needed = ["VM.Config.Cloudinit", "VM.Config.CDROM"]
            call.require(f"/vms/{vmid}", *needed)
