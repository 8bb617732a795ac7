# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every Python that has this folder in PYTHONPATH runs this file: it compiles the sources in archives once, and seldom
collects garbage, as most of such a process is imports, which live until its end.
"""

from __future__ import annotations

import atexit
import gc
import zipimport

from compiled_once import compile_once

zipimport.compile = compile_once  # type: ignore[attr-defined]
gc.set_threshold(50_000, 20, 100)
# The collection at the end of a process finds nothing to do.
atexit.register(gc.freeze)
