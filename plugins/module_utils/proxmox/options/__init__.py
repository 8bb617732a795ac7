# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VM options in their three forms: as a playbook gives them, as the API takes them, and as a VM's config shows them."""

from __future__ import annotations
