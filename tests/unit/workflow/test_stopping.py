# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ending a run before its time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future

import pytest
from support.waiting import until

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import Interrupted
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.stopping import GRACE, Starters, Stop


def test_what_is_under_way__is_followed_until_its_grace_is_over() -> None:
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    stop = Stop(clock=lambda: now[0], sleep=sleep)
    stop.check()
    stop.ask()
    with pytest.raises(Interrupted):
        stop.check()
    stop.sleep(2)
    stop.ask()
    stop.sleep(1000)
    assert now[0] == 100 + GRACE
    with pytest.raises(Interrupted):
        stop.sleep(1)


def test_what_waits_for_a_thread__is_dropped_and_what_has_begun_is_waited_for() -> None:
    stop = Stop()
    begun = threading.Event()
    waiting: list[Future[None]] = []
    ended: list[str] = []

    def first() -> None:
        begun.set()
        until(lambda: waiting and waiting[0].cancelled())
        ended.append("first")

    def interrupt() -> None:
        with stop.threads(1) as pool:
            pool.submit(first)
            waiting.append(pool.submit(ended.append, "second"))
            begun.wait()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    with pytest.raises(Interrupted):
        stop.check()
    assert ended == ["first"]


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def test_run_that_nobody_waits_for__sends_nothing_more() -> None:
    with sleeper() as other:
        starters = Starters(iter([os.getpid(), os.getppid(), other.pid]))
        stop = Stop(starters=starters)
        stop.check()
        other.kill()
        # Nobody has waited for it yet: its id is still taken.
        until(starters.have_ended)
        with pytest.raises(Interrupted):
            stop.check()


def test_run_that_nobody_waits_for__follows_what_is_under_way_for_a_while() -> None:
    now = [100.0]
    with sleeper() as other:
        stop = Stop(clock=lambda: now[0], starters=Starters(iter([other.pid])))
        other.kill()
    stop.sleep(0)
    now[0] += GRACE
    with pytest.raises(Interrupted):
        stop.sleep(1)


def test_starters__that_ended_before_the_run_have_ended() -> None:
    with sleeper() as other:
        other.kill()
    assert Starters(iter([other.pid])).have_ended()


def test_starters__are_recognized_without_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    with sleeper() as other:
        starters = Starters(iter([other.pid, 1]))
        assert not starters.have_ended()
        other.kill()
    assert starters.have_ended()


def test_end_of_a_starter__interrupts_the_thread_that_waits() -> None:
    with sleeper() as other:
        other.kill()
    starters = Starters(iter([other.pid]))

    def wait() -> None:
        with starters.watch(signal.SIGINT):
            threading.Event().wait(60)

    with pytest.raises(KeyboardInterrupt):
        wait()
