# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading and writing the files that a task names: only regular ones, and never without a limit.

A pipe or a device may keep a task waiting for ever or fill its memory, and a link may lead to a file of another user.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
import typing as t
from collections.abc import Mapping
from pathlib import Path

from .errors import InvalidRequest
from .secret_options import quote

MIB = 1024**2

_OPEN_FILE = re.compile(r"/proc/(?:self|\d+)/fd/\d+")

# Opened for reading, a pipe would wait for a writer, and a terminal would become that of this process.
_AT_ONCE = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_text(path: str, largest: int, *, own: bool = False) -> str:
    """Return the text of a regular file of at most so many bytes. C(~) is the home of the user.

    own: whether it has to belong to this user. Raises OSError; ValueError for another kind of file, one of another
    user, a larger one, or one that is not UTF-8; and RuntimeError if there is no home.
    """
    with open(_open(Path(path).expanduser(), os.O_RDONLY), "rb") as file:
        if own and os.fstat(file.fileno()).st_uid != os.geteuid():
            raise ValueError("it belongs to another user")
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"it is larger than {largest // MIB} MiB")
    return content.decode("utf-8")


def recall_json(path: Path, largest: int) -> dict[str, t.Any]:
    """Return the JSON object that an earlier run of this user has stored in a file of at most so many bytes; empty if
    there is none, if it is damaged, or if another user has put it there.
    """
    try:
        content = json.loads(read_text(str(path), largest, own=True))
    except (OSError, ValueError, RuntimeError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def keep_json(path: Path, data: Mapping[str, t.Any]) -> None:
    """Store what recall_json returns to a later run. Without a place for it, nothing is stored."""
    with contextlib.suppress(OSError, InvalidRequest):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(path.name, str(path), data)


def append_text(path: str, text: str) -> None:
    """Append to a regular file, which is created if it is missing. Raises OSError, ValueError, also for a link.

    An open file of a process of this user may be named as the kernel does it.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | (0 if _OPEN_FILE.fullmatch(path) else os.O_NOFOLLOW)
    with open(_open(path, flags), "a", encoding="utf-8") as file:
        file.write(text)


def write_json(option: str, dest: str, data: Mapping[str, t.Any]) -> None:
    """Write the file atomically and readable only by its owner, unless it has this content already.

    Raises InvalidRequest, which names the option, if that is not possible.
    """
    content = (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()
    try:
        path = Path(dest).expanduser()
        if path.exists() and not path.is_file():
            raise ValueError("it is not a regular file")
        if path.exists() and path.stat().st_size == len(content) and path.read_bytes() == content:
            return
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except (OSError, ValueError, RuntimeError) as error:
        raise InvalidRequest(f"{option}: cannot write {quote(option, dest)}: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """Return why a file could not be read or written, for a message that names the file."""
    if isinstance(error, UnicodeError):
        return "it is not UTF-8"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _open(path: str | Path, flags: int) -> int:
    """Return the descriptor of a regular file."""
    descriptor = os.open(path, flags | _AT_ONCE, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("it is not a regular file")
    return descriptor
