# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run whose scheduling cycles fail."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.lease import LeaseLost
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.job import TRIES
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.run_options import RunOptions
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.run import Run
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.stopping import Stop


def test_cycle_that_loses_its_lease_each_time__is_given_up_also_without_jobs() -> None:
    cycles = 0

    def place(*_args: Any, **_kwargs: Any) -> None:
        nonlocal cycles
        cycles += 1
        assert cycles <= TRIES
        raise LeaseLost("taken over")

    access = SimpleNamespace(offline=False, reader=None, stop=Stop())
    run = Run(RunOptions(), cast(Any, access), cast(Any, SimpleNamespace(place=place)), [])
    with pytest.raises(LeaseLost):
        run.execute(check_mode=False)
    assert cycles == TRIES
