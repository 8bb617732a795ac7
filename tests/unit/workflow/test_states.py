# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What takes a VM to a state."""

from __future__ import annotations

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.existing.plan import power_action
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import (
    STATES,
    require_creatable,
)


@pytest.mark.parametrize(
    ("state", "running", "paused", "stopped"),
    [
        ("present", None, None, None),
        ("started", None, "resume", "start"),
        ("stopped", "stop", "stop", None),
        ("restarted", "restart", "restart", "start"),
        ("paused", "pause", None, "error"),
        ("suspended", "suspend", "suspend", "error"),
    ],
)
def test_state__takes_one_action(state: str, running: str | None, paused: str | None, stopped: str | None) -> None:
    for status, expected in (("running", running), ("paused", paused), ("stopped", stopped)):
        if expected == "error":
            with pytest.raises(InvalidRequest, match=f'VM "a" does not run, and only a VM that runs can be {state}'):
                power_action('VM "a"', state, status, None)
        else:
            assert power_action('VM "a"', state, status, None) == expected


def test_suspended__is_told_by_the_lock() -> None:
    assert power_action('VM "a"', "suspended", "stopped", "suspended") is None
    assert power_action('VM "a"', "started", "stopped", "suspended") == "start"


def test_new_vm__cannot_be_paused() -> None:
    for state in STATES:
        if state in ("paused", "suspended"):
            with pytest.raises(InvalidRequest, match="does not exist"):
                require_creatable('VM "a"', state)
        else:
            require_creatable('VM "a"', state)
