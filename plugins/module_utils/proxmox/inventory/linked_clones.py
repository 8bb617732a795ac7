# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads which VMs are linked clones of a template, whose disks stand on those of the template."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping

from ..api.reader import Reader
from ..options.drives import is_drive
from .rows import read_rows


def read_linked_clones(reader: Reader, node: str, vmid: int, config: Mapping[str, t.Any]) -> frozenset[int]:
    """Return the VMIDs of the linked clones of a template on node, as far as this user sees their disks. One call for
    each storage of its disks.
    """
    volumes = [str(value).partition(",")[0] for key, value in config.items() if is_drive(key)]
    base = re.compile(rf"(?:^|[:/@])base-{vmid}-")
    found = set()
    for storage in sorted({volume.partition(":")[0] for volume in volumes if base.search(volume)}):
        for row in read_rows(reader, f"/nodes/{node}/storage/{storage}/content", content="images") or ():
            if any(base.search(str(row.get(key) or "")) for key in ("parent", "volid")):
                found.add(int(row.get("vmid") or 0))
    return frozenset(found - {0, vmid})
