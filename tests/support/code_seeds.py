# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""New seeds for each change of the code: everybody who has the same code tries the same ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def code_digest(folders: Iterable[Path]) -> str:
    """Return what is the same for the same code, and another text after any change to it."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            digest.update(f"{file.relative_to(folder).as_posix()} {file.stat().st_size}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def new_seeds(digest: str, numbers: Iterable[int]) -> list[int]:
    """Return a seed for each number, always the same ones for a digest."""
    return [int(hashlib.sha256(f"{digest} {number}".encode()).hexdigest()[:8], 16) for number in numbers]
