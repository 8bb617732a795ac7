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

import math
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from ..errors import CollectionError, LedgerUnavailable
from .database import Database, Row, Transaction
from .records import Holder, holder_from_text, holder_to_text

# How long one sleeps between two checks. Who waits longer than a second is skipped soon, see below.
_SHORTEST_SLEEP_SECONDS = 0.005
_LONGEST_SLEEP_SECONDS = 1.0
_LONGEST_SLEEP_OF_FIRST_SECONDS = 0.02

_PACE_SECONDS = 0.02
"""How long a holder is taken to need, at most, and as long as the queue has not moved. If those behind the first one
went by a slower pace, a queue that was slow once would stay slow: all would sleep while nobody holds the lease, and
that time makes the pace that they see.
"""

# Fractions of the lease's duration. A waiting process that does not renew its ticket within the first one is skipped
# until it does. A process that takes the lease later than the second one after its look prolongs it at once.
_TICKET_DURATION = 1 / 3
_LATE = 1 / 3
_TICKET_RENEWAL = 1 / 10

# The lease, if there ever was one, and then the tickets before this one. In one query: as long as the lease is free and
# the first in the queue does not know it, nobody decides.
_SELECT_AHEAD = """
    SELECT 1 AS part, token, holder, expires, 0 AS since, '' AS ticket FROM qemu_scheduler_leases WHERE cluster = ?
    UNION ALL
    SELECT 2, NULL, holder, expires, since, ticket FROM qemu_scheduler_queue
    WHERE cluster = ? AND (since, ticket) < (?, ?)
    ORDER BY part, since, ticket
"""
_TAKE = """
    INSERT INTO qemu_scheduler_leases (cluster, token, holder, acquired, expires) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (cluster) DO UPDATE
    SET token = excluded.token, holder = excluded.holder, acquired = excluded.acquired, expires = excluded.expires
    WHERE qemu_scheduler_leases.token = ?
        AND (qemu_scheduler_leases.expires <= ? OR qemu_scheduler_leases.holder = ?)
"""
_LEAVE_QUEUE = "DELETE FROM qemu_scheduler_queue WHERE cluster = ? AND (ticket = ? OR expires <= ?)"


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
        ended = "UPDATE qemu_scheduler_leases SET holder = NULL, expires = 0 WHERE cluster = ? AND token = ?"
        self.database.write(self.cluster, (ended, (self.cluster, self.token)))

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
    ticket = secrets.token_hex(8)
    place = _Place(database, cluster, holder_to_text(replace(holder, id=ticket)), duration, ticket)
    try:
        lease = place.look()
        while lease is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise place.waited_too_long(wait)
            time.sleep(min(left, place.pause()))
            lease = place.look()
    except BaseException:
        place.leave()
        raise
    return lease


_NO_LEASE = (1, 0, None, 0)
"""The row of _SELECT_AHEAD for a lease that nobody has ever taken."""


