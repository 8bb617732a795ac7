# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A holder is dead when its very process has certainly ended, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import Holder


@pytest.fixture
def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def holder_of(process: subprocess.Popen[bytes]) -> Holder:
    """Return what Holder.new() returns in that process."""
    from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import records

    return replace(Holder.new(), pid=process.pid, started=records._start_time(process.pid))


def test_calling_process__lives() -> None:
    assert not Holder.new().is_dead()


def test_two_holders_of_one_process__are_two() -> None:
    assert Holder.new() != Holder.new()


def test_killed_process__is_dead_before_and_after_it_is_reaped(sleeper: subprocess.Popen[bytes]) -> None:
    holder = holder_of(sleeper)
    assert not holder.is_dead()
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert holder.is_dead()
    sleeper.wait()
    assert holder.is_dead()


def test_later_process_of_the_same_number__is_another() -> None:
    assert replace(Holder.new(), started="1").is_dead()


@pytest.mark.parametrize("space", ["another boot", ""])
def test_process_that_cannot_be_seen_from_here__is_not_called_dead(space: str) -> None:
    assert not replace(Holder.new(), pid=2**22 + 1, space=space).is_dead()


def test_messages__name_process_and_host() -> None:
    assert str(replace(Holder.new(), pid=12, host="ctl1")) == "process 12 on ctl1"
