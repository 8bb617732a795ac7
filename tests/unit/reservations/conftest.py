# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where ledgers can be, for the tests of this folder."""

from __future__ import annotations

from support.ledgers import anywhere, empty_postgres, launch, postgres_url, where

__all__ = ["anywhere", "empty_postgres", "launch", "postgres_url", "where"]
