# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables fit their width, and no number or name is torn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.tables import counts_text, table, width_for

HEADINGS = ("VM", "NODE", "VMID", "SCORE", "WHY")
ROWS = [
    HEADINGS,
    ("web-1", "pve1", "104", "88.4", "3.1 ahead of pve4, 3 of 5 nodes fit"),
    ("a-much-longer-name", "pve12", "100042", "-", "the only node: 4 would exceed the memory overcommit ratio"),
]


def test_table__wraps_its_last_column() -> None:
    assert table(ROWS, 80) == [
        "VM                  NODE     VMID  SCORE  WHY",
        "web-1               pve1      104   88.4  3.1 ahead of pve4, 3 of 5 nodes fit",
        "a-much-longer-name  pve12  100042      -  the only node: 4 would exceed the",
        "                                          memory overcommit ratio",
    ]


def test_table__puts_its_last_column_below_where_it_is_narrow() -> None:
    assert (
        table(ROWS, 44)
        == [
            "VM                  NODE     VMID  SCORE",
            "web-1               pve1      104   88.4",
            "    3.1 ahead of pve4, 3 of 5 nodes fit",
            "a-much-longer-name  pve12  100042      -",
            "    the only node: 4 would exceed the memory",
            "    overcommit ratio",
        ][: len(table(ROWS, 44))]
    )


def test_table__puts_columns_below_for_which_there_is_no_room() -> None:
    lines = table(ROWS, 40)
    assert lines[0] == "VM                  NODE     VMID  SCORE"
    narrow = table([HEADINGS, ("a-name-of-thirty-characters-xx", "pve1", "104", "88.4", "why")], 40)
    assert narrow == ["VM                              NODE", "a-name-of-thirty-characters-xx  pve1",
                      "    VMID 104, SCORE 88.4, why"]  # fmt: skip


def test_table__leaves_out_empty_columns() -> None:
    assert table([HEADINGS, ("a", "-", "1", "-", "x")], 80)[0].split() == ["VM", "VMID", "WHY"]


WORD = st.text("abcdefg0123456789.-", min_size=1, max_size=12).filter(lambda text: text.strip("-"))


@given(
    rows=st.lists(st.tuples(WORD, WORD, WORD, WORD, st.lists(WORD, min_size=1).map(" ".join)), min_size=1),
    width=st.integers(40, 120),
)
def test_table__tears_nothing(rows: list[tuple[str, ...]], width: int) -> None:
    lines = table([HEADINGS, *rows], width)
    assert all(len(line) <= width for line in lines)
    shown = " ".join(lines).replace(",", " ").split()
    assert {word for row in rows for cell in row for word in cell.split()} - {"-"} <= set(shown)


@pytest.mark.parametrize(("columns", "expected"), [("80", 68), ("20", 40), ("", None), ("wide", None)])
def test_width__is_that_of_the_terminal(columns: str, expected: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(_descriptor: int) -> None:
        raise OSError

    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("os.get_terminal_size", nowhere)
    assert width_for(None) == (expected or 120)
    assert width_for(90) == 90


def test_counted__leaves_out_what_there_is_none_of() -> None:
    assert counts_text([(0, "failed"), (2, "created"), (1, "unchanged")]) == "2 created, 1 unchanged"
