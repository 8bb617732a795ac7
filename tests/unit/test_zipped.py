# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports from an archive, as Ansible sends modules to another interpreter."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils import zipped

PROGRAM = """
import atexit, gc, sys
atexit.register(lambda: print(gc.get_freeze_count() > 0))
compiled = []
sys.addaudithook(lambda event, args: event == "compile" and compiled.append(str(args[1])))
sys.path.insert(0, sys.argv[1])
import box.zipped, box.part, box.inner.leaf
print(box.zipped.ARCHIVE)
for module in (box.part, box.inner, box.inner.leaf):
    print(module.__file__, compiled.count(module.__file__), module.__name__)
"""


def test_modules_in_an_archive__are_compiled_once_and_not_walked_through_at_the_end(tmp_path: Path) -> None:
    archive = tmp_path / "box.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(zipped.__file__, "box/zipped.py")
        for name in ("box/__init__.py", "box/part.py", "box/inner/__init__.py", "box/inner/leaf.py"):
            file.writestr(name, "")
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(archive)], capture_output=True, text=True, check=True)
    assert zipped.ARCHIVE is None
    assert done.stdout.splitlines() == [
        str(archive),
        f"{archive}/box/part.py 1 box.part",
        f"{archive}/box/inner/__init__.py 1 box.inner",
        f"{archive}/box/inner/leaf.py 1 box.inner.leaf",
        "True",
    ]
