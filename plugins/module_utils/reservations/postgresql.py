# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A ledger in a PostgreSQL database, shared by any number of controllers.

It works through a connection pooler as well: nothing depends on which of the server's sessions a transaction gets.
"""

from __future__ import annotations

import hashlib
import sys
import typing as t
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType

from ..errors import InvalidRequest, LedgerIncompatible, LedgerUnavailable, MissingLibrary
from ..secret_options import POSTGRESQL
from .database import (
    CREATE_TABLES,
    SELECT_VERSION,
    VERSION_TABLE,
    Clock,
    Cursor,
    Database,
    Parameters,
    Row,
    Statement,
    check_version,
)

if t.TYPE_CHECKING:
    import psycopg

_OLDEST_PSYCOPG = (3, 1)

# The server disconnects a client that hangs within a transaction, so that those who wait for it can continue.
_BEGIN = """
    BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
    SET LOCAL idle_in_transaction_session_timeout = '5s';
    SET LOCAL lock_timeout = '20s';
    SELECT pg_advisory_xact_lock({key});
"""
_SELECT_TIME = "SELECT extract(epoch FROM clock_timestamp())::double precision"
_WITH_VERSION = f", version FROM {VERSION_TABLE}"

# Not `to_regclass`, which may still not find a table that another session has just created.
_HAS_TABLES = f"""
    SELECT count(*) > 0 FROM pg_catalog.pg_tables
    WHERE tablename = '{VERSION_TABLE}' AND schemaname = ANY (current_schemas(false))
"""

_CONNECTION_DEFAULTS: dict[str, t.Any] = {
    "application_name": "qemu_scheduler",
    "connect_timeout": 10,
    # A server that vanished is noticed within seconds instead of hours.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    # The same in milliseconds for a statement that is under way, during which the kernel sends no keepalives.
    "tcp_user_timeout": 11_000,
}


class PostgreSQLDatabase(Database):
    """A PostgreSQL database. Without a clock, that of the server is used, so that all controllers agree on what has
    expired.

    Raises MissingLibrary, LedgerUnavailable or LedgerIncompatible.
    """

    def __init__(self, url: str, clock: Clock | None, *, create: bool = True) -> None:
        """create: whether to create the tables if there are none."""
        self._driver = _import_driver()
        self._parameters = _parse(self._driver, url)
        super().__init__(_describe(self._parameters))
        self._clock = clock
        self._is_prepared = False
        with self._translate_errors():
            self._connection = self._connect()
        try:
            self._prepare(create=create)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        with self._turn:
            self._connection.close()

    def read(self, sql: str, parameters: Parameters = ()) -> tuple[float, list[Row]]:
        with self._turn, self._translate_errors():
            cursor = self._start(f"{_SELECT_TIME}; {sql}", parameters)
            now = self._now(cursor.fetchall())
            cursor.nextset()
            return now, cursor.fetchall()

    def write(self, cluster: str, *statements: Statement) -> int:
        # In one request: a process that waits for the server's answer to each keeps the others waiting as well.
        sql = "; ".join(statement for statement, _parameters in statements)
        with self._turn, self._translate_errors():
            try:
                cursor = self._start(
                    f"{_begin(cluster)} {sql}; COMMIT", [each for _sql, parameters in statements for each in parameters]
                )
                changed = [cursor.rowcount]
                while cursor.nextset():
                    changed.append(cursor.rowcount)
            except BaseException:
                self._roll_back()
                raise
            return changed[-1 - len(statements)]

    def ask_if_tables_exist(self) -> bool:
        """Whether the tables have been created."""
        return self._has_tables(self.read(_HAS_TABLES)[1])

    def _prepare(self, *, create: bool) -> None:
        """Create the tables if there are none, and check that they are those of this version."""
        if not self.ask_if_tables_exist():
            if not create:
                return
            with self.transaction("") as transaction:
                if not self._has_tables(transaction.execute(_HAS_TABLES).fetchall()):
                    for statement in CREATE_TABLES:
                        transaction.execute(statement)
        check_version(self.read(SELECT_VERSION)[1], self.location)
        self._is_prepared = True

    @staticmethod
    def _has_tables(rows: list[Row]) -> bool:
        return rows == [(True,)]

    def _begin(self, cluster: str) -> float:
        # The version in the same request: while one goes to the server and back, others wait for the lease.
        cursor = self._start(f"{_begin(cluster)} {_SELECT_TIME}{_WITH_VERSION if self._is_prepared else ''}")
        while cursor.nextset():
            pass
        rows = cursor.fetchall()
        if self._is_prepared:
            check_version([row[1:] for row in rows], self.location)
        return self._now(rows)

    def _execute(self, sql: str, parameters: Parameters = (), /) -> Cursor:
        return self._connection.execute(_in_driver_style(sql), parameters or None)

    def _now(self, rows: list[Row]) -> float:
        return self._clock() if self._clock is not None else float(rows[0][0])

    def _start(self, sql: str, parameters: Parameters = ()) -> psycopg.Cursor[Row]:
        """Run the first statement of a transaction or a read, on a new connection if the old one was lost meanwhile."""
        try:
            return self._connection.execute(_in_driver_style(sql), parameters or None)
        except self._driver.OperationalError:
            if not self._connection.closed:
                raise
            self._connection = self._connect()
            return self._connection.execute(_in_driver_style(sql), parameters or None)

    def _connect(self) -> psycopg.Connection[Row]:
        """Open a connection that also works through a connection pooler."""
        connection: psycopg.Connection[Row] = self._driver.connect(
            autocommit=True,
            # For connection poolers: the client inserts the parameters, and no statement is prepared in a session.
            cursor_factory=self._driver.ClientCursor,
            prepare_threshold=None,
            # With another encoding of the user's environment, texts would come as bytes.
            **{**_CONNECTION_DEFAULTS, **self._parameters, "client_encoding": "UTF8"},
        )
        return connection

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise errors of psycopg as those of a ledger, without the password of its URL."""
        errors = self._driver.errors
        try:
            yield
        except (errors.UndefinedTable, errors.UndefinedColumn) as exc:
            raise LedgerIncompatible(
                f"The tables of the ledger of reservations in {self.location} are not complete: {_text(exc)}.",
                location=self.location,
                reason=_text(exc),
            ) from exc
        except self._driver.Error as exc:
            raise LedgerUnavailable(
                f"The ledger of reservations in {self.location} cannot be used: {_text(exc)}.",
                location=self.location,
                reason=_text(exc),
            ) from exc


