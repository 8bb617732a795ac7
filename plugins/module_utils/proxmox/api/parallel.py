# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs many reads at the same time."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

_THREADS = 8

T = t.TypeVar("T")
R = t.TypeVar("R")


def in_parallel(function: Callable[[T], R], items: Iterable[T]) -> dict[T, R]:
    """Return function's result for each item; the first exception in the order of items is raised."""
    wanted = list(dict.fromkeys(items))
    if len(wanted) < 2:
        return {item: function(item) for item in wanted}
    with ThreadPoolExecutor(max_workers=min(_THREADS, len(wanted))) as threads:
        return dict(zip(wanted, threads.map(function, wanted), strict=True))
