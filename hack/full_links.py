# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the links of README.md and of the roles' README.md full addresses: Galaxy and Automation Hub show these pages
alone, where a relative link leads nowhere.

usage: .venv/bin/python hack/full_links.py CHECKOUT
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path

import yaml

INDEX = "docs/index.md"
RELATIVE_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s]+)\)")


def write(checkout: Path) -> None:
    """Change the pages of a copy of the checkout. They link to where galaxy.yml says that docs/index.md is."""
    galaxy = yaml.safe_load((checkout / "galaxy.yml").read_text(encoding="utf-8"))
    root = galaxy["documentation"].removesuffix(INDEX)
    for page in (checkout / "README.md", *checkout.glob("roles/*/README.md")):
        folder = page.parent.relative_to(checkout).as_posix()
        page.write_text(with_full_links(page.read_text(encoding="utf-8"), root, folder), encoding="utf-8")


def with_full_links(text: str, root: str, folder: str) -> str:
    """A page of a folder with links that begin with the address of the checkout's root."""
    return RELATIVE_LINK.sub(lambda link: f"]({root}{posixpath.normpath(posixpath.join(folder, link[1]))})", text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
