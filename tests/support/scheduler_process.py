# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A scheduler in its own process, whose steps the test controls. Run with the number of an open socket."""

from __future__ import annotations

import os
import signal
import sys
import typing as t
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.connection import Connection

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import CollectionError
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import (
    Durations,
    Holder,
    LeasedCycle,
    Ledger,
    Reservation,
    open_ledger,
)

from .dying import end_with_parent


class Scheduler:
    """The steps of a scheduling and a binding cycle."""

    _ledger: Ledger
    _holder: Holder
    _cycle: LeasedCycle

    def __init__(self) -> None:
        self._block = ExitStack()

    def open(self, where: str, durations: Durations | None, elsewhere: bool) -> None:
        self._ledger = open_ledger(where, durations=durations)
        self._holder = Holder.new()
        if elsewhere:
            self._holder = replace(self._holder, host="elsewhere", space="another boot")

    def enter(self, cluster: str, *, wait: float = 30) -> None:
        self._cycle = self._block.enter_context(self._ledger.scheduling_cycle(cluster, holder=self._holder, wait=wait))

    def reservations(self) -> list[Reservation]:
        return self._cycle.reservations()

    def reserve(self, *reservations: Reservation) -> list[Reservation]:
        return self._cycle.reserve(reservations)

    def leave(self) -> None:
        self._block.close()

    def mark_binding(self, cluster: str, *vmids: int) -> None:
        self._ledger.mark_binding(cluster, vmids, self._holder)

    def stop_within_a_write(self, cluster: str) -> None:
        with self._ledger.database.transaction(cluster):
            os.kill(os.getpid(), signal.SIGSTOP)

    def mark_created(self, cluster: str, *vmids: int) -> None:
        self._ledger.mark_created(cluster, vmids, self._holder)


def main(connection: Connection) -> None:
    scheduler = Scheduler()
    while True:
        try:
            step, arguments, options = connection.recv()
        except EOFError:
            return
        outcome: t.Any
        try:
            outcome = getattr(scheduler, step)(*arguments, **options)
        except CollectionError as exc:
            outcome = exc
        connection.send(outcome)


if __name__ == "__main__":
    end_with_parent()
    main(Connection(int(sys.argv[1])))
