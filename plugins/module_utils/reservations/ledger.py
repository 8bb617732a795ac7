# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger's operations, for schedulers and binders; and the fence, which binders pass before each write."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from ..errors import CollectionError
from ..model import Identity
from .database import Database, Row, Transaction
from .lease import Lease, acquire
from .records import COLUMNS, UNEXPIRED, Durations, Holder, Phase, Reservation, from_row, has_expired, to_row

_SELECT_RESERVATIONS = f"SELECT {COLUMNS} FROM qemu_scheduler_reservations WHERE cluster = ?"
_INSERT_RESERVATION = f"INSERT INTO qemu_scheduler_reservations ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_MOST_NAMES = 500
"""In one statement. Older versions of SQLite allow at most 999 parameters."""

_DELETE_RESERVATIONS = "DELETE FROM qemu_scheduler_reservations WHERE cluster = ?"


class AlreadyReserved(CollectionError):
    """A VMID or name is reserved by another process, or is requested twice.

    Cure: run again when that VM exists or its reservation has expired. The message names the VM and the process.
    """

    code = "AlreadyReserved"


class ReservationLost(CollectionError):
    """A reservation expired before the VM was created or started: the process was paused, or the machine suspended.

    Cure: run again. If the VM was not created, the same run decides about it again. If it was created, it stays
    stopped, and the next run starts it if it still fits.
    """

    code = "ReservationLost"

    @classmethod
    def of(cls, cluster: str, vmids: Collection[int]) -> ReservationLost:
        """Return the error about reservations that are no longer their holder's."""
        lost = sorted(vmids)
        return cls(
            f"The reservation of VMID {', '.join(map(str, lost))} has expired: this process was paused, or could not "
            "reach the ledger, for longer than a reservation lasts.",
            cluster=cluster,
            vmids=lost,
        )


