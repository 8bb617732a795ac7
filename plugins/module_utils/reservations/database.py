# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The database of the ledger: its interface and its tables.

Its users write SQL that both SQLite (from 3.24, which enterprise distributions still ship) and PostgreSQL understand,
with C(?) for parameters. The clock belongs to the database, so that schedulers on several hosts agree on what has
expired.
"""

from __future__ import annotations

import contextlib
import threading
import typing as t
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from ..errors import CollectionError, LedgerIncompatible

Clock = Callable[[], float]
Row = tuple[t.Any, ...]
Parameters = Sequence["str | int | float | None"]
Statement = tuple[str, Parameters]


class Cursor(t.Protocol):
    """What both drivers return for a statement."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement changed."""

    def fetchall(self) -> list[t.Any]:
        """Return the rows that the statement found."""


class Execute(t.Protocol):
    """Runs one statement."""

    def __call__(self, sql: str, parameters: Parameters = (), /) -> Cursor: ...


@dataclass(frozen=True)
class Transaction:
    """Statements that take effect together. now is the ledger's time at which it began, in seconds since the epoch."""

    execute: Execute
    now: float


class Database(ABC):
    """An open database. Threads may share it; they take turns.

    Attributes:
        location: where it is, for messages; without any password.
    """

    _execute: Execute

    def __init__(self, location: str) -> None:
        self.location = location
        self._turn = threading.RLock()

    @contextmanager
    def transaction(self, cluster: str) -> Iterator[Transaction]:
        """Open a transaction for one cluster; no other transaction for that cluster runs at the same time.

        It is rolled back if the block raises. Raises LedgerUnavailable or LedgerIncompatible.
        """
        with self._turn, self._translate_errors():
            try:
                yield Transaction(self._execute, self._begin(cluster))
                self._execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def write(self, cluster: str, *statements: Statement) -> int:
        """Run statements in a transaction that needs no answer before its end, and return how many rows the first of
        them changed.
        """
        with self.transaction(cluster) as transaction:
            changed = [transaction.execute(sql, parameters).rowcount for sql, parameters in statements]
            return changed[0]

    @abstractmethod
    def read(self, sql: str, parameters: Parameters = ()) -> tuple[float, list[Row]]:
        """Return the present time and the rows that one query finds, without waiting for another transaction."""

    def _roll_back(self) -> None:
        # Raise the cause, not the failed rollback of a broken connection: the database rolls back by itself.
        with contextlib.suppress(CollectionError), self._translate_errors():
            self._execute("ROLLBACK")

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def _begin(self, cluster: str) -> float:
        """Begin a transaction that excludes others for the same cluster, and return the present time.

        Raises LedgerIncompatible if another version of the collection has changed the tables meanwhile.
        """

    @abstractmethod
    def _translate_errors(self) -> AbstractContextManager[None]:
        """Return a context in which the driver's errors become LedgerUnavailable or LedgerIncompatible."""


# Names of tables have a prefix, as the database may contain other tables too.
VERSION = 1

VERSION_TABLE = "qemu_scheduler_schema"

SELECT_VERSION = f"SELECT version FROM {VERSION_TABLE}"

CREATE_TABLES = (
    f"CREATE TABLE {VERSION_TABLE} (version BIGINT NOT NULL)",
    f"INSERT INTO {VERSION_TABLE} (version) VALUES ({VERSION})",
    """
    CREATE TABLE qemu_scheduler_leases (
        cluster TEXT PRIMARY KEY,
        token BIGINT NOT NULL,
        holder TEXT,
        acquired DOUBLE PRECISION NOT NULL,
        expires DOUBLE PRECISION NOT NULL
    )
    """,
    """
    CREATE TABLE qemu_scheduler_queue (
        cluster TEXT NOT NULL,
        ticket TEXT NOT NULL,
        holder TEXT NOT NULL,
        since DOUBLE PRECISION NOT NULL,
        expires DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (cluster, ticket)
    )
    """,
    """
    CREATE TABLE qemu_scheduler_reservations (
        cluster TEXT NOT NULL,
        vmid BIGINT NOT NULL,
        name TEXT NOT NULL,
        holder_id TEXT NOT NULL,
        holder TEXT NOT NULL,
        phase TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        expires DOUBLE PRECISION NOT NULL,
        resources TEXT NOT NULL,
        PRIMARY KEY (cluster, vmid),
        UNIQUE (cluster, name)
    )
    """,
    """
    CREATE TABLE qemu_scheduler_endpoints (
        host TEXT NOT NULL,
        port BIGINT NOT NULL,
        cluster TEXT NOT NULL,
        node_names TEXT NOT NULL,
        PRIMARY KEY (host, port)
    )
    """,
)


def check_version(rows: Sequence[Row], location: str) -> None:
    """Raise LedgerIncompatible unless these rows of the version table are those of this version."""
    versions = [row[0] for row in rows]
    if versions == [VERSION]:
        return
    found = "no single version" if len(versions) != 1 else f"version {versions[0]}"
    age = ""
    if len(versions) == 1 and isinstance(versions[0], int):
        age = ", which is newer" if versions[0] > VERSION else ", which is older"
    raise LedgerIncompatible(
        f"The ledger of reservations {location} has a schema of {found}{age}; this collection supports "
        f"version {VERSION}.",
        location=location,
        expected=VERSION,
        found=versions,
    )
