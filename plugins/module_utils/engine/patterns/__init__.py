# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Regular expressions of users, matched in linear time: for names one by one, for VMIDs all at once."""

from __future__ import annotations


class InvalidPattern(ValueError):
    """A regular expression has a mistake, uses what is not supported, or is too complex. The text says which."""