@dataclass(frozen=True, eq=False)
class Ledger:
    """The reservations of all clusters, and the lease on each cluster's scheduling cycle. Threads may share one.

    All methods raise LedgerUnavailable when the database fails, and LedgerIncompatible when it is damaged.
    """

    database: Database
    durations: Durations

    @property
    def location(self) -> str:
        """Where the ledger is, for messages; without any password."""
        return self.database.location

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Reservations stay."""
        self.database.close()

    @contextmanager
    def scheduling_cycle(self, cluster: str, *, holder: Holder, wait: float = 120) -> Iterator[LeasedCycle]:
        """Wait up to `wait` seconds for the sole right to decide about `cluster`, and hold it until the block ends.

        Another process can take it over when Durations.lease passes without a call on the cycle. Raises
        LedgerUnavailable, which names the present holder, when `wait` runs out.
        """
        lease = acquire(self.database, cluster, holder, wait=wait, duration=self.durations.lease)
        try:
            yield LeasedCycle(lease, holder, self.durations)
        except BaseException:
            # Raise the original error even if the lease cannot be released: it expires by itself.
            with suppress(CollectionError):
                lease.release()
            raise
        lease.release()

    def reservations(self, cluster: str) -> list[Reservation]:
        """Return the present reservations, by VMID. Others may reserve more right after: decide within a cycle."""
        now, rows = self.database.read(f"{_SELECT_RESERVATIONS} ORDER BY vmid", (cluster,))
        return _read((row for row in rows if not has_expired(row, now)), now, self.durations)[0]

    def mark_binding(self, cluster: str, vmids: Collection[int], holder: Holder) -> None:
        """Record that the create calls are about to be sent. From now on the reservations outlive their holder.

        If one of them is no longer the holder's, raises ReservationLost and marks none: then nothing must be sent.
        """
        with self.database.transaction(cluster) as transaction:
            expires = transaction.now + self.durations.reservation
            changed = _update(transaction, cluster, vmids, holder, expires, phase="binding")
            lost = set(vmids) - changed
            if lost:
                raise ReservationLost.of(cluster, lost)

    def renew(
        self, cluster: str, vmids: Collection[int], holder: Holder, *, until: float | None = None
    ) -> frozenset[int]:
        """Prolong reservations to `until`, by default to Durations.reservation from now. Call it every
        Durations.renewal.

        Returns the VMIDs whose reservation is still the holder's; the others were confirmed, or have expired and were
        dropped. An expired reservation can still be renewed until a scheduling cycle drops it.
        """
        with self.database.transaction(cluster) as transaction:
            expires = transaction.now + self.durations.reservation if until is None else until
            return _update(transaction, cluster, vmids, holder, expires)

    def mark_created(self, cluster: str, vmids: Collection[int], holder: Holder) -> None:
        """Record that the create tasks succeeded: the reservations count for Durations.created more, or until they are
        confirmed.
        """
        with self.database.transaction(cluster) as transaction:
            expires = transaction.now + self.durations.created
            _update(transaction, cluster, vmids, holder, expires, phase="created")

    def note_birth(
        self, cluster: str, vmid: int, holder: Holder, *, task: str = "", identity: Identity | None = None
    ) -> None:
        """Keep what is known by now of the VM that the holder creates: the UPID of the task, and its identity."""
        with self.database.transaction(cluster) as transaction:
            of_holder = "cluster = ? AND vmid = ? AND holder_id = ?"
            key = (cluster, vmid, holder.id)
            select = f"SELECT {COLUMNS} FROM qemu_scheduler_reservations WHERE {of_holder}"
            for row in transaction.execute(select, key).fetchall():
                found = from_row(row)
                known = replace(found, task=task or found.task, identity=identity or found.identity)
                resources = to_row(known)[-1]
                transaction.execute(
                    f"UPDATE qemu_scheduler_reservations SET resources = ? WHERE {of_holder}", (resources, *key)
                )

    def release(self, cluster: str, vmids: Collection[int], holder: Holder) -> None:
        """Drop those of the reservations that are the holder's; for VMs that were not created."""
        with self.database.transaction(cluster) as transaction:
            _delete(transaction, cluster, vmids, holder)

    def forget(self, cluster: str, vmids: Collection[int]) -> None:
        """Drop reservations of created VMs, regardless of their holder: the cluster does not have these VMs."""
        with self.database.transaction(cluster) as transaction:
            transaction.execute(f"{_DELETE_RESERVATIONS} AND phase = 'created' AND {_among(vmids)}", (cluster,))

    def endpoint(self, host: str, port: int) -> tuple[str, frozenset[str]] | None:
        """Return the identity of the cluster that was last read from this address, and the names of its nodes."""
        _now, rows = self.database.read(
            "SELECT cluster, node_names FROM qemu_scheduler_endpoints WHERE host = ? AND port = ?", (host, port)
        )
        # A row that cannot be parsed is ignored and read from the cluster again.
        with suppress(ValueError, TypeError, RecursionError):
            return (rows[0][0], frozenset(json.loads(rows[0][1]))) if rows else None
        return None

    def remember_endpoint(self, host: str, port: int, cluster: str, node_names: Iterable[str]) -> None:
        """Store for later runs which cluster is read from this address.

        Addresses of another cluster with the same node names are forgotten: that cluster may have been reinstalled.
        """
        nodes = json.dumps(sorted(node_names))
        with self.database.transaction(cluster) as transaction:
            transaction.execute(
                "DELETE FROM qemu_scheduler_endpoints WHERE node_names = ? AND cluster <> ?", (nodes, cluster)
            )
            transaction.execute(
                """
                INSERT INTO qemu_scheduler_endpoints (host, port, cluster, node_names) VALUES (?, ?, ?, ?)
                ON CONFLICT (host, port) DO UPDATE SET cluster = excluded.cluster, node_names = excluded.node_names
                """,
                (host, port, cluster, nodes),
            )


