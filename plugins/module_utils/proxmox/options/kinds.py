# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kinds of property strings in a VM's config: their properties, limits and defaults in Proxmox VE 8.4 and 9.2.

If the API schema has no default, the one here is what Proxmox does when the property is absent.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from contextlib import suppress

from ...engine.devices import hardware
from ...engine.texts import whole_number
from .property_strings import Property, PropertyKind
from .values import SIZES

_TEXT = Property()
_FLAG = Property("boolean")
_OFF = Property("boolean", default="0")
_ON = Property("boolean", default="1")
_COUNT = Property("integer")
_SECONDS = Property("integer", minimum=1)
_NUMBER = Property("number")

_ID_RANGES = r"\d+(?:-\d+)?(?:;\d+(?:-\d+)?)*"
_MAC = Property(
    "mac",
    generated=True,
    # The second digit of a unicast address is even.
    pattern=r"[0-9A-F][02468ACE](?::[0-9A-F]{2}){5}",
    expected="a unicast MAC address, for example BC:24:11:00:00:01",
)


def _choice(*choices: str, default: str | None = None) -> Property:
    return Property(choices=choices, default=default)


def _is_address(text: str, version: int) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(text).version == version
    return False


def _has_prefix(text: str, version: int, longest: int) -> bool:
    """Whether text is an address with a prefix that Proxmox VE accepts."""
    address, _slash, prefix = text.partition("/")
    return _is_address(address, version) and 8 <= (whole_number(prefix) or 0) <= longest


# --- devices and settings ---------------------------------------------------------------------------------------------

AGENT = PropertyKind(
    "agent",
    {
        "enabled": _OFF,
        "freeze-fs-on-backup": _ON,
        "fstrim_cloned_disks": _OFF,
        "type": _choice("virtio", "isa", default="virtio"),
    },
    default_key="enabled",
    # Proxmox VE 9 names it freeze-fs and accepts the old name too; 8 knows only the old one.
    aliases={"freeze-fs": "freeze-fs-on-backup", "guest-fsfreeze": "freeze-fs-on-backup"},
)
AMD_SEV = PropertyKind(
    "amd-sev",
    {
        "type": _choice("std", "es", "snp"),
        "allow-smt": _ON,
        "kernel-hashes": _OFF,
        "no-debug": _OFF,
        "no-key-sharing": _OFF,
    },
    default_key="type",
)
AUDIO = PropertyKind(
    "audio",
    {
        "device": _choice("ich9-intel-hda", "intel-hda", "AC97"),
        "driver": _choice("spice", "none", default="spice"),
    },
)
BOOT = PropertyKind(
    "boot",
    {
        "legacy": Property(pattern="[acdn]{1,4}", expected="order=DEVICE;DEVICE... or up to four of a, c, d, n"),
        "order": Property(expected="names of devices with semicolons between them: scsi0;net0"),
    },
    default_key="legacy",
)


def absent_boot_devices(boot: object, present: Collection[str]) -> list[str]:
    """Return the devices that a boot order names and that are not present."""
    order = BOOT.read(str(boot or "")).get("order", "")
    return sorted({device.strip() for device in order.split(";")} - {""} - set(present))


