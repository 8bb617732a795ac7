# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that others control, made harmless."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import jinja2
import pytest
from support.payloads import controls, payloads

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.foreign_text import (
    all_visible,
    inert,
    on_one_line,
    visible,
)


def test_visible__leaves_no_control_character() -> None:
    assert controls(visible("".join(map(chr, range(sys.maxunicode + 1))))) == set()


def test_visible__escapes_nothing_else() -> None:
    kinds = {"Cc", "Cf", "Zl", "Zp", "Cs", "Cn"}
    text = "".join(c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) not in kinds)
    assert visible(text) == text
    assert (
        visible("notes\n\tof a family \U0001f468\u200d\U0001f469") == "notes\n\tof a family \U0001f468\u200d\U0001f469"
    )


def test_visible__shows_what_was_there() -> None:
    assert visible("a\x1b[2J\x9b\u202e\U000e0041") == "a\\x1b[2J\\x9b\\u202e\\U000e0041"


def test_on_one_line__lets_nothing_begin_a_line() -> None:
    assert on_one_line("x\nTASK [y]\r\tz\u2028") == "x TASK [y]\\x0d z\\u2028"


def test_all_visible__goes_into_everything_but_sealed_documents() -> None:
    plan = {"format": "f", "version": 1, "digest": "d", "name": "\x1b"}
    result = {"vms": [{"\x1b": ("\x1b", 1, None)}], "plan": plan}
    assert all_visible(result) == {"vms": [{"\\x1b": ["\\x1b", 1, None]}], "plan": plan}


@pytest.mark.parametrize("text", payloads(Path("/nowhere")))
def test_inert__is_no_template_and_calls_nothing(text: str) -> None:
    event = inert({"drift": {text: [text]}})
    environment = jinja2.Environment()
    for shown in (next(iter(event["drift"])), event["drift"][inert(text)][0]):
        assert environment.from_string(shown).render() == shown.rstrip("\n")
        try:
            expression = environment.parse("{{ " + shown + " }}")
        except jinja2.TemplateSyntaxError:
            continue
        assert not list(expression.find_all((jinja2.nodes.Call, jinja2.nodes.Filter)))
        assert not shown.startswith("#")


def test_inert__keeps_names_and_reasons_readable() -> None:
    event = {"type": "drift", "name": "web-1", "vmid": 100, "reason": "node pve1 (offline): 3 of 4"}
    assert inert(event) == {**event, "reason": "node pve1 \uff08offline\uff09: 3 of 4"}
