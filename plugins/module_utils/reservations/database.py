# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The database of the ledger: its interface, its tables, and how the one that the user names is opened.

Its users write SQL that both SQLite (from 3.24, which enterprise distributions still ship) and PostgreSQL understand,
with C(?) for parameters. The clock belongs to the database, so that schedulers on several hosts agree on what has
expired.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
import typing as t
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import unquote

from ..errors import CollectionError, InvalidRequest, LedgerIncompatible, LedgerUnavailable

Clock = Callable[[], float]
Row = tuple[t.Any, ...]
Parameters = Sequence["str | int | float | None"]


class Cursor(t.Protocol):
    """What both drivers return for a statement."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement changed."""

    def fetchall(self) -> list[t.Any]:
        """Return the rows that the statement found."""


class Transaction:
    """Statements that take effect together. now is the ledger's time at which it began, in seconds since the epoch."""

    def __init__(self, execute: Callable[[str, Parameters], Cursor], now: float) -> None:
        self._execute = execute
        self.now = now

    def fetch(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Return the rows that a query finds."""
        return self._execute(sql, parameters).fetchall()

    def change(self, sql: str, parameters: Parameters = ()) -> int:
        """Return how many rows a statement has changed."""
        return self._execute(sql, parameters).rowcount


class Database(ABC):
    """An open database. Threads may share it; they take turns.

    Attributes:
        location: where it is, for messages; without any password.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        self._turn = threading.RLock()

    @contextmanager
    def transaction(self, cluster: str) -> Iterator[Transaction]:
        """Open a transaction for one cluster; no other transaction for that cluster runs at the same time.

        It is rolled back if the block raises. Raises LedgerUnavailable or LedgerIncompatible.
        """
        with self._turn, self._translated():
            try:
                yield Transaction(self._execute, self._begin(cluster))
                self._execute("COMMIT", ())
            except BaseException:
                # Raise the cause, not the failed rollback of a broken connection: the database rolls back by itself.
                with contextlib.suppress(CollectionError), self._translated():
                    self._execute("ROLLBACK", ())
                raise

    def read(self, sql: str, parameters: Parameters = ()) -> tuple[float, list[Row]]:
        """Return the present time and the rows that one query finds, without waiting for another transaction."""
        with self._turn, self._translated():
            return self._read(sql, parameters)

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def _begin(self, cluster: str) -> float:
        """Begin a transaction that excludes others for the same cluster, and return the present time."""

    @abstractmethod
    def _execute(self, sql: str, parameters: Parameters) -> Cursor:
        """Run one statement."""

    @abstractmethod
    def _read(self, sql: str, parameters: Parameters) -> tuple[float, list[Row]]:
        """Run one query outside of a transaction."""

    @abstractmethod
    def _translated(self) -> AbstractContextManager[None]:
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


# --- which database the option C(reservations) names ---

_POSTGRESQL_SCHEMES = ("postgresql://", "postgres://")
_PATHS = ("/", "~", "sqlite:///")
_SCHEME = re.compile(r"\A[\w+.-]*:/+")
_PASSWORD_PARAMETER = re.compile(r"password\s*=\s*(?:'(?P<quoted>[^']*)'|(?P<plain>[^&\s]*))", re.IGNORECASE)


def passwords_in(where: str | None) -> set[str]:
    """The passwords in the URL of a ledger, both as written and decoded.

    The URL may be misspelt: any text between a colon and a later C(@) may be a password.
    """
    if where is None or where.startswith(_PATHS):
        return set()
    written = {match.group("quoted") or match.group("plain") for match in _PASSWORD_PARAMETER.finditer(where)}
    for account in (_SCHEME.sub("", where), where if "://" not in where else ""):
        _user, _colon, rest = account.partition(":")
        written |= {rest[: match.start()] for match in re.finditer("@", rest)}
    return {text for password in written if password for text in (password, unquote(password))}


def open_database(where: str | None, clock: Clock | None) -> Database:
    """Open the database that the option C(reservations) names; see C(open_ledger)."""
    from .sqlite import SQLiteDatabase

    if where is None or where == "default":
        return SQLiteDatabase(_default_path(), clock or time.time)
    if where == "none":
        return SQLiteDatabase(None, clock or time.time)
    if where.startswith(_POSTGRESQL_SCHEMES):
        from .postgresql import PostgreSQLDatabase

        return PostgreSQLDatabase(where, clock)
    # Some write three slashes before an absolute path and some four.
    if where.startswith("sqlite:///"):
        where = "/" + unquote(where.removeprefix("sqlite://")).lstrip("/")
    path = _expanded(Path(where)) if where.startswith("~") else Path(where)
    if not path.is_absolute() or "\0" in where:
        # A relative path depends on the working directory, and processes with different ledgers share nothing.
        scheme, separator, _secret = where.replace("\0", "?").partition("://")
        shown = f"{scheme}{separator}..." if separator else scheme
        for password in sorted(passwords_in(where), key=len, reverse=True):
            shown = shown.replace(password, "...")
        raise InvalidRequest(
            f"reservations is '{shown}': expected default, none, an absolute path, sqlite:///path or "
            "postgresql://user@host/database."
        )
    return SQLiteDatabase(path, clock or time.time)


def _default_path() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    # The XDG standard requires that a relative path is ignored.
    folder = Path(state) if os.path.isabs(state) else _expanded(Path("~/.local/state"))
    return folder / "qemu_scheduler" / "reservations.db"


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as exc:
        raise LedgerUnavailable(
            f"The ledger of reservations {path} cannot be found: {exc}. Set `reservations` to an absolute path.",
            location=str(path),
        ) from exc
