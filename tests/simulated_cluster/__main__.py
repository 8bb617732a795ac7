# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the simulated cluster: ``python tests/simulated_cluster DESCRIPTION`` or ``python -m simulated_cluster``."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    # Started as a folder: its files must not be importable as top-level modules.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from simulated_cluster.command_line import main

if __name__ == "__main__":
    sys.exit(main())
