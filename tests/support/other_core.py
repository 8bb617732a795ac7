# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies of the installed ansible-core that differ from it, as another release of it may."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import ansible

from .playbook import SUPPORT

INSTALLED = Path(ansible.__file__).parent
Change = Callable[[str], str]
PACKED = ("module_utils/", "executor/module_common.py")
"""What is packed with a module, and what packs it."""


class NothingChanged(Exception):
    """This release of ansible-core does not have what was to be changed."""


def copied(folder: Path, change: Change, below: str = "") -> dict[str, str]:
    """Make a copy whose Python files, those below a path, are changed. Returns the environment that uses it.

    Modules that are packed with other files of ansible-core than those of other plays are not shared with these.
    """
    changed: list[str] = []
    for source in INSTALLED.rglob("*"):
        target = folder / "ansible" / source.relative_to(INSTALLED)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".py" and source.is_relative_to(INSTALLED / below):
            text = source.read_text(encoding="utf-8")
            other = change(text)
            if other != text:
                target.write_text(other, encoding="utf-8")
                changed.append(str(source.relative_to(INSTALLED)))
                continue
        # With what was compiled: Python replaces a compiled file, and does not write into it.
        os.link(source, target)
    if not changed:
        raise NothingChanged
    python_path = {"PYTHONPATH": os.pathsep.join([str(folder), str(SUPPORT / "quick_python")])}
    return {**python_path, "PACK_ANEW": "1"} if any(each.startswith(PACKED) for each in changed) else python_path


def renaming(name: str) -> Change:
    """Rename a function, method or variable wherever it is used."""
    return lambda text: re.sub(rf"(?<!\w){name}\b", f"{name}_of_tomorrow", text)


def renaming_attribute(name: str) -> Change:
    """Rename an attribute where objects use their own."""
    return lambda text: re.sub(rf"\bself\.{name}\b", f"self.{name}_of_tomorrow", text)


def beginning(function: str, line: str) -> Change:
    """Let a function begin with another line."""
    return lambda text: re.sub(rf"( *)(def {function}\(.*\).*:\n)", rf"\1\2\1    {line}\n", text)
