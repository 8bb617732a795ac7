# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages as the tarball and documentation sites have them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from support.pages import CHECKOUT, links, pages

IGNORED = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text(encoding="utf-8"))["build_ignore"]
DOCSITE = Path("docs/docsite")
LABEL = "ansible_collections.qemu_scheduler.proxmox.docsite"


def is_shipped(path: Path) -> bool:
    names = path.resolve().relative_to(CHECKOUT).parts
    parts = ["/".join(names[:number]) for number in range(1, len(names) + 1)]
    # galaxy.yml becomes MANIFEST.json.
    return names != ("galaxy.yml",) and not any(fnmatch(part, pattern) for part in parts for pattern in IGNORED)


SHIPPED = [page for page in pages() if is_shipped(page)]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pages for sites, by name."""
    checkout = tmp_path_factory.mktemp("checkout")
    shutil.copytree(CHECKOUT / "docs", checkout / "docs", ignore=shutil.ignore_patterns("rst"))
    command = [sys.executable, str(CHECKOUT / "hack" / "docsite.py"), str(checkout)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {page.stem: page.read_text(encoding="utf-8") for page in (checkout / DOCSITE / "rst").glob("*.rst")}


@pytest.mark.parametrize("page", SHIPPED, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_links_of_the_tarball__lead_to_what_it_contains(page: Path) -> None:
    targets = {link.partition("#")[0] for link in links(page) if "://" not in link}
    assert [target for target in sorted(targets) if target and not is_shipped(page.parent / target)] == []


def test_site__has_every_page_of_the_documentation(rendered: dict[str, str]) -> None:
    # The index is the site's own.
    assert set(rendered) == {page.stem for page in (CHECKOUT / "docs").glob("*.md")} - {"index"}


def test_links_of_the_site__lead_somewhere(rendered: dict[str, str]) -> None:
    text = "".join(rendered.values())
    labels = re.findall(r"^\.\. _([^:\s]+):$", text, re.MULTILINE)
    assert len(labels) == len(set(labels))
    assert all(label.startswith(LABEL) for label in labels)
    links = re.findall(r":ref:`[^`<]+<([^>]+)>`", text)
    assert len(links) > 100
    assert set(links) <= set(labels)


def test_site__shows_tables_code_and_markup(rendered: dict[str, str]) -> None:
    page = rendered["storage"]
    assert "   * - ``{size: 32, storage_class: fast}``\n     - the same, among the storages of the class\n" in page
    assert ".. code-block:: yaml+jinja\n\n   - name: A database on three kinds of storage\n" in page
    assert "<!--" not in "".join(rendered.values())
