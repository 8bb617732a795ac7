# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All texts use the terms of the glossary, and none of the banned phrases."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pages import CHECKOUT
from support.wording import BANNED, findings, sources

PLACES = {
    "page.md": "# A page\n\nThe node {} memory.\n",
    "argument_specs.yml": "options:\n  one:\n    description: The node {} memory.\n",
    "comment.yml": "# The node {} memory.\n",
    "fragment.py": 'DOCUMENTATION = r"""\noptions:\n  one:\n    description: The node {} memory.\n"""\n',
    "docstring.py": 'def tell() -> None:\n    """The node {} memory."""\n',
    "remark.py": "# The node {} memory.\n",
    "message.py": 'def tell(node: str) -> str:\n    return f"The node {{node}} {} memory."\n',
}
"""What each kind of file looks like, with a place for a phrase."""


def test_wording__no_banned_phrase() -> None:
    found = [f"{path.relative_to(CHECKOUT).parent}: {finding}" for path in sources() for finding in findings(path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", PLACES)
def test_wording__finds_each_phrase_in_every_kind_of_text(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    for phrase, term in BANNED.items():
        path.write_text(PLACES[name].format(phrase), encoding="utf-8")
        assert any(f"{phrase!r}: write {term!r}" in finding for finding in findings(path))
    path.write_text(PLACES[name].format("allocates"), encoding="utf-8")
    assert findings(path) == []


def test_wording__finds_a_phrase_across_lines(tmp_path: Path) -> None:
    page, comment = tmp_path / "page.md", tmp_path / "tasks.yml"
    page.write_text("First.\nMemory that is Given\nout.\n", encoding="utf-8")
    comment.write_text("# Memory that is given\n# out.\n", encoding="utf-8")
    assert findings(page) == ["page.md:2: 'given out': write 'allocated'"]
    assert findings(comment) == ["tasks.yml:1: 'given out': write 'allocated'"]


def test_wording__ignores_names(tmp_path: Path) -> None:
    page, code = tmp_path / "page.md", tmp_path / "code.py"
    page.write_text("The key `patience` is a number.\n", encoding="utf-8")
    code.write_text('KEY = "patience"\nTEXT = "The key C(patience) is a number."\n', encoding="utf-8")
    assert findings(page) == findings(code) == []


def test_wording__covers_every_kind_of_text() -> None:
    covered = {str(path.relative_to(CHECKOUT)) for path in sources()}
    assert {
        "README.md",
        "docs/how-to.md",
        "playbooks/plan.yml",
        "plugins/doc_fragments/placement.py",
        "plugins/filter/explain.yml",
        "plugins/module_utils/workflow/report.py",
        "plugins/modules/qemu_schedule.py",
        "roles/provision/README.md",
        "roles/provision/meta/argument_specs.yml",
    } <= covered
