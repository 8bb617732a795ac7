# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Storage classes as a user writes them, made into data."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping

from ..errors import InvalidPluginConfig
from ..model import GIB, StorageClass
from .framework.config import Setting, check_settings
from .patterns import InvalidPattern
from .patterns.names import name_pattern

SETTINGS: Mapping[str, Setting] = {
    "storages": Setting("list", [], "patterns of storage names, matched in full; empty: any name"),
    "types": Setting("list", [], "Proxmox storage types (zfspool, lvmthin, rbd, ...); empty: any type"),
    "shared": Setting("bool", None, "only shared (true) or only local (false) storages"),
    "overcommit": Setting("float", 1.0, "overcommit ratio: allocatable space per size", minimum=0),
    "reserved": Setting("str", None, "what is kept free: a percentage (10%) or GiB (50)"),
}


def parse_storage_classes(classes: Mapping[str, t.Any]) -> dict[str, StorageClass]:
    """Return the classes by name. Raises InvalidPluginConfig."""
    return {name: _parse(f"storage_classes.{name}", name, body or {}) for name, body in classes.items()}


def _parse(where: str, name: str, body: Mapping[str, t.Any]) -> StorageClass:
    if isinstance(body, Mapping) and isinstance(body.get("reserved"), (int, float)):
        body = {**body, "reserved": str(body["reserved"])}
    values = check_settings(where, SETTINGS, body)
    for pattern in values["storages"]:
        if not isinstance(pattern, str):
            raise InvalidPluginConfig(f"{where}.storages: {pattern!r} is not valid, expected a regular expression")
        try:
            name_pattern(pattern)
        except InvalidPattern as error:
            raise InvalidPluginConfig(f"{where}.storages: invalid regular expression {pattern!r}: {error}") from error
    return StorageClass(
        name=name,
        storages=tuple(values["storages"]),
        types=frozenset(values["types"]),
        shared=values["shared"],
        overcommit=values["overcommit"],
        reserved=_reserved(where, values["reserved"]),
    )


def _reserved(where: str, text: str | None) -> float:
    """A fraction below 1, or bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", (text or "0").strip())
    if match is None or (match[2] and float(match[1]) >= 100):
        raise InvalidPluginConfig(
            f"{where}.reserved: expected a percentage below 100% or a number of GiB, got {text!r}"
        )
    return float(match[1]) / 100 if match[2] else float(match[1]) * GIB
