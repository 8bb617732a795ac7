# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a node needs maintenance: packages with updates, or a kernel that is newer than the one that runs."""

from __future__ import annotations

import re
from collections.abc import Collection

from .api.reader import Reader
from .inventory.rows import Row

UPDATES, KERNEL = "updates", "kernel"
NEEDS = (UPDATES, KERNEL)

_KERNEL = re.compile(r"(?:proxmox|pve)-kernel-(\d+(?:\.\d+)*-\d+-pve)(?:-signed)?")
_PACKAGES_TOLD = 3


def read_needs(reader: Reader, node: str, tests: Collection[str]) -> list[str]:
    """Return why a node needs maintenance, by these tests, as sentence parts; nothing if it needs none.

    Updates are those that the last C(apt update) on the node found, and reading them needs Sys.Modify on the node. The
    kernel needs Sys.Audit there.
    """
    found: list[str] = []
    if UPDATES in tests:
        rows: list[Row] = reader.get(f"/nodes/{node}/apt/update")
        names = sorted(str(row.get("Package")) for row in rows)
        if names:
            more = f" and {len(names) - _PACKAGES_TOLD} more" if len(names) > _PACKAGES_TOLD else ""
            found.append(f"{len(names)} package(s) have updates: {', '.join(names[:_PACKAGES_TOLD])}{more}")
    if KERNEL in tests:
        found += newer_kernel(reader.get(f"/nodes/{node}/apt/versions"))
    return found


def newer_kernel(rows: Collection[Row]) -> list[str]:
    """Return that the newest kernel which is installed does not run, from the list of versions; nothing if it does."""
    running = next((str(row["RunningKernel"]) for row in rows if row.get("RunningKernel")), "")
    names = (_KERNEL.fullmatch(str(row.get("Package"))) for row in rows if row.get("CurrentState") == "Installed")
    installed = sorted((match[1] for match in names if match), key=_numbers)
    if not running or not installed or _numbers(installed[-1]) <= _numbers(running):
        return []
    return [f"it runs kernel {running}, and {installed[-1]} is installed"]


def _numbers(release: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", release)]