@dataclass(frozen=True, eq=False)
class LeasedCycle:
    """The right to decide about one cluster. Each call checks and prolongs its lease, or raises LeaseLost."""

    lease: Lease
    holder: Holder
    durations: Durations

    def reservations(self) -> list[Reservation]:
        """Drop reservations that have expired or whose holder died before it sent anything to Proxmox; return the rest,
        by VMID.
        """
        with self.lease.transaction() as transaction:
            return _drop_ended(transaction, self.lease.cluster, self.durations)

    def reserve(self, reservations: Sequence[Reservation]) -> list[Reservation]:
        """Reserve all or none, and return them with their cluster, holder, created and expires.

        A forsaken reservation in the phase C(binding) with the same VMID and name is replaced, except that of a move,
        which may still be running. The reservation of a move replaces that of the guest's creation, or of its last
        move, when this is complete. Raises AlreadyReserved when a VMID or a name is reserved otherwise.
        """
        cluster = self.lease.cluster
        with self.lease.transaction() as transaction:
            present = _drop_ended(transaction, cluster, self.durations, rivals_of=reservations)
            made = [
                replace(
                    reservation,
                    cluster=cluster,
                    holder=self.holder,
                    created=transaction.now,
                    expires=transaction.now + self.durations.reservation,
                )
                for reservation in reservations
            ]
            for reservation in made:
                former = _find_former(reservation, present, transaction.now)
                if former is not None:
                    _delete(transaction, cluster, [former.vmid])
                    present.remove(former)
                transaction.execute(_INSERT_RESERVATION, to_row(reservation))
                present.append(reservation)
            return made

    def confirm(self, reservations: Iterable[Reservation]) -> bool:
        """Drop reservations that this cycle has read, regardless of their holder: the snapshot shows their VMs with
        their real names and sizes, or shows that there are none.

        Returns False if one was renewed since, and keeps that: its holder was paused, goes on now, and may create its
        VM at any time. Read the reservations and the cluster again then, before anything is decided.
        """
        as_read, unchanged = f"{_DELETE_RESERVATIONS} AND vmid = ? AND expires = ?", True
        with self.lease.transaction() as transaction:
            for each in reservations:
                dropped = transaction.execute(as_read, (self.lease.cluster, each.vmid, each.expires)).rowcount
                unchanged = unchanged and dropped > 0
        return unchanged


def _drop_ended(
    transaction: Transaction, cluster: str, durations: Durations, *, rivals_of: Sequence[Reservation] | None = None
) -> list[Reservation]:
    """Drop the reservations that no longer count and return the rest, by VMID; with rivals_of, at least of those with
    the VMID or the name of one of these, and of no others if these are few, as reading a reservation takes long.
    """
    condition, names = "", []
    if rivals_of is not None and len(rivals_of) <= _MOST_NAMES:
        names = [each.key for each in rivals_of]
        in_names = f"name IN ({', '.join(['NULL', *'?' * len(names)])})"
        condition = f" AND ({_among([each.vmid for each in rivals_of])} OR {in_names})"
    rows = transaction.execute(
        f"SELECT {COLUMNS}, {UNEXPIRED} FROM qemu_scheduler_reservations WHERE cluster = ?{condition} ORDER BY vmid",
        (transaction.now, cluster, *names),
    ).fetchall()
    if not all(row[-1] for row in rows):
        expired = f"{_DELETE_RESERVATIONS}{condition} AND NOT {UNEXPIRED}"
        transaction.execute(expired, (cluster, *names, transaction.now))
    counting, ended = _read((row[:-1] for row in rows if row[-1]), transaction.now, durations)
    _delete(transaction, cluster, ended)
    return counting


def _read(rows: Iterable[Row], now: float, durations: Durations) -> tuple[list[Reservation], list[int]]:
    """Return the reservations that count of rows that have not expired, those in the phase C(binding) with quiet,
    expired and forsaken, and the VMIDs of those whose holder has died too early.

    If the holder died in the phase C(reserved), no VM will be created. In later phases the VM may exist or still be
    created, and only the reservation shows its sizes: it counts until it is confirmed or expires. A snapshot of the
    cluster that is read after these rows shows everything that a dead holder has sent.
    """
    # Each process is looked at once: it may hold many reservations, and each look reads a file.
    is_dead = functools.cache(Holder.is_dead)
    counting, ended = [], []
    for row in rows:
        found = from_row(row)
        dead = found.phase != "created" and found.holder is not None and is_dead(found.holder)
        if dead and found.phase == "reserved":
            ended.append(found.vmid)
            continue
        if found.phase == "binding":
            quiet, expired = max(now - (found.expires - durations.reservation), 0.0), now >= found.expires
            found = replace(found, quiet=quiet, expired=expired, forsaken=expired or dead)
        counting.append(found)
    return counting, ended


def _find_former(wanted: Reservation, present: Iterable[Reservation], now: float) -> Reservation | None:
    """Return the reservation that `wanted` replaces, if any: that of the same VM by a dead holder or, for a move, what
    is complete. Raises AlreadyReserved.
    """
    former = None
    for other in present:
        same_vmid, same_name = other.vmid == wanted.vmid, other.key == wanted.key
        if not (same_vmid or same_name):
            continue
        orphan = other.phase == "binding" and other.forsaken and not other.source
        if same_vmid and ((orphan and (same_name or wanted.source)) or (wanted.source and other.phase == "created")):
            former = other
            continue
        what = f"VMID {other.vmid}" if same_vmid else f"the name '{other.name}'"
        raise AlreadyReserved(
            f"Cannot reserve {what} for VM '{wanted.name}' on cluster '{other.cluster}': it is reserved for VM "
            f"'{other.name}' ({other.vmid}) by {other.holder}, for {max(other.expires - now, 0):.0f} s at most.",
            cluster=other.cluster,
            vmid=other.vmid,
            name=other.name,
            holder=str(other.holder),
        )
    return former


