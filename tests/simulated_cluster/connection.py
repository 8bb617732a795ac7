# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How clients reach a simulated cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def environment(ready: Mapping[str, Any]) -> dict[str, str]:
    """The variables that the collection reads its connection from; ready is what ``--ready`` writes."""
    return {
        "PROXMOX_HOST": str(ready["host"]),
        "PROXMOX_PORT": str(ready["port"]),
        "PROXMOX_USER": str(ready["token_user"]),
        "PROXMOX_TOKEN_ID": str(ready["token_id"]),
        "PROXMOX_TOKEN_SECRET": str(ready["token_secret"]),
        "PROXMOX_CA_PATH": str(ready["ca_path"]),
    }
