# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks the shape of the answers that this collection reads, so that no other code has to.

Proxmox returns some figures as a number in one place and as a string in another. Values that are declared as numbers
here are converted. Keys, types of rows and paths that are not declared are not checked.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

DEEPEST = 32
"""The maximum nesting depth of an answer."""

_LARGEST = 2**63
_DIGITS = re.compile(r"[+-]?\d{1,18}")

Kind = Callable[[t.Any], t.Any]


class WrongShape(ValueError):
    """An answer does not have the shape that is declared for its path. The text says where, and what was expected."""


@dataclass(frozen=True, slots=True)
class Row:
    """A mapping with required and optional keys, each with the kind of its value. An optional key that is null is left
    out.
    """

    required: Mapping[str, Kind] = field(default_factory=dict)
    optional: Mapping[str, Kind] = field(default_factory=dict)

    def __call__(self, value: t.Any) -> t.Any:
        if not isinstance(value, dict):
            raise WrongShape(f"expected a mapping, got {_name(value)}")
        checked = dict(value)
        key = ""
        try:
            for key, kind in self.required.items():
                if value.get(key) is None:
                    raise WrongShape("is missing")
                checked[key] = kind(value[key])
            for key, kind in self.optional.items():
                given = value.get(key)
                if given is not None:
                    checked[key] = kind(given)
                else:
                    checked.pop(key, None)
        except WrongShape as error:
            raise WrongShape(f"{key}: {error}") from None
        return checked


@dataclass(frozen=True, slots=True)
class ByType:
    """A mapping whose keys depend on its type; mappings of other types are not checked."""

    kinds: Mapping[str, Row]

    def __call__(self, value: t.Any) -> t.Any:
        if not isinstance(value, dict):
            raise WrongShape(f"expected a mapping, got {_name(value)}")
        given = value.get("type")
        if given is not None and not isinstance(given, str):
            raise WrongShape(f"type: expected text, got {_name(given)}")
        kind = self.kinds.get(str(given))
        return value if kind is None else kind(value)


@dataclass(frozen=True, slots=True)
class Rows:
    """A list of which every item is of one kind."""

    kind: Kind

    def __call__(self, value: t.Any) -> t.Any:
        if not isinstance(value, list):
            raise WrongShape(f"expected a list, got {_name(value)}")
        rows: list[t.Any] = []
        try:
            for item in value:
                rows.append(self.kind(item))
        except WrongShape as error:
            raise WrongShape(f"item {len(rows) + 1}: {error}") from None
        return rows


@dataclass(frozen=True, slots=True)
class Values:
    """A mapping of which every value is of one kind."""

    kind: Kind

    def __call__(self, value: t.Any) -> t.Any:
        if not isinstance(value, dict):
            raise WrongShape(f"expected a mapping, got {_name(value)}")
        return {key: self.kind(item) for key, item in value.items()}