def _update(
    transaction: Transaction,
    cluster: str,
    vmids: Collection[int],
    holder: Holder,
    expires: float,
    *,
    phase: Phase | None = None,
) -> frozenset[int]:
    """Change those of the reservations that are the holder's, and return their VMIDs."""
    mine = transaction.execute(
        f"SELECT vmid FROM qemu_scheduler_reservations WHERE cluster = ? AND holder_id = ? AND {_among(vmids)}",
        (cluster, holder.id),
    ).fetchall()
    transaction.execute(
        "UPDATE qemu_scheduler_reservations SET expires = ?, phase = COALESCE(?, phase) "
        f"WHERE cluster = ? AND holder_id = ? AND {_among(vmids)}",
        (expires, phase, cluster, holder.id),
    )
    return frozenset(vmid for (vmid,) in mine)


def _delete(transaction: Transaction, cluster: str, vmids: Collection[int], holder: Holder | None = None) -> None:
    """Delete reservations; only those of `holder`, if given."""
    if not vmids:
        return
    condition, parameters = ("", (cluster,)) if holder is None else (" AND holder_id = ?", (cluster, holder.id))
    transaction.execute(f"{_DELETE_RESERVATIONS}{condition} AND {_among(vmids)}", parameters)


def _among(vmids: Collection[int]) -> str:
    # Not parameters: older versions of SQLite allow at most 999. `NULL` keeps an empty list valid.
    return f"vmid IN ({', '.join(['NULL', *(str(int(vmid)) for vmid in sorted(vmids))])})"


PROOF_SECONDS = 1.0
"""How long a proof is valid. Normally a request follows its proof within milliseconds; after a longer pause the ledger
is asked again, which takes one transaction and no request to Proxmox. The clock of a virtual machine stops while the
machine is paused, so a longer period would not be safe.
"""

Clocks = Callable[[], tuple[float, ...]]


def local_clocks() -> tuple[float, ...]:
    """Return the time of a clock that also runs while the machine is suspended, and of the wall clock, which a ledger
    in SQLite uses.
    """
    # Only Linux has CLOCK_BOOTTIME; where it is missing, the monotonic clock runs during a suspension as well.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)), time.time()


@dataclass(eq=False)
class Fence:
    """Proves, right before a write, that a reservation still belongs to its holder. Not safe for several threads.

    A process may be paused between any two of its steps: stopped by a signal, or suspended with its machine. When it
    continues, its reservation may have expired, and another process may have reserved the resources or the name.
    Proxmox VE has no conditional write, so the writer checks its reservation right before each write, and decides again
    if it is lost.
    """

    ledger: Ledger
    cluster: str
    vmid: int
    holder: Holder
    clocks: Clocks = local_clocks
    _proven: tuple[float, ...] = field(default=(), init=False)

    def mark_binding(self) -> None:
        """Record that the VM is about to be created; raises as Ledger.mark_binding does."""
        asked = self.clocks()
        self.ledger.mark_binding(self.cluster, [self.vmid], self.holder)
        self._proven = asked

    def note_birth(self, *, task: str = "", identity: Identity | None = None) -> None:
        """Keep what is known of the VM. Without it, another run knows the VM by less; so a failure does no harm."""
        with suppress(CollectionError):
            self.ledger.note_birth(self.cluster, self.vmid, self.holder, task=task, identity=identity)

    def check(self) -> None:
        """Raise ReservationLost unless the reservation is still the holder's. Raises LedgerUnavailable if unknown."""
        asked = self.clocks()
        if self._proven and all(0 <= now - then < PROOF_SECONDS for now, then in zip(asked, self._proven, strict=True)):
            return
        if self.vmid not in self.ledger.renew(self.cluster, [self.vmid], self.holder):
            raise ReservationLost.of(self.cluster, [self.vmid])
        self._proven = asked
