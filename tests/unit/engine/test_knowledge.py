# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether something exists: three answers."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.knowledge import Absent, Known, NotKnown


@pytest.mark.parametrize("answer", [Known(0), NotKnown(("web",)), Absent()])
def test_answer__is_no_truth_value(answer: t.Any) -> None:
    with pytest.raises(TypeError, match="one of three answers"):
        bool(answer)
