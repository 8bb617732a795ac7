# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configs of VMs that were recorded on real clusters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from support.pages import CHECKOUT


def recorded_configs(version: str = "") -> list[dict[str, Any]]:
    """Every config in the recordings of a release, or of all, each once."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((CHECKOUT / "tests" / "recordings" / version).rglob("*.json")):
        for config in _configs_in(json.loads(path.read_text(encoding="utf-8"))):
            found.setdefault(json.dumps(config, sort_keys=True), config)
    return list(found.values())


def _configs_in(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict):
        if "digest" in data and {"vmgenid", "smbios1", "scsihw", "memory"} & data.keys() and "rootfs" not in data:
            yield data
        for each in data.values():
            yield from _configs_in(each)
    elif isinstance(data, list):
        for each in data:
            yield from _configs_in(each)
