# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the HA manager balances the nodes by itself: the option C(crs) of the datacenter."""

from __future__ import annotations

from collections.abc import Mapping

from .api.session import Session

KEY = "ha-auto-rebalance"


def ask_if_ha_balances(session: Session) -> bool:
    """Whether the HA manager moves guests to balance the nodes."""
    setting = session.get("/cluster/options").get("crs")
    return isinstance(setting, Mapping) and bool(int(setting.get(KEY) or 0))


def let_balance(session: Session, value: bool) -> None:
    """Switch on or off that the HA manager balances the nodes by itself. The other parts of the option stay as they
    are.
    """
    setting = session.get("/cluster/options").get("crs")
    parts = {**(setting if isinstance(setting, Mapping) else {}), KEY: int(value)}
    session.put("/cluster/options", crs=",".join(f"{key}={part}" for key, part in sorted(parts.items())))
