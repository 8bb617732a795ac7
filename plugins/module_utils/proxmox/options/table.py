# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of VM options, each with its type, its API parameter, its limits and its default.

The argument spec, the parameters for the API, and the comparison with an existing VM are derived from it.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from ...errors import InvalidRequest
from . import kinds
from .conversions import (
    Boolean,
    Choice,
    Conversion,
    Description,
    Drives,
    Hotplug,
    Memory,
    Number,
    Password,
    Properties,
    Shares,
    SshKeys,
    Tags,
    Text,
    Words,
)
from .drives import Value
from .values import check_length, invalid, such_as

_EFIDISK: dict[str, dict[str, t.Any]] = {
    "storage": {"type": "str"},
    "storage_class": {"type": "str"},
    "format": {"type": "str"},
    "efitype": {"type": "str", "choices": ["2m", "4m"]},
    "ms_cert": {"type": "str", "choices": list(kinds.MS_CERTS)},
    "remove": {"type": "str", "choices": ["unused", "destroy"]},
    "pre_enrolled_keys": {"type": "bool"},
}
_TPMSTATE: dict[str, dict[str, t.Any]] = {
    "storage": {"type": "str"},
    "storage_class": {"type": "str"},
    "remove": {"type": "str", "choices": ["unused", "destroy"]},
    "version": {"type": "str", "choices": ["1.2", "2.0"]},
}
_OSTYPES = ("other", "wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11", "l24", "l26", "solaris")
_SCSIHW = ("lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi")
_KEYBOARDS = (
    *("de", "de-ch", "da", "en-gb", "en-us", "es", "fi", "fr", "fr-be", "fr-ca", "fr-ch", "hu", "is", "it", "ja", "lt"),
    *("mk", "nl", "no", "pl", "pt", "pt-br", "sv", "sl", "tr"),
)
_DATE = Text(r"now|\d{4}-\d{1,2}-\d{1,2}(T\d{1,2}:\d{1,2}:\d{1,2})?", "now, 2006-06-17 or 2006-06-17T16:01:21")
_FEATURES = ("network", "disk", "cpu", "memory", "usb", "cloudinit")
_FEATURE = f"({'|'.join(_FEATURES)})"
_HOTPLUG = Hotplug(rf"[01]|{_FEATURE}(,{_FEATURE})*", "0, 1 or some of " + ",".join(_FEATURES))
_CPUSET = Text(r"\d+(-\d+)?(,\d+(-\d+)?)*", "CPU ids or ranges of them, such as 0,5,8-11")
_PARALLEL = Text(r"/dev/parport\d+|/dev/usb/lp\d+", "/dev/parportN or /dev/usb/lpN")
_SERIAL = Text(r"/dev/[^,]+|socket", "socket or a device below /dev", "socket")


LONGEST_REQUEST = 512 * 1024
"""The most bytes of a request that pveproxy reads: it answers a longer one with the status 501. Before pve-http-server
5.2.1, it read an eighth of this.
"""


@dataclass(frozen=True)
class VMOption:
    """One option that describes a VM.

    name is the option's name in Ansible, api the parameter of the API. count is set for a family of numbered parameters
    (C(scsi0) to C(scsi30)), given as a mapping. default is what Proxmox assumes if a config lacks the parameter, None
    for nothing. since is the first release of Proxmox VE that has the option, None for all supported releases. longest
    is the most characters of its value that the schema of the API allows.
    """

    name: str
    conversion: Conversion
    api: str
    count: int = 0
    default: str | int | None = None
    since: tuple[int, int] | None = None
    longest: int | None = None


def _option(
    name: str,
    conversion: Conversion,
    default: str | int | None = None,
    api: str = "",
    since: tuple[int, int] | None = None,
    longest: int | None = None,
) -> VMOption:
    """Return a row of the table, whose API parameter has its name if no other is given."""
    return VMOption(name, conversion, api or name, default=default, since=since, longest=longest)


def _family(name: str, conversion: Conversion, count: int) -> VMOption:
    return VMOption(name, conversion, name, count=count)


