# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lease on a cluster's scheduling cycle, and the queue of those who wait for it.

The lease is one row per cluster with the holder, an expiry and a token that grows with each holder. A holder that
hangs loses the lease when it expires, and everything that it still tries to write fails, because its token is no longer
the current one (fencing). The death of a holder on this host is noticed at once; that of a holder elsewhere, when the
lease expires. Locks that the system or the server releases when a process ends (a file lock, PostgreSQL's session lock)
would notice deaths sooner, but never a holder that hangs, so the row would still be needed. They would also differ
between the databases, and not survive a connection pooler.

A process that finds the lease taken queues up; the queue is served in order of arrival. Each checks again after half of
the time that it probably still has to wait, so that many that wait leave the holder the CPU.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from ..errors import CollectionError, LedgerUnavailable
from .database import Database, Row, Transaction
from .records import Holder, holder_from_text, holder_to_text

# How long one sleeps between two checks. Who waits longer than a second is skipped soon, see below.
_SHORTEST_SLEEP_SECONDS = 0.005
_LONGEST_SLEEP_SECONDS = 1.0
_LONGEST_SLEEP_OF_FIRST_SECONDS = 0.02

_PACE_SECONDS = 0.02
"""How long a holder is taken to need, as long as the queue has not moved."""

# Fractions of the lease's duration. A waiting process that does not renew its ticket within the first one is skipped
# until it does.
_TICKET_DURATION = 1 / 3
_TICKET_RENEWAL = 1 / 10

_LEAVE_QUEUE = "DELETE FROM qemu_scheduler_queue WHERE cluster = ? AND (ticket = ? OR expires <= ?)"
_SELECT_LEASE = "SELECT token, holder, acquired, expires FROM qemu_scheduler_leases WHERE cluster = ?"


class LeaseLost(LedgerUnavailable):
    """The scheduling cycle took longer than the lease, and another process has taken over. Nothing was written.

    Cure: run again. The cluster took longer to respond than the lease lasts, which is 15 s.
    """

    code = "LeaseLost"


@dataclass(frozen=True)
class Lease:
    """The lease on one cluster's scheduling cycle. It lasts duration seconds from its last transaction on."""

    database: Database
    cluster: str
    duration: float
    token: int

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a transaction that prolongs the lease. Raises LeaseLost if another process has taken it over."""
        # The inner transaction rolls back, whatever ends the block.
        # pylint: disable-next=contextmanager-generator-missing-cleanup
        with self.database.transaction(self.cluster) as transaction:
            prolonged = transaction.execute(
                "UPDATE qemu_scheduler_leases SET expires = ? WHERE cluster = ? AND token = ? AND holder IS NOT NULL",
                (transaction.now + self.duration, self.cluster, self.token),
            )
            if not prolonged.rowcount:
                raise self._loss(transaction)
            yield transaction

    def release(self) -> None:
        """End the lease, if it has not been lost."""
        with self.database.transaction(self.cluster) as transaction:
            transaction.execute(
                "UPDATE qemu_scheduler_leases SET holder = NULL, expires = 0 WHERE cluster = ? AND token = ?",
                (self.cluster, self.token),
            )

    def _loss(self, transaction: Transaction) -> LeaseLost:
        rows = transaction.execute(
            "SELECT holder FROM qemu_scheduler_leases WHERE cluster = ?", (self.cluster,)
        ).fetchall()
        successor = f"{holder_from_text(rows[0][0])} has taken it over" if rows and rows[0][0] else "it has ended"
        return LeaseLost(
            f"The lease on scheduling for cluster '{self.cluster}' is lost: {successor}. Nothing was reserved.",
            cluster=self.cluster,
        )


def acquire(database: Database, cluster: str, holder: Holder, *, wait: float, duration: float) -> Lease:
    """Wait for the lease on `cluster` and return it. wait and duration are in seconds.

    Raises LedgerUnavailable when `wait` has run out.
    """
    deadline = time.monotonic() + wait
    place = _Place(database, cluster, holder, duration)
    token = place.arrive()
    try:
        while token is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise place.waited_too_long(wait)
            time.sleep(min(left, place.pause()))
            token = place.look()
    except BaseException:
        place.leave()
        raise
    return Lease(database, cluster, duration, token)


@dataclass
class _Place:
    """A scheduler's place in one cluster's queue.

    Attributes:
        duration: that of the lease, in seconds.
        since, ticket: the place in the queue.
        renewed: when the ticket was last written.
        ahead: the number of schedulers before this one at its last check, found_ahead that at the first.
    """

    database: Database
    cluster: str
    holder: Holder
    duration: float
    ticket: str = field(default_factory=lambda: secrets.token_hex(8))
    since: float = 0.0
    renewed: float = 0.0
    arrived: float = field(default_factory=time.monotonic)
    ahead: int = 0
    found_ahead: int = 0

    def pause(self) -> float:
        """Return how long to sleep until the next look: half the time until its turn, by the pace of the queue so far.

        The first in the queue looks ten times as often as the lease changes hands.
        """
        moved = self.found_ahead - self.ahead
        pace = (time.monotonic() - self.arrived) / moved if moved > 0 else _PACE_SECONDS
        if self.ahead:
            return min(max(pace * self.ahead / 2, _SHORTEST_SLEEP_SECONDS), _LONGEST_SLEEP_SECONDS)
        return min(max(pace / 10, _SHORTEST_SLEEP_SECONDS), _LONGEST_SLEEP_OF_FIRST_SECONDS)

    def arrive(self) -> int | None:
        """Take the lease and return its token if it is free and nobody waits; else queue up and return None."""
        with self.database.transaction(self.cluster) as transaction:
            waiting = transaction.execute(
                "SELECT holder, expires FROM qemu_scheduler_queue WHERE cluster = ? ORDER BY since, ticket",
                (self.cluster,),
            ).fetchall()
            self.ahead = self.found_ahead = _count_ahead(waiting, transaction.now) if waiting else 0
            token = None if self.ahead else self._take(transaction)
            if token is None:
                self.since = transaction.now
                self._queue_up(transaction)
            return token

    def look(self) -> int | None:
        """Take the lease and return its token if it is free and nobody is ahead; else return None."""
        if time.monotonic() - self.renewed > _TICKET_RENEWAL * self.duration:
            with self.database.transaction(self.cluster) as transaction:
                self._queue_up(transaction)
        now, before = self.database.read(
            """
            SELECT holder, expires FROM qemu_scheduler_queue WHERE cluster = ? AND (since, ticket) < (?, ?)
            ORDER BY since, ticket
            """,
            (self.cluster, self.since, self.ticket),
        )
        self.ahead = _count_ahead(before, now)
        if self.ahead:
            return None
        now, lease = self.database.read(_SELECT_LEASE, (self.cluster,))
        if _present_holder(lease, now) is not None:
            return None
        with self.database.transaction(self.cluster) as transaction:
            return self._take(transaction)

    def leave(self) -> None:
        """Leave the queue. If that fails, the ticket expires."""
        with suppress(CollectionError), self.database.transaction(self.cluster) as transaction:
            transaction.execute(_LEAVE_QUEUE, (self.cluster, self.ticket, transaction.now))

    def waited_too_long(self, seconds: float) -> LedgerUnavailable:
        """Return the error that names the holder of the lease."""
        now, lease = self.database.read(_SELECT_LEASE, (self.cluster,))
        holder = _present_holder(lease, now)
        whose = f"{holder} has held it for {now - lease[0][2]:.0f} s" if holder else "others have held it by turns"
        return LedgerUnavailable(
            f"Waited {seconds:g} s for the lease on scheduling for cluster '{self.cluster}': {whose}, "
            f"{self.ahead} more were waiting before this one (ledger: {self.database.location}).",
            cluster=self.cluster,
            location=self.database.location,
            holder=str(holder) if holder else None,
            waiting=self.ahead,
        )

    def _take(self, transaction: Transaction) -> int | None:
        """Take the lease and return its token; None while a live process holds it."""
        lease = transaction.execute(_SELECT_LEASE, (self.cluster,)).fetchall()
        if _present_holder(lease, transaction.now) is not None:
            return None
        token: int = lease[0][0] + 1 if lease else 1
        transaction.execute(
            """
            INSERT INTO qemu_scheduler_leases (cluster, token, holder, acquired, expires) VALUES (?, ?, ?, ?, ?)
            ON CONFLICT (cluster) DO UPDATE
            SET token = excluded.token, holder = excluded.holder,
                acquired = excluded.acquired, expires = excluded.expires
            """,
            (
                self.cluster,
                token,
                holder_to_text(self.holder),
                transaction.now,
                transaction.now + self.duration,
            ),
        )
        transaction.execute(_LEAVE_QUEUE, (self.cluster, self.ticket, transaction.now))
        return token

    def _queue_up(self, transaction: Transaction) -> None:
        """Write the ticket, or renew it. A ticket that was skipped and removed gets its old place back."""
        self.renewed = time.monotonic()
        transaction.execute(
            """
            INSERT INTO qemu_scheduler_queue (cluster, ticket, holder, since, expires) VALUES (?, ?, ?, ?, ?)
            ON CONFLICT (cluster, ticket) DO UPDATE SET expires = excluded.expires
            """,
            (
                self.cluster,
                self.ticket,
                holder_to_text(self.holder),
                self.since,
                transaction.now + _TICKET_DURATION * self.duration,
            ),
        )


def _present_holder(lease: list[Row], now: float) -> Holder | None:
    """Return the live holder of the lease that _SELECT_LEASE has found; None if the lease can be taken."""
    for _token, text, _acquired, expires in lease:
        if text is not None and now < expires:
            holder = holder_from_text(text)
            return None if holder.is_dead() else holder
    return None


def _count_ahead(rows: list[Row], now: float) -> int:
    """Count the tickets (holder, expires), in order of arrival, from the first one whose process lives.

    Whether the processes behind that one live shows when it is their turn. If each of many that wait looked at all the
    others, they would leave the holder of the lease no CPU.
    """
    waiting = [holder for holder, expires in rows if now < expires]
    for position, holder in enumerate(waiting):
        if not holder_from_text(holder).is_dead():
            return len(waiting) - position
    return 0
