# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes of a history behave as those of modules."""

from __future__ import annotations

import pytest

from .actors import Actors, Process


@pytest.mark.parametrize("at_once", [1, 2])
def test_process_that_is_interrupted_again__ignores_that(at_once: int) -> None:
    actors = Actors(0.0)
    process = Process(1, "run 1", "a")
    heard: list[str] = []

    def work() -> None:
        for step in ("first", "second", "third"):
            try:
                actors.wait()
            except KeyboardInterrupt:
                heard.append(step)

    actor = actors.spawn(process, work)
    actors.resume(actor)
    for _signal in range(at_once):
        process.interrupt()
    actors.resume(actor)
    process.interrupt()
    while not actor.ended:
        actors.resume(actor)
    assert heard == ["first"]