# fmt: off
VM_OPTIONS: tuple[VMOption, ...] = (
    _option("acpi", Boolean(), default=1),
    _option("agent", Properties(kinds.AGENT), default="0"),
    _option("allow_ksm", Boolean(), default=1, api="allow-ksm", since=(9, 1)),
    _option("amd_sev", Properties(kinds.AMD_SEV, ("type",)), api="amd-sev"),
    _option("args", Text()),
    _family("audio", Properties(kinds.AUDIO, ("device",), "device=ich9-intel-hda"), 1),
    _option("autostart", Boolean(), default=0),
    _option("balloon", Memory(0)),
    _option("bios", Choice(("seabios", "ovmf")), default="seabios"),
    _option("boot", Properties(kinds.BOOT)),
    _option("bootdisk", Text(r"(ide|sata|scsi|virtio)\d+", "a disk, for example scsi0")),
    _option("cicustom", Properties(kinds.CICUSTOM)),
    _option("cipassword", Password()),
    _option("citype", Choice(("nocloud", "configdrive2", "opennebula"))),
    _option("ciupgrade", Boolean(), default=1),
    _option("ciuser", Text()),
    _option("cores", Number(1), default=1),
    _option("cpu", Properties(kinds.CPU, ("cputype",), ""), default="kvm64"),
    _option("cpu_affinity", _CPUSET, api="affinity"),
    _option("cpulimit", Number(0, 128, whole=False), default=0),
    _option("cpuunits", Shares(1, 262144)),
    _option("description", Description(), longest=8192),
    _option("efidisk0", Drives(_EFIDISK)),
    _option("freeze", Boolean(), default=0),
    _option("hookscript", Text()),
    _family("hostpci", Properties(kinds.HOSTPCI, ("host", "mapping")), 16),
    _option("hotplug", _HOTPLUG, default="1"),
    _option("hugepages", Choice(("any", "2", "1024"))),
    _family("ide", Drives(), 4),
    _option("intel_tdx", Properties(kinds.INTEL_TDX, ("type",)), api="intel-tdx", since=(9, 1)),
    _family("ipconfig", Properties(kinds.IPCONFIG), 32),
    _option("ivshmem", Properties(kinds.IVSHMEM, ("size",))),
    _option("keyboard", Choice(_KEYBOARDS)),
    _option("kvm", Boolean(), default=1),
    _option("localtime", Boolean()),
    _option("machine", Properties(kinds.MACHINE), default="pc"),
    _option("memory", Memory(16), default=512),
    _option("migrate_downtime", Number(0, whole=False), default="0.1"),
    _option("migrate_speed", Number(0), default=0),
    _option("nameservers", Words(), api="nameserver"),
    _family("net", Properties(kinds.NET, ("model",)), 32),
    _family("numa", Properties(kinds.NUMA, ("cpus",)), 8),
    _option("numa_enabled", Boolean(), default=0, api="numa"),
    _option("onboot", Boolean(), default=0),
    _option("ostype", Choice(_OSTYPES), default="other"),
    _family("parallel", _PARALLEL, 3),
    _option("protection", Boolean(), default=0),
    _option("reboot", Boolean(), default=1),
    _option("rng0", Properties(kinds.RNG, ("source",), "source=/dev/urandom")),
    _family("sata", Drives(), 6),
    _family("scsi", Drives(), 31),
    _option("scsihw", Choice(_SCSIHW), default="lsi"),
    _option("searchdomains", Words(), api="searchdomain"),
    _family("serial", _SERIAL, 4),
    _option("shares", Number(0, 50000), default=1000),
    _option("smbios", Properties(kinds.SMBIOS), api="smbios1", longest=512),
    _option("sockets", Number(1), default=1),
    _option("spice_enhancements", Properties(kinds.SPICE_ENHANCEMENTS)),
    _option("sshkeys", SshKeys()),
    _option("startdate", _DATE, default="now"),
    _option("startup", Properties(kinds.STARTUP)),
    _option("tablet", Boolean(), default=1),
    _option("tags", Tags(";")),
    _option("tdf", Boolean(), default=0),
    _option("template", Boolean(), default=0),
    _option("tpmstate0", Drives(_TPMSTATE)),
    _family("usb", Properties(kinds.USB, ("host", "mapping")), 14),
    _option("vcpus", Number(1)),
    _option("vga", Properties(kinds.VGA), default="std"),
    _family("virtio", Drives(), 16),
    _family("virtiofs", Properties(kinds.VIRTIOFS, ("dirid",)), 10),
    _option("vmstatestorage", Text(r"[A-Za-z][\w.-]*", "the name of a storage")),
    _option("watchdog", Properties(kinds.WATCHDOG)),
)
# fmt: on

