# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AAP counts as managed by a task, from its result and extensions/audit/event_query.yml."""

from __future__ import annotations

from typing import Any

import jq
import yaml
from support.pages import CHECKOUT

QUERIES = yaml.safe_load((CHECKOUT / "extensions" / "audit" / "event_query.yml").read_text(encoding="utf-8"))


def counted(module: str, result: dict[str, Any]) -> list[dict[str, Any]]:
    """What AAP counts. It drops what has no canonical facts, or one among them that is null."""
    rows: list[dict[str, Any]] = jq.compile(QUERIES[f"qemu_scheduler.proxmox.{module}"]["query"]).input(result).all()
    return [row for row in rows if row["canonical_facts"] and None not in row["canonical_facts"].values()]
