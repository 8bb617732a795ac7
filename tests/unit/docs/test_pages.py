# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages link to what exists, their YAML is YAML, and what is made from the code is up to date."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import yaml
from support.pages import CHECKOUT, anchors, examples, links, pages
from support.playbook import COLLECTIONS


class AnsibleYAML(yaml.SafeLoader):
    """YAML as Ansible reads it: with tags of its own, such as `!vault`."""


AnsibleYAML.add_multi_constructor("!", lambda loader, suffix, node: f"!{suffix}")


def broken_links(page: Path) -> list[str]:
    """The links of a page that lead to no file, or to no heading of one."""
    broken = []
    for link in links(page):
        if "://" in link:
            continue
        path, _hash, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    return broken


def test_links__lead_somewhere() -> None:
    assert {page.relative_to(CHECKOUT): broken for page in pages() if (broken := broken_links(page))} == {}


def test_yaml_examples__are_yaml() -> None:
    found = [example for page in pages() for example in examples(page) if example.language == "yaml"]
    empty = [f"{each.page.name}: {each.heading}" for each in found if yaml.load(each.text, AnsibleYAML) is None]
    assert found
    assert not empty


def test_every_page_of_the_documentation__is_reached_from_its_index() -> None:
    docs = CHECKOUT / "docs"
    reached, waiting = set(), [docs / "index.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        targets = {(page.parent / link.partition("#")[0]).resolve() for link in links(page) if "://" not in link}
        waiting.extend(path for path in targets - reached if path.suffix == ".md" and path.exists())
    assert set(docs.glob("*.md")) <= reached


def test_generated_parts__are_up_to_date() -> None:
    generator = CHECKOUT / "hack" / "generate_docs.py"
    done = subprocess.run(
        [sys.executable, str(generator), "--check"],
        env={**os.environ, "PYTHONPATH": str(COLLECTIONS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"run hack/generate_docs.py\n{done.stdout}{done.stderr}"


def test_every_generated_part__stands_on_a_page() -> None:
    spec = importlib.util.spec_from_file_location("generate_docs", CHECKOUT / "hack" / "generate_docs.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    pages = [CHECKOUT / "README.md", *(CHECKOUT / "docs").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert {match[2] for match in generator.PLACE.finditer(text)} == set(generator.PARTS)
