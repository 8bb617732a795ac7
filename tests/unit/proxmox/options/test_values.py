# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of numbers."""

from __future__ import annotations

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.values import (
    MOST,
    check_range,
    check_seconds,
)

HUGE = int("9" * 400)
"""Larger than any float."""


@pytest.mark.parametrize("value", [0, 1, 0.5, MOST])
def test_number__may_be_at_either_end_of_its_range(value: float) -> None:
    check_range("timeout", value, 0)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (-1, "-1"),
        (MOST + 1, "1000000001"),
        (HUGE, "a number of more than 15 digits"),
        (float("nan"), "a number of more than 15 digits"),
    ],
)
def test_number_out_of_range__is_named_with_its_option_and_range(value: float, told: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        check_range("timeout", value, 0)
    assert error.value.message == f"timeout: {told} is not possible, expected 0 to 1000000000"


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), HUGE])
def test_duration__must_be_one_that_can_be_waited_for(value: float) -> None:
    with pytest.raises(InvalidRequest, match=r"^interval: .* expected a number of seconds above 0 and at most \d+$"):
        check_seconds("interval", value)
