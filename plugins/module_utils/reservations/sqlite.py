# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A ledger in an SQLite file, shared by the processes of one host.

SQLite lets one transaction at a time write to a file, whatever cluster it is about. That is why a lease is a row and
not an open transaction: each transaction lasts about a millisecond, so schedulers of different clusters do not delay
each other. The exception is a process that is stopped (not killed) within a transaction: no other process can write
until it continues.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import typing as t
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ..errors import LedgerIncompatible, LedgerUnavailable
from .database import (
    CREATE_TABLES,
    SELECT_VERSION,
    VERSION_TABLE,
    Clock,
    Database,
    Parameters,
    Row,
    check_version,
)

# As long as a lease, and far longer than any transaction: a longer wait means that a process was stopped within one.
_BUSY_TIMEOUT_SECONDS = 15.0

# Transactions are begun and ended by statements only.
_OPTIONS: dict[str, t.Any] = {
    "timeout": _BUSY_TIMEOUT_SECONDS,
    "isolation_level": None,
    "check_same_thread": False,
}
_CREATE_TABLES = ";".join(("BEGIN IMMEDIATE", *CREATE_TABLES, "COMMIT"))

_MOUNTS = Path("/proc/self/mountinfo")

# SQLite's WAL mode needs memory that all processes with the file open share; clients of these do not share any.
_NETWORK_FILE_SYSTEMS = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs"),
        *("fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs"),
        "virtiofs",
    }
)


class SQLiteDatabase(Database):
    """An SQLite database. Without a path it is in memory, is visible to no other process and ends with this object."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        super().__init__("in memory" if path is None else str(path))
        self._clock = clock
        self._path = path
        self._file: tuple[int, int] | None = None
        with self._translate_errors():
            if path is None:
                self._connection = sqlite3.connect(":memory:", **_OPTIONS)
                self._connection.executescript(_CREATE_TABLES)
            else:
                self._connection, self._file = _open(path)
        self._execute = self._connection.execute

    def close(self) -> None:
        with self._turn:
            self._connection.close()

    def read(self, sql: str, parameters: Parameters = ()) -> tuple[float, list[Row]]:
        with self._turn, self._translate_errors():
            self._check_file()
            return self._clock(), self._execute(sql, parameters).fetchall()

    def _begin(self, cluster: str) -> float:
        # IMMEDIATE, as a transaction that begins with a read and writes later fails if another process wrote meanwhile.
        self._execute("BEGIN IMMEDIATE")
        self._check_file()
        check_version(self._execute(SELECT_VERSION).fetchall(), self.location)
        return self._clock()

    def _check_file(self) -> None:
        """Raise LedgerUnavailable when the path no longer leads to the file that is open here."""
        if self._path is not None and _file_at(self._path) != self._file:
            raise LedgerUnavailable(
                f"The ledger of reservations {self._path} was removed or replaced while it was in use. Processes that "
                "open it now do not know what this one has reserved.",
                location=str(self._path),
            )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            raise _collection_error(exc, self.location) from exc


def _collection_error(exc: sqlite3.Error, location: str) -> LedgerUnavailable | LedgerIncompatible:
    """Return an error of SQLite as one of a ledger."""
    name = getattr(exc, "sqlite_errorname", "")
    # SQLite reports statements that do not fit the tables as plain SQLITE_ERROR.
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


def check_creatable(path: Path) -> None:
    """Raise LedgerUnavailable if the ledger that does not exist at `path` could not be created."""
    file_system = network_file_system(path)
    if file_system is not None:
        raise _on_network(path, file_system)
    _refuse_remains(path)
    above = next(each for each in path.parents if each.exists())
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        raise LedgerUnavailable(
            f"The ledger of reservations {path} cannot be created: this user may not write to {above}.",
            location=str(path),
        )


def _on_network(path: Path, file_system: str) -> LedgerUnavailable:
    """Return the error for a ledger on a network file system."""
    return LedgerUnavailable(
        f"The ledger of reservations {path} is on a network file system ({file_system}), where SQLite cannot "
        "lock the file reliably: set `reservations` to a path on a local disk or to a PostgreSQL database.",
        location=str(path),
        reason=file_system,
    )


def _open(path: Path) -> tuple[sqlite3.Connection, tuple[int, int] | None]:
    """Open the ledger at `path`, and create it first if there is no file. Returns the connection and the file's id."""
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
        raise _on_network(path, file_system)
    file = _file_at(path)
    # Without `rw`, SQLite would create a new, empty file if the ledger was removed in this very moment.
    connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, **_OPTIONS)
    try:
        # With NORMAL, no transaction waits for the disk. In WAL mode, nothing is lost when a process dies, and at most
        # the last transactions when the machine fails; then the schedulers that wrote them have ended too.
        connection.execute("PRAGMA synchronous = NORMAL")
        _check(connection, str(path))
    except BaseException:
        connection.close()
        raise
    return connection, file


def _file_at(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of the file at `path`, or None when there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _check(connection: sqlite3.Connection, location: str) -> None:
    """Raise LedgerIncompatible if the file is damaged, or is no ledger of this version."""
    tables = connection.execute(
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?", (VERSION_TABLE,)
    ).fetchall()
    if tables != [(1,)]:
        raise LedgerIncompatible(
            f"The file {location} is damaged or is no ledger of reservations: it has no table {VERSION_TABLE}.",
            location=location,
        )
    check_version(connection.execute(SELECT_VERSION).fetchall(), location)
    damage = [text for (text,) in connection.execute("PRAGMA quick_check(1)") if text != "ok"]
    if damage:
        raise LedgerIncompatible(f"The file {location} is damaged: {damage[0]}.", location=location, reason=damage[0])


def _refuse_remains(path: Path) -> None:
    """Raise LedgerUnavailable when the ledger was removed but not the WAL and shared-memory files beside it.

    The old ledger may still be in use, and SQLite would take these files for those of the new one.
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
    """Create the ledger atomically. If several processes try at the same time, one of them creates it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # its mode is 0600
    os.close(handle)
    try:
        with closing(sqlite3.connect(name, **_OPTIONS)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_CREATE_TABLES)
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        os.unlink(name)


def network_file_system(path: Path, mounts: str | None = None) -> str | None:
    """Return the type of the network file system that contains `path`; None for a local or an unknown one.

    mounts is the text of /proc/self/mountinfo; None: read that file.
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
        name = mount.split()[4]
        for character in " \t\n\\":
            # The kernel writes these as octal numbers: a space as \040.
            name = name.replace(f"\\{ord(character):03o}", character)
        point = Path(name)
        # Of two file systems mounted at the same point, the later one hides the other.
        if wanted.is_relative_to(point) and len(point.parts) >= len(found[0].parts):
            found = point, source.split()[0]
    return found[1] if found[1] in _NETWORK_FILE_SYSTEMS else None
