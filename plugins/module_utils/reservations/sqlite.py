# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A ledger in an SQLite file, shared by the processes of one host.

SQLite lets one transaction at a time write to a file, whatever cluster it is about. That is why a lease is a row and
not an open transaction: each transaction lasts a millisecond or so, and schedulers of different clusters do not notice
each other. The exception is a process that is stopped (not killed) within one: nobody writes until it goes on.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ..errors import LedgerIncompatible, LedgerUnavailable
from . import schema
from .database import Clock, Cursor, Database, Parameters, Row

# As long as a lease, and far longer than any transaction: when it runs out, a process was stopped in the middle of one.
_BUSY_TIMEOUT_SECONDS = 15.0

_MOUNTS = Path("/proc/self/mountinfo")

# Their clients do not share memory, by which the processes that have the file open find each other's writes.
_NETWORK_FILE_SYSTEMS = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs"),
        *("fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs"),
        "virtiofs",
    }
)


class SQLiteDatabase(Database):
    """An SQLite database. Without a path it is one in memory, which nobody else sees and which ends with it."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        super().__init__("in memory" if path is None else str(path))
        self._clock = clock
        self._path = path
        self._file: tuple[int, int] | None = None
        with self._translated():
            if path is None:
                self._connection = _connect(":memory:")
                _create_tables(self._connection)
            else:
                self._connection, self._file = _open(path)

    def close(self) -> None:
        with self._turn:
            self._connection.close()

    def _begin(self, cluster: str) -> float:
        # A transaction that only turns to writing later could find that another process has written meanwhile.
        self._connection.execute("BEGIN IMMEDIATE")
        self._check_file()
        return self._clock()

    def _execute(self, sql: str, parameters: Parameters) -> Cursor:
        return self._connection.execute(sql, parameters)

    def _read(self, sql: str, parameters: Parameters) -> tuple[float, list[Row]]:
        self._check_file()
        return self._clock(), self._connection.execute(sql, parameters).fetchall()

    def _check_file(self) -> None:
        """Raise LedgerUnavailable when others no longer find at the path what is open here."""
        if self._path is not None and _file_at(self._path) != self._file:
            raise LedgerUnavailable(
                f"The ledger of reservations {self._path} was removed or replaced while it was in use. Processes that "
                "open it now do not know what this one has reserved.",
                location=str(self._path),
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            raise _collection_error(exc, self.location) from exc


def _collection_error(exc: sqlite3.Error, location: str) -> LedgerUnavailable | LedgerIncompatible:
    name = getattr(exc, "sqlite_errorname", "")
    # Plain SQLITE_ERROR is what SQLite says of statements that do not fit the tables.
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")) or name == "SQLITE_ERROR":
        return LedgerIncompatible(
            f"The file {location} is damaged or is no ledger of reservations: {exc}.",
            location=location,
            reason=str(exc),
        )
    reason = str(exc)
    if name.startswith("SQLITE_BUSY"):
        reason += f"; a process on this host has been stopped for {_BUSY_TIMEOUT_SECONDS:g} s while it wrote to it"
    return LedgerUnavailable(
        f"The ledger of reservations {location} cannot be used: {reason}.", location=location, reason=reason
    )


def _open(path: Path) -> tuple[sqlite3.Connection, tuple[int, int] | None]:
    """Open the ledger at `path`, and create it first when there is no file. Returns which file it is as well."""
    try:
        file_system = network_file_system(path)
        if file_system is None and not path.exists():
            _refuse_remains(path)
            _create(path)
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise LedgerUnavailable(
            f"The ledger of reservations {path} cannot be created: {reason}.", location=str(path), reason=reason
        ) from exc
    if file_system is not None:
        raise LedgerUnavailable(
            f"The ledger of reservations {path} is on a network file system ({file_system}), where SQLite cannot "
            "lock the file reliably: set `reservations` to a path on a local disk or to a PostgreSQL database.",
            location=str(path),
            reason=file_system,
        )
    file = _file_at(path)
    # Without `rw`, SQLite would make a new and empty file of one that was removed in this very moment.
    connection = _connect(f"{path.as_uri()}?mode=rw")
    try:
        # In WAL mode this loses nothing when a process dies, and the last transactions at most when the machine does,
        # which has then lost the schedulers as well. It spares each transaction the wait for the disk.
        connection.execute("PRAGMA synchronous = NORMAL")
        _check(connection, str(path))
    except BaseException:
        connection.close()
        raise
    return connection, file


def _file_at(path: Path) -> tuple[int, int] | None:
    """Return what tells the file at `path` from any other, or None when there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _connect(database: str) -> sqlite3.Connection:
    return sqlite3.connect(
        database,
        uri=database.startswith("file:"),
        timeout=_BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )


def _check(connection: sqlite3.Connection, location: str) -> None:
    tables = connection.execute(
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?", (schema.VERSION_TABLE,)
    ).fetchall()
    if tables != [(1,)]:
        raise LedgerIncompatible(
            f"The file {location} is damaged or is no ledger of reservations: it has no table {schema.VERSION_TABLE}.",
            location=location,
        )
    schema.check_version(connection.execute(schema.SELECT_VERSION).fetchall(), location)
    damage = [text for (text,) in connection.execute("PRAGMA quick_check(1)") if text != "ok"]
    if damage:
        raise LedgerIncompatible(f"The file {location} is damaged: {damage[0]}.", location=location, reason=damage[0])


def _refuse_remains(path: Path) -> None:
    """Raise LedgerUnavailable when a ledger was removed but for what SQLite keeps beside it while it is open.

    It may still be in use, and SQLite would take what is there for a part of the new one.
    """
    remains = [name for name in (f"{path.name}-wal", f"{path.name}-shm") if path.with_name(name).exists()]
    # Another process may have created it in this very moment.
    if remains and not path.exists():
        raise LedgerUnavailable(
            f"The ledger of reservations {path} was removed, but {' and '.join(remains)} beside it were not: it may "
            "still be in use. Wait until no run is active, and remove them.",
            location=str(path),
        )


def _create(path: Path) -> None:
    """Create the ledger. It appears whole or not at all, and one of those who try at the same time wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # its mode is 0600
    os.close(handle)
    try:
        with closing(_connect(name)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            _create_tables(connection)
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        os.unlink(name)


def _create_tables(connection: sqlite3.Connection) -> None:
    for statement in ("BEGIN IMMEDIATE", *schema.CREATE, "COMMIT"):
        connection.execute(statement)


def network_file_system(path: Path, mounts: str | None = None) -> str | None:
    """Return the type of the network file system that holds `path`; None for a local or an unknown one.

    mounts is the text of /proc/self/mountinfo, which is read when it is not given.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(errors="surrogateescape")
        except OSError:
            return None
    wanted = Path(os.path.realpath(path))
    found = Path("/"), ""
    for line in mounts.splitlines():
        mount, _separator, source = line.partition(" - ")
        point = Path(_unescaped(mount.split()[4]))
        # Of two that are mounted on one another, the later one is seen.
        if wanted.is_relative_to(point) and len(point.parts) >= len(found[0].parts):
            found = point, source.split()[0]
    return found[1] if found[1] in _NETWORK_FILE_SYSTEMS else None


def _unescaped(mount_point: str) -> str:
    for character in " \t\n\\":
        mount_point = mount_point.replace(f"\\{ord(character):03o}", character)
    return mount_point
