# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ending a run before its time."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest
from support.waiting import until

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import Interrupted
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.stopping import GRACE, Stop


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
    assert stop.asked
    assert ended == ["first"]
