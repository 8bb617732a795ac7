# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A test is named after its subject and its behaviour."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.pages import CHECKOUT

_TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


@pytest.mark.parametrize("path", sorted(CHECKOUT.glob("tests/**/test_*.py")), ids=lambda path: path.stem)
def test_names__have_subject_and_behaviour(path: Path) -> None:
    names = _TEST.findall(path.read_text(encoding="utf-8"))
    assert [name for name in names if not re.fullmatch(r"test_[^_]\w*?[^_]__[^_]\w*", name)] == []
