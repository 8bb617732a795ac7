# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loads all that simulated clusters need. The process that they are forked from imports this module first."""

from __future__ import annotations

import gc

from simulated_cluster import api, command_line
from simulated_cluster.schema import Schema

from . import quick_clusters
from .versions import VERSIONS

__all__ = ["command_line", "quick_clusters"]

api.load()
for version in VERSIONS:
    Schema.load(version)
# Garbage collections of the clusters would look at all that, and copy its pages.
gc.collect()
gc.freeze()