def _begin(cluster: str) -> str:
    """Return the statements with which a transaction for the cluster begins."""
    digest = hashlib.blake2b(f"qemu_scheduler {cluster}".encode(), digest_size=8).digest()
    return _BEGIN.format(key=int.from_bytes(digest, "big", signed=True))


def _import_driver() -> ModuleType:
    """Import psycopg. Raises MissingLibrary."""
    try:
        import psycopg
    except ImportError as exc:
        problem = str(exc)
    else:
        if tuple(map(int, psycopg.__version__.split(".")[:2])) >= _OLDEST_PSYCOPG:
            return psycopg
        problem = f"version {psycopg.__version__} is too old"
    raise MissingLibrary(
        "A ledger of reservations in PostgreSQL needs the Python package psycopg[binary] >= 3.1 for "
        f"{sys.executable}: {problem}.",
        library="psycopg",
        interpreter=sys.executable,
    )


def _parse(driver: ModuleType, url: str) -> dict[str, t.Any]:
    """Return the connection parameters of a URL. Error messages do not quote the URL: it may contain a password."""
    parameters: dict[str, t.Any] | None = None
    # After an unencoded `/` or `@` in a password, the driver takes the rest of it for a host and shows it in messages.
    if POSTGRESQL.fullmatch(url):
        # The driver's error about a bad URL quotes it.
        with suppress(driver.Error):
            parameters = driver.conninfo.conninfo_to_dict(url)
    if parameters is None:
        raise InvalidRequest(
            "reservations is not a valid postgresql:// URL: expected postgresql://user:password@host:port/database, "
            "where special characters in user and password are percent-encoded."
        )
    return parameters


def _describe(parameters: dict[str, t.Any]) -> str:
    port = f":{parameters['port']}" if "port" in parameters else ""
    return f"postgresql://{parameters.get('host', '')}{port}/{parameters.get('dbname', '')}"


def _in_driver_style(sql: str) -> bytes:
    return sql.replace("?", "%s").encode()


def _text(exc: Exception) -> str:
    return " ".join(str(exc).split())
