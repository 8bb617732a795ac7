# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults of `make mutants` fit the code as it is."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from mutants.mutant import CHECKOUT, UTILS, DoesNotFit, Mutant, mutants

ALL = mutants()


def mismatch(mutant: Mutant) -> str | None:
    """What keeps a fault from being planted and tested."""
    source = (CHECKOUT / mutant.path).read_text(encoding="utf-8")
    try:
        changed = mutant.applied(source)
    except DoesNotFit as error:
        return str(error)
    missing = [test for test in mutant.tests if not (CHECKOUT / "tests" / shlex.split(test)[0]).exists()]
    if changed == source or missing or not mutant.tests:
        return f"changed: {changed != source}, tests: {mutant.tests}, missing: {missing}"
    return None


def test_mutants__fit_the_code_and_name_tests_that_exist() -> None:
    assert {mutant.breaks: wrong for mutant in ALL if (wrong := mismatch(mutant))} == {}


def test_mutants__differ_in_what_they_break() -> None:
    assert len({mutant.breaks for mutant in ALL}) == len(ALL) >= 30


@pytest.mark.parametrize("source", ["a = 2\n", "a = 1\na = 1\n"])
def test_mutant__that_does_not_fit_is_an_error(source: str) -> None:
    with pytest.raises(DoesNotFit, match="expected once"):
        Mutant("an answer", "answer.py", "a = 1", "a = 3", []).applied(source)


def test_mutant__is_in_the_copy_until_the_block_ends(tmp_path: Path) -> None:
    file = tmp_path / UTILS / "answer.py"
    file.parent.mkdir(parents=True)
    file.write_text("a = 1\n", encoding="utf-8")
    with Mutant("an answer", "answer.py", "a = 1", "a = 3", []).planted(tmp_path):
        assert file.read_text(encoding="utf-8") == "a = 3\n"
    assert file.read_text(encoding="utf-8") == "a = 1\n"
