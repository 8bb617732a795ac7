# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A test is named after its subject and its behaviour."""

from __future__ import annotations

import re

from support.pages import CHECKOUT

_TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
_NAME = re.compile(r"test_[^_]\w*?[^_]__[^_]\w*")


def test_names__have_subject_and_behaviour() -> None:
    names = {
        path.stem: [name for name in _TEST.findall(path.read_text(encoding="utf-8")) if not _NAME.fullmatch(name)]
        for path in CHECKOUT.glob("tests/**/test_*.py")
    }
    assert {stem: wrong for stem, wrong in names.items() if wrong} == {}
