# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every Python that has this folder in PYTHONPATH runs this file: it compiles the sources in archives once."""

from __future__ import annotations

import zipimport

from compiled_once import compile_once

zipimport.compile = compile_once  # type: ignore[attr-defined]
