# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that a test injects into chosen requests."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field, fields
from typing import Any

from .tasks import Orders


@dataclass
class Fault:
    """One rule. It applies to requests whose method and path match, after the first ``after``, ``count`` times."""

    path: str = ""
    method: str = ""
    count: int | None = None
    after: int = 0
    status: int | None = None
    message: str = ""
    drop: str | None = None
    delay: float = 0.0
    hang: bool = False
    held: bool = False
    task_error: str | None = None
    task_seconds: float | None = None
    task_held: bool = False
    task_killed: bool = False
    vmid_taken: bool = False
    no_worker: bool = False
    seen: int = field(default=0, init=False)
    applied: int = field(default=0, init=False)
    released: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @classmethod
    def parse(cls, spec: dict[str, Any]) -> Fault:
        """A fault from the control plane; ValueError for a key that means nothing."""
        known = {entry.name for entry in fields(cls) if entry.init}
        unknown = set(spec) - known
        if unknown:
            raise ValueError(f"unknown fault option(s) {sorted(unknown)}; known: {sorted(known)}")
        if spec.get("drop") not in (None, "before", "after"):
            raise ValueError("drop must be 'before' or 'after'")
        fault = cls(**spec)
        re.compile(fault.path)
        return fault

    def matches(self, method: str, path: str) -> bool:
        """Count a request and say whether the fault applies to it."""
        if self.method and self.method.upper() != method:
            return False
        if not re.search(self.path, path):
            return False
        self.seen += 1
        if self.seen <= self.after or (self.count is not None and self.applied >= self.count):
            return False
        self.applied += 1
        return True


class Effects:
    """All faults that apply to one request, together."""

    def __init__(self, faults: list[Fault]) -> None:
        self.delay = 0.0
        self.hang = self.vmid_taken = self.no_worker = False
        self.refusal: Fault | None = None
        self.drops: set[str | None] = set()
        self.held = [fault.released for fault in faults if fault.held]
        self._faults = faults
        for fault in faults:
            self.delay += fault.delay
            self.hang |= fault.hang
            self.vmid_taken |= fault.vmid_taken
            self.no_worker |= fault.no_worker
            if self.refusal is None and fault.status is not None:
                self.refusal = fault
            self.drops.add(fault.drop)

    @property
    def orders(self) -> Orders:
        """For each task that the request starts, orders of its own."""
        orders = Orders()
        for fault in self._faults:
            orders.error = orders.error or fault.task_error
            orders.seconds = fault.task_seconds if fault.task_seconds is not None else orders.seconds
            orders.killed = orders.killed or fault.task_killed
            orders.until = fault.released if fault.task_held else orders.until
        return orders


class Faults:
    """The rules in force."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, spec: dict[str, Any]) -> None:
        self._faults.append(Fault.parse(spec))

    def release(self) -> None:
        """Let go on what is held."""
        for fault in self._faults:
            fault.released.set()

    def clear(self) -> None:
        self.release()
        self._faults.clear()

    def for_request(self, method: str, path: str) -> Effects:
        """Path is without ``/api2/json``."""
        return Effects([fault for fault in self._faults if fault.matches(method, path)])
