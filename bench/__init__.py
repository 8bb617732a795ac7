# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the collection and community.proxmox on the simulated cluster, and prints ratios.

Run as ``python -m bench``. These are not tests: no number passes or fails.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
COLLECTIONS = CHECKOUT / ".venv" / "collections"

# Let Python keep compiled files, as it does for users.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The simulated cluster and the PostgreSQL server are the tests' own; the collection is where `make setup` put it.
sys.path[:0] = [str(COLLECTIONS), str(CHECKOUT / "tests")]
