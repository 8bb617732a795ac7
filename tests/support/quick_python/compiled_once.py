# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps what was compiled, in the folder that KEPT_BY_TESTS names.

Python keeps what it compiles, but not of sources in archives, as modules are, and Ansible keeps nothing of collections.
"""

from __future__ import annotations

import _imp
import marshal
import os
import sys
import types
from typing import cast

_FOLDER = os.environ.get("KEPT_BY_TESTS")
_KIND = f"{sys.implementation.cache_tag}-{sys.flags.optimize}"


def compile_once(
    source: str | bytes, filename: str, mode: str, flags: int = 0, dont_inherit: bool = False
) -> types.CodeType:
    """Return what compile() returns, for a source that was compiled before without compiling it."""
    if _FOLDER is None or mode != "exec" or flags or not dont_inherit:
        return cast("types.CodeType", compile(source, filename, mode, flags, dont_inherit))
    text = source.encode() if isinstance(source, str) else source
    path = os.path.join(_FOLDER, f"{_imp.source_hash(len(text), text).hex()}-{_KIND}")
    try:
        with open(path, "rb") as kept:
            code: types.CodeType = marshal.load(kept)
    except FileNotFoundError:
        code = compile(source, filename, mode, dont_inherit=True)
        part = f"{path}.{os.getpid()}"
        with open(part, "wb") as new:
            marshal.dump(code, new)
        os.replace(part, path)
    else:
        _imp._fix_co_filename(code, filename)
    return code
