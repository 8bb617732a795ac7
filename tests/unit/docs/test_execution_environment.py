# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The execution environment names what C(make build) makes, where ansible-builder copies it to."""

from __future__ import annotations

from pathlib import PurePosixPath

import yaml
from support.pages import CHECKOUT

BUILD_CONTEXT = "/build"
"""Where the stage of the image that installs collections has the files of the build context."""


def test_execution_environment__installs_the_tarball_of_this_version() -> None:
    environment = yaml.safe_load((CHECKOUT / "execution-environment.yml").read_text(encoding="utf-8"))
    galaxy = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text(encoding="utf-8"))
    (file,) = environment["additional_build_files"]
    name = f"{galaxy['namespace']}-{galaxy['name']}-{galaxy['version']}.tar.gz"
    assert file["src"] == f"build/{name}"
    (collection,) = environment["dependencies"]["galaxy"]["collections"]
    assert collection["name"] == str(PurePosixPath(BUILD_CONTEXT, file["dest"], name))