def text(value: t.Any) -> str:
    """Convert a name, a state or the like."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    raise WrongShape(f"expected text, got {_name(value)}")


def number(value: t.Any) -> int | float:
    """Convert a size, a time or a fraction."""
    kind = type(value)
    if (kind is int or kind is float) and -_LARGEST < value < _LARGEST:
        return value  # type: ignore[no-any-return]
    if isinstance(value, str):
        if _DIGITS.fullmatch(value):
            return int(value)
        try:
            value = float(value[:64])
        except ValueError:
            raise WrongShape(f"expected a number, got {value[:64]!r}") from None
    if isinstance(value, (int, float)) and -_LARGEST < value < _LARGEST:
        return value
    raise WrongShape(f"expected a number, got {_name(value)}")


def whole(value: t.Any) -> int:
    """Convert a VMID or a count."""
    found = number(value)
    if isinstance(found, bool) or int(found) != found:
        raise WrongShape(f"expected a whole number, got {value!r}")
    return int(found)


def flag(value: t.Any) -> bool:
    """Convert a boolean: 0, 1, their strings, true or false."""
    return bool(number(value))


def memory(value: t.Any) -> int:
    """Return the memory of a VM in MiB, which its config may have as C(current=512)."""
    return whole(value.removeprefix("current=") if isinstance(value, str) else value)


def _texts(*keys: str) -> dict[str, Kind]:
    return dict.fromkeys(keys, text)


def _numbers(*keys: str) -> dict[str, Kind]:
    return dict.fromkeys(keys, number)


_GUEST = Row(
    {"vmid": whole},
    _texts("name", "status", "tags", "pool", "lock", "hastate", "node")
    | _numbers("maxcpu", "cpus", "maxmem", "maxdisk", "uptime")
    | {"template": flag},
)
_LISTED_GUEST = Row({**_GUEST.required, **_texts("node", "type")}, _GUEST.optional)
_RESOURCE = ByType(
    {
        "node": Row(_texts("node"), _texts("status", "hastate") | _numbers("maxcpu", "maxmem", "cpu", "mem")),
        "qemu": _LISTED_GUEST,
        "lxc": _LISTED_GUEST,
        "storage": Row(
            _texts("storage", "node"),
            _texts("plugintype", "content", "status") | _numbers("maxdisk", "disk") | {"shared": flag},
        ),
    }
)
_NAMED = Row(_texts("name"), _texts("ip") | _numbers("nodeid", "quorate", "online"))
_MEMBER = ByType({"cluster": _NAMED, "node": _NAMED})
_TASK = Row(optional=_texts("upid", "type", "id", "node", "user", "status") | _numbers("starttime", "endtime"))
_CHECK = Row(optional=_texts("severity", "message"))
_CONFIG = Row(
    optional=_texts("name", "description", "tags", "lock", "meta", "smbios1", "vmgenid", "boot", "digest")
    | dict.fromkeys(("cores", "sockets", "vcpus"), whole)
    | {"template": flag, "protection": flag, "memory": memory}
)
_MIGRATION = Row(
    optional={
        "running": flag,
        "local_disks": Rows(
            Row(_texts("volid"), {**_texts("drivename"), "size": whole, "cdrom": flag, "is_unused": flag})
        ),
        "local_resources": Rows(text),
        "mapped-resource-info": Values(Row(optional={"live-migration": flag})),
        "not_allowed_nodes": Values(
            Row(optional={"unavailable_storages": Rows(text), "unavailable-resources": Rows(text)})
        ),
        "dependent-ha-resources": Rows(text),
        "has-dbus-vmstate": flag,
    }
)

_PATHS: dict[str, Kind] = {
    "/access/ticket": Row(optional=_texts("ticket", "CSRFPreventionToken") | {"NeedTFA": flag}),
    "/access/acl": Rows(Row(_texts("path", "type", "ugid", "roleid"))),
    "/access/permissions": Values(Values(flag)),
    "/cluster/resources": Rows(_RESOURCE),
    "/cluster/status": Rows(_MEMBER),
    "/cluster/tasks": Rows(_TASK),
    "/cluster/nextid": whole,
    "/cluster/options": Row(optional={"next-id": Row(optional={"lower": whole, "upper": whole})}),
    "/cluster/ha/rules": Rows(
        Row(_texts("rule", "type"), _texts("resources", "nodes", "affinity", "digest") | {"strict": flag})
    ),
    "/cluster/ha/groups": Rows(Row(_texts("group"), {**_texts("nodes"), "restricted": flag})),
    "/cluster/ha/resources": Rows(Row(_texts("sid"), _texts("group", "state"))),
    "/cluster/ha/status/current": Rows(Row(optional=_texts("type", "node", "status", "sid", "state"))),
    "/cluster/ceph/flags/*": flag,
    "/cluster/ceph/status": Row(
        optional={
            "health": Row(
                optional={
                    "status": text,
                    "checks": Values(Row(optional={"summary": Row(optional=_texts("message"))})),
                }
            )
        }
    ),
    "/cluster/backup": Rows(Row(_texts("id"))),
    "/cluster/backup/*/included_volumes": Row(optional={"children": Rows(Row({"id": whole}, _texts("type", "name")))}),
    "/cluster/backup-info/not-backed-up": Rows(Row({"vmid": whole}, _texts("type", "name"))),
    "/cluster/replication": Rows(Row(optional={"guest": whole, "target": text, "disable": flag})),
    "/cluster/mapping/(dir|pci|usb)": Rows(
        Row(
            _texts("id"),
            {**_texts("description"), "map": Rows(text), "mdev": flag, "checks": Rows(_CHECK), "errors": Rows(_CHECK)},
        )
    ),
    "/cluster/qemu/cpu-flags": Rows(Row(_texts("name"), {"supported-on": Rows(text)})),
    "/nodes/*/(qemu|lxc)": Rows(_GUEST),
    "/nodes/*/(qemu|lxc)/*/config": _CONFIG,
    "/nodes/*/qemu/*/migrate": _MIGRATION,
    "/nodes/*/(qemu|lxc)/*/pending": Rows(Row(_texts("key"))),
    "/nodes/*/qemu/*/status/current": Row(_texts("status"), _texts("qmpstatus", "lock", "name")),
    # What the agent itself says may have any shape: the owner of the guest decides.
    "/nodes/*/qemu/*/agent/network-get-interfaces": Row(),
    "/nodes/*/certificates/info": Rows(Row(_texts("filename", "fingerprint"), _texts("subject"))),
    "/nodes/*/status": Row(optional={"uptime": whole, "pveversion": text}),
    "/nodes/*/services": Rows(Row(_texts("service"), _texts("state", "unit-state"))),
    "/nodes/*/time": Row({"time": number}),
    "/nodes/*/network": Rows(Row(_texts("iface"))),
    "/nodes/*/capabilities/qemu/migration": Row(optional={"has-dbus-vmstate": flag}),
    "/nodes/*/capabilities/qemu/cpu": Rows(Row(_texts("name"))),
    "/nodes/*/rrddata": Rows(
        Row(
            {"time": number},
            {
                **_numbers("cpu", "maxcpu", "memtotal", "memused", "memavailable", "arcsize"),
                **_numbers("pressurecpusome", "pressureiosome", "pressurememorysome"),
            },
        )
    ),
    "/nodes/*/(qemu|lxc)/*/rrddata": Rows(
        Row(
            {"time": number},
            {
                **_numbers("cpu", "maxcpu", "mem", "memhost", "diskread", "diskwrite"),
                **_numbers("pressurecpusome", "pressureiosome", "pressurememorysome"),
            },
        )
    ),
    "/nodes/*/hardware/pci": Rows(Row(_texts("id"), {"iommugroup": whole, "mdev": flag})),
    "/nodes/*/hardware/usb": Rows(Row(optional=_texts("busnum", "usbpath"))),
    "/nodes/*/hardware/pci/*/mdev": Rows(Row(_texts("type"), {**_texts("name"), "available": whole})),
    "/nodes/*/storage": Rows(Row(_texts("storage"), _numbers("avail", "total", "used") | {"active": flag})),
    "/nodes/*/storage/*/content": Rows(
        Row(_texts("volid"), {**_texts("subtype"), "size": whole, "vmid": whole, "ctime": whole})
    ),
    "/nodes/*/vzdump/extractconfig": text,
    "/nodes/*/tasks": Rows(Row(_texts("upid"), _TASK.optional)),
    "/nodes/*/tasks/*/status": Row(_texts("status"), _texts("exitstatus")),
    "/nodes/*/tasks/*/log": Rows(Row(optional=_texts("t"))),
}
_SHAPES = [(re.compile(path.replace("*", "[^/]+")), kind) for path, kind in _PATHS.items()]


def check_shape(path: str, data: t.Any) -> t.Any:
    """Return the answer for a path with its figures as numbers. Raises WrongShape."""
    require_sane(data)
    kind = next((kind for pattern, kind in _SHAPES if pattern.fullmatch(path)), None)
    return data if kind is None else kind(data)


def require_sane(data: t.Any) -> None:
    """Raise WrongShape for data that no answer contains: deep nesting, huge numbers, text that is not valid Unicode."""
    level: list[t.Any] = [data]
    for _depth in range(DEEPEST):
        below: list[t.Any] = []
        for value in level:
            kind = type(value)
            if kind is str:
                if not value.isascii():
                    _require_unicode(value)
            elif kind is int or kind is float:
                # Written so that NaN, for which every comparison is false, is refused too.
                if not -_LARGEST < value < _LARGEST:
                    raise WrongShape("a number is not finite, or has too many digits")
            elif kind is dict:
                below += value
                below += value.values()
            elif kind is list:
                below += value
        if not below:
            return
        level = below
    raise WrongShape(f"nested more than {DEEPEST} deep")


def _require_unicode(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise WrongShape("a text is not valid Unicode") from None


def _name(value: t.Any) -> str:
    """Return what kind of value it is, without showing it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (str, "text"),
        ((int, float), "a number"),
        (dict, "a mapping"),
        (list, "a list"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), type(value).__name__)
