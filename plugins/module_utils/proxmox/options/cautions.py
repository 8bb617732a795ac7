# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Warns of configs that Proxmox VE accepts but that are probably a mistake."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from .kinds import BOOT


def option_cautions(wanted: Mapping[str, t.Any], config: Mapping[str, t.Any]) -> list[str]:
    """Return warnings about the wanted options, given the config that the VM has or gets."""
    cautions = []
    if "bios" in wanted and config.get("bios") == "ovmf" and "efidisk0" not in config:
        cautions.append("bios is ovmf and there is no efidisk0: the VM forgets its EFI settings when it stops")
    if "ostype" in wanted and config.get("ostype") == "win11":
        if "tpmstate0" not in config:
            cautions.append("ostype is win11 and there is no tpmstate0: Windows 11 requires a TPM of version 2.0")
        if config.get("bios") != "ovmf":
            cautions.append("ostype is win11 and bios is not ovmf: Windows 11 requires UEFI")
    if "boot" in wanted:
        order = BOOT.read(str(config.get("boot") or "")).get("order", "")
        missing = sorted({device.strip() for device in order.split(";")} - {""} - config.keys())
        if missing:
            cautions.append(f"boot names {', '.join(missing)}, which the VM does not have")
    return cautions
