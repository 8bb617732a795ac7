# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The versions of Proxmox VE that tests run against."""

from __future__ import annotations

import pytest

VERSIONS = ("9.2", "8.4")

both_versions = pytest.mark.parametrize("version", VERSIONS)
"""For tests of what the versions may do differently; all others run against the newest."""
