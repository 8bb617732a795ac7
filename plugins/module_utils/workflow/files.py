# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writing a result to a file that the user names."""

from __future__ import annotations

import json
import os
import tempfile
import typing as t
from collections.abc import Mapping
from pathlib import Path

from ..errors import InvalidRequest


def write_json(option: str, dest: str, data: Mapping[str, t.Any]) -> None:
    """Write the file atomically and readable only by its owner, unless it has this content already.

    Raises InvalidRequest, which names the option, if that is not possible.
    """
    text = json.dumps(data, indent=1, sort_keys=True) + "\n"
    try:
        path = Path(dest).expanduser()
        if path.exists() and not path.is_file():
            raise ValueError("it is not a regular file")
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            file.write(text)
        try:
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidRequest(f"{option}: cannot write {dest!r}: {reason}") from error
