# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the action plugin reads the file that the module tells its progress in."""

from __future__ import annotations

import functools
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from ansible.utils.display import Display
from support.waiting import until

from ansible_collections.qemu_scheduler.proxmox.plugins.action.qemu_schedule import line_of
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.moves import move_line
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.progress import show_appended, way_to_show


def step(**more: Any) -> dict[str, Any]:
    return {
        "done": 3,
        "total": 12,
        "name": "web-3",
        "vmid": 117,
        "node": "pve3",
        "actions": ["create", "start"],
        "seconds": 4.13,
        "error": None,
        **more,
    }


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "qemu_schedule:  3/12 web-3 created and started on pve3 as 117 (4.1 s)"),
        ({"actions": ["delete"], "node": None}, "qemu_schedule:  3/12 web-3 removed (4.1 s)"),
        ({"name": None, "actions": ["update"]}, "qemu_schedule:  3/12 117 updated on pve3 as 117 (4.1 s)"),
        ({"actions": ["finish", "start"]}, "qemu_schedule:  3/12 web-3 finished and started on pve3 as 117 (4.1 s)"),
        ({"error": "TaskFailed"}, "qemu_schedule:  3/12 web-3 failed, TaskFailed on pve3 as 117 (4.1 s)"),
        ({"cluster": "eu"}, "qemu_schedule:  3/12 web-3 created and started on cluster eu, pve3 as 117 (4.1 s)"),
        ({"done": 1, "total": 1}, "qemu_schedule: 1/1 web-3 created and started on pve3 as 117 (4.1 s)"),
        ({"done": 1, "total": 1, "seconds": 0.9}, None),
    ],
)
def test_line__says_how_many_are_done_which_and_how_long_it_took(given: dict[str, Any], line: str | None) -> None:
    assert line_of(step(**given)) == line


@pytest.mark.parametrize(
    ("waiting", "plugins", "line"),
    [
        (["web-1"], ["MemoryOvercommit"], "web-1, rejected by MemoryOvercommit, 10 s of 300 s"),
        (["a", "b"], ["NodeReady", "Own", "Z"], "a and b, rejected by NodeReady, Own and Z, 10 s of 300 s"),
        (list("abcdefg"), ["Own"], "a, b, c, d, e and 2 more, rejected by Own, 10 s of 300 s"),
        (["a"], [], "a, 10 s of 300 s"),
    ],
)
def test_line__says_who_waits_for_what_and_how_long(waiting: list[str], plugins: list[str], line: str) -> None:
    told = {"waiting": waiting, "rejected_by": plugins, "waited": 10, "patience": 300}
    assert line_of(told) == f"qemu_schedule: waiting for capacity: {line}"


def test_lines__are_shown_as_they_are_written_each_once(tmp_path: Path) -> None:
    file, shown = tmp_path / "progress", list[str]()
    with show_appended(file, shown.append, line_of):
        for number in (1, 2):
            with file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(step(done=number)) + "\n" + '{"half')
            until(lambda number=number: len(shown) == number)
            file.write_text(file.read_text(encoding="utf-8").removesuffix('{"half'), encoding="utf-8")
    assert [line.split()[1] for line in shown] == ["1/12", "2/12"]


def test_what_is_written_last__is_shown_before_the_task_ends(tmp_path: Path) -> None:
    file, shown = tmp_path / "progress", list[str]()
    with show_appended(file, shown.append, line_of):
        file.write_text(json.dumps(step()) + "\n", encoding="utf-8")
    assert len(shown) == 1


HUGE = json.dumps(step(seconds=10**400)).encode() + b"\n"


@pytest.mark.parametrize(
    "content", [b"", b"nonsense\n", b'{"done": 1}\n', b"[]\n", b'{"waiting": 1}\n', b"\xff\n", HUGE]
)
def test_nothing_in_the_file__can_break_the_task(tmp_path: Path, content: bytes) -> None:
    file, shown = tmp_path / "progress", list[str]()
    with show_appended(file, shown.append, line_of):
        file.write_bytes(content + json.dumps(step()).encode() + b"\n")
    assert len(shown) == 1


def test_signals__are_left_to_the_thread_that_ansible_acts_on_them_in(tmp_path: Path) -> None:
    file, blocked = tmp_path / "progress", list[set[int]]()
    with show_appended(file, lambda line: blocked.append(signal.pthread_sigmask(signal.SIG_BLOCK, [])), line_of):
        file.write_text(json.dumps(step()) + "\n", encoding="utf-8")
    assert blocked[0] >= {signal.SIGINT, signal.SIGTERM}
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & {signal.SIGINT, signal.SIGTERM}


def test_file_that_never_comes__is_no_error(tmp_path: Path) -> None:
    with show_appended(tmp_path / "nowhere" / "progress", pytest.fail, line_of):
        pass


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "web-3 (117) moved, pve3 to pve1 (4.1 s)"),
        ({"name": ""}, "guest (117) moved, pve3 to pve1 (4.1 s)"),
        ({"outcome": "failed", "error": "MoveFailed"}, "web-3 (117) failed, MoveFailed, pve3 to pve1 (4.1 s)"),
        ({"outcome": "stale"}, "web-3 (117) not moved, no longer as planned, pve3 to pve1 (4.1 s)"),
    ],
)
def test_line__says_which_guest_moved_and_where(given: dict[str, Any], what: str) -> None:
    assert move_line(step(**{"from": "pve3", "to": "pve1", "outcome": "moved", **given})) == f"moves:  3/12 {what}"


def test_function_around_that_of_ansible__is_not_called_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of ansible-runner prints, for which a thread of a worker waits without end."""
    shown: list[str] = []

    def display(_self: Display, line: str) -> None:
        shown.append(line)

    # As if Ansible had defined it.
    own = type(display)(display.__code__, {"__name__": Display.__module__}, closure=display.__closure__)

    @functools.wraps(own)
    def printing(*_arguments: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(Display, "display", printing)
    way_to_show()("line")
    assert shown == ["line"]
