# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports every module of the collection's module_utils, also those that tasks import only where they need them."""

from __future__ import annotations

import importlib
from pathlib import Path

from ansible_collections.qemu_scheduler.proxmox.plugins import module_utils


def import_every_module() -> None:
    """Import them all."""
    folder = Path(module_utils.__path__[0])
    for file in sorted(folder.rglob("*.py")):
        importlib.import_module(".".join((module_utils.__name__, *file.relative_to(folder).with_suffix("").parts)))
