# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""New seeds change with the code, and only with it."""

from __future__ import annotations

from pathlib import Path

from support.code_seeds import code_digest, new_seeds


def test_new_seeds__are_the_same_until_the_code_changes(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    before = code_digest([tmp_path])
    (tmp_path / "a.py").write_text("2")
    changed = code_digest([tmp_path])
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    renamed = code_digest([tmp_path])
    (tmp_path / "b.py").rename(tmp_path / "a.py")
    (tmp_path / "a.py").write_text("1")

    assert code_digest([tmp_path]) == before
    seeds = {digest: new_seeds(digest, range(3)) for digest in (before, changed, renamed)}
    assert len({seed for each in seeds.values() for seed in each}) == 9
    assert new_seeds(before, range(1, 3)) == seeds[before][1:]
