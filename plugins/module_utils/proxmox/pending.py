# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pending changes: what is in the config of a running VM and takes effect when the VM is stopped and started."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..engine.texts import whole_number
from ..errors import ApiError
from .api.failures import NotRecorded
from .api.reader import Reader
from .inventory.freshness import read_config
from .inventory.rows import Row
from .options.table import conversion_of
from .outcomes import is_missing

Pending = Mapping[str, Mapping[str, t.Any]]
"""For each parameter C(old), which is in effect, and C(new), with None for what is not set. Secrets are masked."""

APPLIED_AT_ONCE = frozenset({
    *("cicustom", "cipassword", "citype", "ciupgrade", "ciuser", "nameserver", "searchdomain", "sshkeys"),
    *("cpulimit", "cpuunits", "description", "hookscript", "migrate_downtime", "migrate_speed"),
    *("onboot", "protection", "shares", "startup", "tags"),
})  # fmt: skip
"""Parameters that Proxmox VE always applies at once. Others may become pending, depending on the guest and hotplug."""


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """A VM's config as it will be after the next start, and which of it is pending."""

    config: Mapping[str, t.Any]
    pending: Pending = field(default_factory=dict)


def read_stored_config(reader: Reader, node: str, vmid: int, *, running: bool) -> StoredConfig | None:
    """Read the config of a VM in one call; None when it is not on node. A stopped VM has no pending changes."""
    if running:
        try:
            return stored_config(_rows(reader, node, vmid))
        except NotRecorded:
            pass
        except ApiError as error:
            if is_missing(error.message):
                return None
            raise
    config = read_config(reader, node, vmid)
    return None if config is None else StoredConfig(config)


def read_pending(reader: Reader, node: str, vmid: int) -> Pending:
    """Read the pending changes of a VM."""
    return stored_config(_rows(reader, node, vmid)).pending


def stored_config(rows: Sequence[Row]) -> StoredConfig:
    """Return the config in the rows of C(GET .../pending)."""
    config: dict[str, t.Any] = {}
    pending: dict[str, dict[str, t.Any]] = {}
    for row in rows:
        key, old = str(row["key"]), row.get("value")
        new = None if row.get("delete") else row.get("pending", old)
        if new is not None:
            config[key] = new
        if row.get("delete") or "pending" in row:
            pending[key] = {"old": _as_shown(key, old), "new": _as_shown(key, new)}
    return StoredConfig(config, pending)


def _rows(reader: Reader, node: str, vmid: int) -> list[Row]:
    rows: list[Row] = reader.get(f"/nodes/{node}/qemu/{vmid}/pending")
    return rows


def _as_shown(key: str, value: t.Any) -> t.Any:
    """Return a value for display. Some numbers are texts in a config."""
    shown = conversion_of(key).show(value)
    number = whole_number(shown)
    return shown if number is None else number