CICUSTOM = PropertyKind("cicustom", {"meta": _TEXT, "network": _TEXT, "user": _TEXT, "vendor": _TEXT})
CPU = PropertyKind(
    "cpu",
    {
        "cputype": Property(
            default="kvm64",
            # There are CPU models of three digits, such as 486.
            pattern=r"(?!\d{1,2}$)[\w.+-]+",
            expected="the name of a CPU model, such as host; the number of CPUs is cores",
        ),
        "flags": Property("set", pattern=r"[+-][\w.-]+(;[+-][\w.-]+)*", expected="flags with a sign: +aes;-pcid"),
        "guest-phys-bits": _COUNT,
        "hidden": _OFF,
        "hv-vendor-id": _TEXT,
        "level": _COUNT,
        "phys-bits": _TEXT,
        "reported-model": _TEXT,
    },
    default_key="cputype",
)
HOSTPCI = PropertyKind(
    "hostpci",
    {
        "host": _TEXT,
        "device-id": _TEXT,
        "driver": _choice("vfio", "keep", default="vfio"),
        "legacy-igd": _OFF,
        "mapping": _TEXT,
        "mdev": _TEXT,
        "pcie": _OFF,
        "rombar": _ON,
        "romfile": _TEXT,
        "sub-device-id": _TEXT,
        "sub-vendor-id": _TEXT,
        "vendor-id": _TEXT,
        "x-vga": _OFF,
    },
    default_key="host",
)
INTEL_TDX = PropertyKind(
    "intel-tdx",
    {
        "type": _choice("tdx"),
        "attestation": _FLAG,
        "vsock-cid": Property("integer", minimum=2, default="2"),
        "vsock-port": Property("integer", minimum=0, default="4050"),
    },
    default_key="type",
)
IVSHMEM = PropertyKind(
    "ivshmem",
    {
        "name": Property(pattern=r"[a-zA-Z0-9\-]+", expected="letters, digits and dashes"),
        "size": Property("integer", minimum=1),
    },
)
IPCONFIG = PropertyKind(
    "ipconfig",
    {
        "gw": Property(valid=lambda text: _is_address(text, 4), expected="an IPv4 address: 192.0.2.1"),
        "gw6": Property(valid=lambda text: _is_address(text, 6), expected="an IPv6 address: 2001:db8::1"),
        "ip": Property(
            valid=lambda text: text in ("dhcp", "manual") or _has_prefix(text, 4, 32),
            expected="dhcp, or an address with its prefix: 192.0.2.10/24",
        ),
        "ip6": Property(
            valid=lambda text: text in ("auto", "dhcp", "manual") or _has_prefix(text, 6, 128),
            expected="auto, dhcp, or an address with its prefix: 2001:db8::10/64",
        ),
    },
    example="ip=192.0.2.10/24,gw=192.0.2.1",
)
MACHINE = PropertyKind(
    "machine",
    {
        "type": Property(
            default="pc",
            pattern=r"pc|pc(-i440fx)?-\d+(\.\d+)+(\+pve\d+)?(\.pxe)?|q35|pc-q35-\d+(\.\d+)+(\+pve\d+)?(\.pxe)?|virt(-\d+(\.\d+)+)?(\+pve\d+)?",
            expected="pc, q35, virt, or a version of one: pc-i440fx-9.0, pc-q35-9.0",
            longest=40,
        ),
        "aw-bits": Property("number", minimum=32, maximum=64),
        "enable-s3": _FLAG,
        "enable-s4": _FLAG,
        "viommu": _choice("intel", "virtio"),
    },
    default_key="type",
)
NET_MODELS = (
    *("e1000", "e1000-82540em", "e1000-82544gc", "e1000-82545em", "e1000e", "i82551", "i82557b", "i82559er"),
    *("ne2k_isa", "ne2k_pci", "pcnet", "rtl8139", "virtio", "vmxnet3"),
)
NET = PropertyKind(
    "net",
    {
        "model": _choice(*NET_MODELS),
        "bridge": _TEXT,
        "firewall": _OFF,
        # What Proxmox assumes depends on the version of the machine type.
        "host-tunnel": _FLAG,
        "link_down": _OFF,
        "macaddr": _MAC,
        "mtu": Property("integer", minimum=1, maximum=65520),
        "queues": Property("integer", minimum=0, maximum=64),
        "rate": Property("number", minimum=0),
        "tag": Property("integer", minimum=1, maximum=4094),
        "trunks": Property("set", pattern=_ID_RANGES, expected="VLAN ids or ranges: 10;20-29"),
    },
    default_key="model",
    paired=("model", "macaddr"),
)
NUMA = PropertyKind(
    "numa",
    {
        "cpus": Property("set", pattern=_ID_RANGES, expected="CPU ids or ranges: 0;2-3"),
        "hostnodes": Property("set", pattern=_ID_RANGES, expected="NUMA node ids or ranges: 0;2-3"),
        "memory": _NUMBER,
        "policy": _choice("preferred", "bind", "interleave"),
    },
)
RNG = PropertyKind(
    "rng",
    {
        "source": _choice("/dev/urandom", "/dev/random", "/dev/hwrng"),
        "max_bytes": Property("integer", default="1024"),
        "period": Property("integer", default="1000"),
    },
    default_key="source",
)
SMBIOS = PropertyKind(
    "smbios",
    {
        "base64": _OFF,
        "family": _TEXT,
        "manufacturer": _TEXT,
        "product": _TEXT,
        "serial": _TEXT,
        "sku": _TEXT,
        "uuid": Property(generated=True, pattern="[0-9a-fA-F-]{36}", expected="a UUID"),
        "version": _TEXT,
    },
)
SPICE_ENHANCEMENTS = PropertyKind(
    "spice_enhancements",
    {
        "foldersharing": _OFF,
        "videostreaming": Property(choices=("off", "all", "filter"), default="off", switch=("off", "all")),
    },
)
STARTUP = PropertyKind("startup", {"order": _COUNT, "up": _COUNT, "down": _COUNT}, default_key="order")
USB = PropertyKind("usb", {"host": _TEXT, "mapping": _TEXT, "usb3": _OFF}, default_key="host")

