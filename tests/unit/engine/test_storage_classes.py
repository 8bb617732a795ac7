# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Storage classes as a user writes them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.storages import VolumeBinding
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidPluginConfig


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("ssd[", "invalid regular expression 'ssd[': a class is not closed by ']' (at character 4)"),
        ("(?=s)ssd", "invalid regular expression '(?=s)ssd': look-ahead is not supported, as in RE2 (at character 2)"),
        (5, "5 is not valid, expected a regular expression"),
    ],
)
def test_storage_class__refuses_a_pattern_that_is_not_supported(pattern: t.Any, told: str) -> None:
    with pytest.raises(InvalidPluginConfig) as raised:
        VolumeBinding({"storage_classes": {"fast": {"storages": ["ok.*", pattern]}}})
    assert raised.value.message == f"storage_classes.fast.storages: {told}"
