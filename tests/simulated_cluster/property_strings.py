# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading and writing Proxmox's ``key=value,key=value`` strings, sizes and volume names inside them."""

from __future__ import annotations

import re

MIB = 1024**2
GIB = 1024**3
_UNITS = {"": 1, "K": 1024, "M": MIB, "G": GIB, "T": 1024**4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)i?B?")


def parse_size(text: str) -> int:
    """Bytes of ``32G``, ``528K`` or ``1024``; ValueError for anything else."""
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"not a size: {text!r}")
    return int(float(match[1]) * _UNITS[match[2]])


def format_size(size: int) -> str:
    """A size as Proxmox writes it into a config: the largest unit that divides it."""
    text, value = str(size), size
    for unit in ("K", "M", "G", "T"):
        if value == 0 or value % 1024:
            return text
        value //= 1024
        text = f"{value}{unit}"
    return text


def human_size(size: float) -> str:
    """A size as task logs show it: ``1.9 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def parse(text: str, default_key: str = "file") -> dict[str, str]:
    """The parts of a property string; the bare word belongs to ``default_key``."""
    parts: dict[str, str] = {}
    for part in str(text).split(","):
        if not part.strip():
            continue
        key, separator, value = part.partition("=")
        if separator:
            parts[key.strip()] = value
        else:
            parts[default_key] = part
    return parts


def render(parts: dict[str, str], default_key: str = "file") -> str:
    """The property string: the default key bare and first, the rest by name, as Proxmox prints it."""
    words = [parts[default_key]] if default_key in parts else []
    words += [f"{key}={parts[key]}" for key in sorted(parts) if key != default_key]
    return ",".join(words)


NET_MODELS = (
    "e1000", "e1000-82540em", "e1000-82544gc", "e1000-82545em", "e1000e", "i82551", "i82557b", "i82559er",
    "ne2k_isa", "ne2k_pci", "pcnet", "rtl8139", "virtio", "vmxnet3",
)


def parse_net(text: str) -> dict[str, str]:
    """A network device with ``model`` and, when it has one, ``macaddr`` spelled out."""
    parts = parse(text, "model")
    for model in NET_MODELS:
        if model in parts:
            parts["model"], parts["macaddr"] = model, parts.pop(model)
    return parts


def render_net(parts: dict[str, str]) -> str:
    """``virtio=MAC,bridge=vmbr0,...``: the model carries the MAC address."""
    rest = {key: value for key, value in parts.items() if key not in ("model", "macaddr")}
    mac = parts.get("macaddr")
    head = f"{parts['model']}={mac.upper()}" if mac else parts["model"]
    return ",".join([head, *(f"{key}={rest[key]}" for key in sorted(rest))])


_DRIVE = re.compile(r"(?:ide[0-3]|scsi(?:[12]?\d|30)|virtio(?:1[0-5]|\d)|sata[0-5]|efidisk0|tpmstate0)")
DRIVE_ORDER = tuple(
    [f"ide{i}" for i in range(4)] + [f"scsi{i}" for i in range(31)] + [f"virtio{i}" for i in range(16)]
    + [f"sata{i}" for i in range(6)]
)


def is_drive(key: str) -> bool:
    """True for scsi0, efidisk0 and the like, not for unused0."""
    return _DRIVE.fullmatch(key) is not None


def is_cdrom(drive: dict[str, str]) -> bool:
    return drive.get("media") == "cdrom"


def split_list(text: object) -> list[str]:
    """Items of a list that Proxmox separates by comma, semicolon or white space."""
    return [item for item in re.split(r"[\s,;]+", str(text or "")) if item]