OF_DRIVER = {hardware.PCI: HOSTPCI, hardware.USB: USB}
"""The kind of the options that attach a device, by the device's driver."""
VGA = PropertyKind(
    "vga",
    {
        "type": _choice(
            *("cirrus", "qxl", "qxl2", "qxl3", "qxl4", "none", "serial0", "serial1", "serial2", "serial3"),
            *("std", "virtio", "virtio-gl", "vmware"),
            default="std",
        ),
        "clipboard": _choice("vnc"),
        "memory": Property("integer", minimum=4, maximum=512),
    },
    default_key="type",
)
VIRTIOFS = PropertyKind(
    "virtiofs",
    {
        "dirid": _TEXT,
        "cache": _choice("auto", "always", "metadata", "never", default="auto"),
        "direct-io": _OFF,
        "expose-acl": _OFF,
        "expose-xattr": _OFF,
    },
    default_key="dirid",
)
WATCHDOG = PropertyKind(
    "watchdog",
    {
        "model": _choice("i6300esb", "ib700", default="i6300esb"),
        "action": _choice("reset", "shutdown", "poweroff", "pause", "debug", "none"),
    },
    default_key="model",
)


# --- drives -----------------------------------------------------------------------------------------------------------

_FORMAT = _choice("raw", "qcow", "qed", "qcow2", "vmdk", "cloop")
_VOLUME = {"file": _TEXT, "format": _FORMAT, "import-from": _TEXT, "size": Property(expected=SIZES)}
_LIMITS = ("", "_rd", "_wr")
_DRIVE = {
    **_VOLUME,
    "aio": _choice("native", "threads", "io_uring"),
    "backup": _ON,
    **{f"bps{each}": _COUNT for each in _LIMITS},
    **{f"bps{each}_max_length": _SECONDS for each in _LIMITS},
    "cache": _choice("none", "writethrough", "writeback", "unsafe", "directsync", default="none"),
    "detect_zeroes": _ON,
    "discard": Property(choices=("ignore", "on"), default="ignore", switch=("ignore", "on")),
    **{f"iops{each}": _COUNT for each in _LIMITS},
    **{f"iops{each}_max": _COUNT for each in _LIMITS},
    **{f"iops{each}_max_length": _SECONDS for each in _LIMITS},
    **{f"mbps{each}": _NUMBER for each in _LIMITS},
    **{f"mbps{each}_max": _NUMBER for each in _LIMITS},
    "media": _choice("cdrom", "disk", default="disk"),
    "replicate": _ON,
    "rerror": _choice("ignore", "report", "stop"),
    "serial": Property(longest=60),
    "shared": _OFF,
    "snapshot": _OFF,
    "werror": _choice("enospc", "ignore", "report", "stop"),
}
# Removed in Proxmox VE 9.
_GEOMETRY = {"cyls": _COUNT, "heads": _COUNT, "secs": _COUNT, "trans": _choice("none", "lba", "auto")}
_WWN = Property(pattern="0x[0-9a-fA-F]{16}", expected="0x and 16 hexadecimal digits")
_ALIASES = {
    "volume": "file",
    **{f"{unit}{each}_length": f"{unit}{each}_max_length" for unit in ("bps", "iops") for each in ("_rd", "_wr")},
}


def _drive(name: str, **properties: Property) -> PropertyKind:
    return PropertyKind(name, {**_DRIVE, **_GEOMETRY, **properties}, default_key="file", aliases=_ALIASES)


IDE = _drive("ide", model=Property(longest=120), ssd=_OFF, wwn=_WWN)
SATA = _drive("sata", ssd=_OFF, wwn=_WWN)
SCSI = _drive(
    "scsi",
    iothread=_OFF,
    product=Property(pattern=r"[A-Za-z0-9\-_\s]{,16}", expected="up to 16 letters, digits, dashes, blanks"),
    queues=Property("integer", minimum=2),
    ro=_OFF,
    scsiblock=_OFF,
    ssd=_OFF,
    vendor=Property(pattern=r"[A-Za-z0-9\-_\s]{,8}", expected="up to 8 letters, digits, dashes, blanks"),
    wwn=_WWN,
)
VIRTIO = _drive("virtio", iothread=_OFF, ro=_OFF)
MS_CERTS = ("2011", "2023", "2023w", "2023k")
EFIDISK = PropertyKind(
    "efidisk",
    {
        **_VOLUME,
        "efitype": _choice("2m", "4m", default="2m"),
        "ms-cert": Property(choices=MS_CERTS, default="2011", generated=True),
        "pre-enrolled-keys": _OFF,
    },
    default_key="file",
    aliases={"volume": "file"},
)
TPMSTATE = PropertyKind(
    "tpmstate",
    {**_VOLUME, "format": _choice("raw", "qcow2", "vmdk"), "version": _choice("v1.2", "v2.0", default="v1.2")},
    default_key="file",
    aliases={"volume": "file"},
)
