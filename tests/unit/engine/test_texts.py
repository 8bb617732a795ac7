# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What messages say of names that do not exist, and numbers of any length."""

from __future__ import annotations

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.texts import (
    hint,
    known_names,
    number_text,
    whole_number,
)


@pytest.mark.parametrize(
    ("names", "wanted", "expected"),
    [
        (["ceph-vm", "local-lvm"], "ceph_vm", "ceph-vm, local-lvm; did you mean ceph-vm?"),
        (["ceph-vm", "local-lvm"], "nfs", "ceph-vm, local-lvm"),
        (["Debian-13", "alpine"], "debian-12", "Debian-13, alpine; did you mean Debian-13?"),
        (["ceph-vm"], "ceph_vm", "ceph-vm"),
        ([], "nfs", "none"),
    ],
)
def test_known__lists_the_names_and_the_one_that_may_be_meant(names: list[str], wanted: str, expected: str) -> None:
    assert known_names(names, wanted) == expected


def test_known__of_many_lists_the_most_alike() -> None:
    text = known_names((f"node-{number:02}" for number in range(30)), "node-7")
    assert text.endswith(" and 20 more"), "several are equally like it"
    assert "node-07" in text


def test_hint__is_empty_without_a_likely_name() -> None:
    assert hint(["memory", "cores"], "xyz") == ""
    assert hint(["memory", "cores"], "memroy") == "; did you mean memory?"


def test_number_text__writes_numbers_that_python_refuses_to_write() -> None:
    assert [number_text(value) for value in (7, 70000000, 0.5)] == ["7", "70000000", "0.5"]
    assert number_text(-(10**5000)) == "a number of more than 15 digits"


def test_whole_number__reads_what_python_reads_in_any_text() -> None:
    assert [whole_number(text) for text in ("100", 7, "007", "9" * 18)] == [100, 7, 7, 10**18 - 1]
    assert {whole_number(text) for text in ("", "-1", "1.5", "\u0661", "web-1", None, "9" * 19, "9" * 5000)} == {None}
