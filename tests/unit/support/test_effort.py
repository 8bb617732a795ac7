# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bound on work holds whatever the measured code does with errors."""

from __future__ import annotations

from contextlib import suppress

import pytest
from support.effort import TooMuchWork, lines_run


def test_bound__is_broken_though_the_action_catches_the_error() -> None:
    def action() -> None:
        with suppress(AssertionError):
            for _number in range(100):
                pass

    with pytest.raises(TooMuchWork):
        lines_run(action, at_most=50)
    assert 100 < lines_run(action, at_most=1000) < 1000