ROOT_ONLY = re.compile(r"affinity|amd-sev|args|hookscript|hugepages|intel-tdx|ivshmem|parallel\d+|spice_enhancements")
"""Parameters that Proxmox lets only root set. For a clone, Proxmox would refuse them only after the clone is made."""

_BY_PARAMETER = {option.api: option for option in VM_OPTIONS if not option.count}
_FAMILIES = {option.api: option for option in VM_OPTIONS if option.count}


VM_ARGUMENT_SPEC: Mapping[str, dict[str, t.Any]] = {
    option.name: {"type": "dict"} if option.count else option.conversion.spec() for option in VM_OPTIONS
}
"""The Ansible argument spec of all VM options, for the top level of a module or as suboptions."""


def option_of(parameter: str) -> VMOption | None:
    """Return the option that an API parameter (C(memory), C(scsi0)) belongs to, None when it is not in the table."""
    if parameter in _BY_PARAMETER:
        return _BY_PARAMETER[parameter]
    found = re.fullmatch(r"([a-z]+)(0|[1-9]\d?)", parameter)
    family = _FAMILIES.get(found[1]) if found else None
    return family if family and found and int(found[2]) < family.count else None


def conversion_of(parameter: str) -> Conversion:
    """Return the conversion of an API parameter; a parameter that is not in the table is a plain text."""
    option = option_of(parameter)
    return option.conversion if option else Text()


def default_of(parameter: str) -> str | int | None:
    """Return what Proxmox assumes if a config lacks the parameter, None if it assumes nothing."""
    option = option_of(parameter)
    return option.default if option else None


def to_api(params: Mapping[str, t.Any]) -> dict[str, Value]:
    """Return the API parameters of the VM options that are set, in the table's order.

    Families become numbered parameters, drives Drive objects. An empty text or list becomes an empty text, to unset it.
    Options that are not in the table are returned unchanged. Raises InvalidRequest, which names option, value and
    what was expected.
    """
    api: dict[str, Value] = {}
    for option in VM_OPTIONS:
        value = params.get(option.name)
        if value is None:
            continue
        if option.count:
            api.update(_number(option, value))
        else:
            api[option.api] = option.conversion.to_api(option.name, value)
            if option.longest is not None:
                check_length(option.name, str(api[option.api]), option.longest)
    sizes = {name: len(quote(str(value))) for name, value in api.items()}
    if sum(sizes.values()) > LONGEST_REQUEST:
        raise _too_long(sizes)
    return api


def _too_long(sizes: Mapping[str, int]) -> InvalidRequest:
    """Return the error for parameters of these sizes, which are more than any release of Proxmox takes in a request."""
    largest = max(sizes, key=lambda name: sizes[name])
    option = option_of(largest)
    return InvalidRequest(
        f"{largest if option is None or option.count else option.name}: all options of a VM together take "
        f"{sum(sizes.values())} bytes, most of them this one; Proxmox VE takes at most {LONGEST_REQUEST} in one request"
    )


def _number(family: VMOption, value: t.Any) -> dict[str, Value]:
    """Return the API parameters of numbered options, such as net0 and net1. Raises InvalidRequest."""
    if not isinstance(value, Mapping):
        raise invalid(family.name, value, _expected_keys(family))
    api = {}
    for key, each in value.items():
        other = option_of(str(key))
        if other is not family:
            moved = f"; did you mean {other.name}: {{{key}: ...}}?" if other is not None and other.count else ""
            if str(key).isdecimal():
                moved = f"; did you mean {family.api}{key}?"
            raise invalid(f"{family.name}.{key}", each, _expected_keys(family) + moved)
        if each is not None:
            api[str(key)] = family.conversion.to_api(str(key), each)
    return api


def _expected_keys(family: VMOption) -> str:
    keys = f"the key {family.api}0" if family.count == 1 else f"keys {family.api}0 to {family.api}{family.count - 1}"
    example = family.conversion.example
    return f"a mapping with {keys}" + (such_as(f"{{{family.api}0: {example!r}}}") if example else "")