@dataclass
class _Place:
    """A scheduler's place in one cluster's queue.

    Attributes:
        holder: who takes the lease, as text; unlike that of any other place, also of the same process.
        duration: that of the lease, in seconds.
        since, ticket: the place in the queue; since is the ledger's time of the first look.
        renewed: when the ticket was last written.
        ahead: the number of schedulers before this one at its last look, found_ahead that at the first.
    """

    database: Database
    cluster: str
    holder: str
    duration: float
    ticket: str
    since: float = math.inf
    renewed: float = -math.inf
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
            wait = min(pace, _PACE_SECONDS) * self.ahead
            return min(max(wait / 2, _SHORTEST_SLEEP_SECONDS), _LONGEST_SLEEP_SECONDS)
        return min(max(pace / 10, _SHORTEST_SLEEP_SECONDS), _LONGEST_SLEEP_OF_FIRST_SECONDS)

    def look(self) -> Lease | None:
        """Take the lease and return it if it is free and nobody is ahead; else stay in the queue."""
        began = time.monotonic()
        now, rows = self.database.read(_SELECT_AHEAD, (self.cluster, self.cluster, self.since, self.ticket))
        lease = rows.pop(0) if rows and rows[0][0] == 1 else _NO_LEASE
        self.ahead = len(_skip_dead(rows, now))
        if self.since == math.inf:
            self.since, self.found_ahead = now, self.ahead
        _part, token, former, expires = lease[:4]
        taken: Lease | None = None
        if former == self.holder and now < expires:
            # The answer was lost when this place took it.
            taken = self._prolong(token, now)
        elif not self.ahead and not _skip_dead([lease], now):
            # Who has let it expire may have prolonged it since; who is dead has not.
            dead = former if now < expires else None
            take = (_TAKE, (self.cluster, token + 1, self.holder, now, now + self.duration, token, now, dead))
            # The ticket is gone as well if the lease has changed since, and is written again.
            self.renewed = -math.inf
            if self.database.write(self.cluster, take, (_LEAVE_QUEUE, (self.cluster, self.ticket, now))):
                # The lease counts from the look on; since then, this process may have been stopped, or have waited.
                taken = Lease(self.database, self.cluster, self.duration, token + 1)
                late = time.monotonic() - began > _LATE * self.duration
                if late:
                    taken = self._prolong(token + 1, now)
        if taken is None and time.monotonic() - self.renewed > _TICKET_RENEWAL * self.duration:
            self._queue_up(now)
        return taken

    def _prolong(self, token: int, now: float) -> Lease | None:
        """Return the lease that this place has taken, from now on, unless it has been lost meanwhile."""
        lease = Lease(self.database, self.cluster, self.duration, token)
        self.renewed = -math.inf
        try:
            with lease.transaction() as transaction:
                transaction.execute(_LEAVE_QUEUE, (self.cluster, self.ticket, now))
        except LeaseLost:
            return None
        return lease

    def leave(self) -> None:
        """Leave the queue, and end the lease if the answer was lost when it was taken. If that fails, both expire."""
        ended = "UPDATE qemu_scheduler_leases SET holder = NULL, expires = 0 WHERE cluster = ? AND holder = ?"
        with suppress(CollectionError):
            self.database.write(
                self.cluster, (_LEAVE_QUEUE, (self.cluster, self.ticket, 0)), (ended, (self.cluster, self.holder))
            )

    def waited_too_long(self, seconds: float) -> LedgerUnavailable:
        """Return the error that names the holder of the lease."""
        now, rows = self.database.read(
            "SELECT 1, token, holder, expires, acquired FROM qemu_scheduler_leases WHERE cluster = ?", (self.cluster,)
        )
        present = _skip_dead(rows, now)
        holder = str(holder_from_text(present[0][2])) if present else None
        whose = f"{holder} has held it for {now - present[0][4]:.0f} s" if present else "others have held it by turns"
        return LedgerUnavailable(
            f"Waited {seconds:g} s for the lease on scheduling for cluster '{self.cluster}': {whose}, "
            f"{self.ahead} more were waiting before this one (ledger: {self.database.location}).",
            cluster=self.cluster,
            location=self.database.location,
            holder=holder,
            waiting=self.ahead,
        )

    def _queue_up(self, now: float) -> None:
        """Write the ticket, or renew it. A ticket that was skipped and removed gets its old place back."""
        self.renewed = time.monotonic()
        ticket = (self.cluster, self.ticket, self.holder, self.since)
        queue_up = """
            INSERT INTO qemu_scheduler_queue (cluster, ticket, holder, since, expires) VALUES (?, ?, ?, ?, ?)
            ON CONFLICT (cluster, ticket) DO UPDATE SET expires = excluded.expires
        """
        self.database.write(self.cluster, (queue_up, (*ticket, now + _TICKET_DURATION * self.duration)))


def _skip_dead(rows: list[Row], now: float) -> list[Row]:
    """Return the rows of _SELECT_AHEAD that have not expired, from the first one whose process lives.

    Whether the processes behind that one live shows when it is their turn. If each of many that wait looked at all the
    others, they would leave the holder of the lease no CPU.
    """
    valid = [row for row in rows if now < row[3]]
    for position, row in enumerate(valid):
        if not holder_from_text(row[2]).is_dead():
            return valid[position:]
    return []
